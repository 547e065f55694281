#include "apps/attention_bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/ops.h"
#include "core/storage.h"
#include "core/trace.h"
#include "nn/transformer.h"

namespace cairn::attention_bench {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void finish(const Tensor& x) {
  if (x.device() == Device::cuda)
    x.reshape({x.elements()}).slice(0, std::min<int64_t>(1, x.elements())).to(Device::cpu);
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * double(sorted.size() - 1);
  const auto low = size_t(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - double(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

struct Workload::State {
  Problem problem;
  Generator generator;
  std::unique_ptr<Attention> attention;
  std::unique_ptr<EncoderLayer> layer;
  std::vector<Variable> operands;  // q, k, v, or the layer's input
  std::vector<Variable> learned;
  Tensor gradient, codes;
  int bits = 0, iterations = 0;
  int64_t clusters = 0, peak = 0;

  State(Problem p, Device device, uint64_t seed) : problem(std::move(p)), generator(seed, device) {}

  Context context() const { return {true, &generator}; }

  void run() {
    if (problem.what == What::cluster) {
      finish(hamming_kmeans(codes, {}, clusters, bits, iterations, generator.draw(0, Purpose::clusters)));
      return;
    }
    for (auto* list : {&operands, &learned})
      for (Variable& x : *list) x.clear_grad();
    const Variable out = forward();
    if (problem.backward) backward(out, gradient);
    finish(problem.backward ? operands[0].grad() : out.value());
  }

  Variable forward() {
    if (layer) return (*layer)(operands[0], {}, context());
    const AttentionContext inner{context()};
    return (*attention)(operands[0], operands[1], operands[2], {}, inner);
  }
};

Workload::Workload(const Problem& p, const Compute& compute, uint64_t seed)
    : state_(std::make_unique<State>(p, compute.device, seed)) {
  State& s = *state_;
  Sequence random(seed, 0, Purpose::data);
  const auto normal = [&](const Shape& shape) {
    return random_normal(shape, random).cast(compute.activations).to(compute.device);
  };
  const Shape flat{p.batch, p.length, p.features()}, split{p.batch, p.length, p.heads, p.head_size};
  if (p.what == What::layer) {
    TransformerOptions options;
    options.heads = p.heads, options.head_size = p.head_size, options.feed_forward = p.feed_forward;
    options.attention = p.attention;
    Generator parameters_of(seed);
    s.layer = std::make_unique<EncoderLayer>(options, parameters_of);
    move_to(*s.layer, compute.device);
    if (p.backward) s.learned = parameters(*s.layer);
    s.operands = {Variable(normal(flat), p.backward)};
    if (p.backward) s.gradient = normal(flat);
    return;
  }
  s.attention = make_attention(p.attention);
  Generator parameters_of(seed);
  s.attention->initialize(p.heads, p.head_size, parameters_of);
  move_to(*s.attention, compute.device);
  for (int i = 0; i < 3; ++i) s.operands.emplace_back(normal(split), p.backward);
  s.learned = parameters(*s.attention);
  if (p.backward) s.gradient = normal(split);
  if (p.what != What::cluster) return;
  // What the variant makes of these queries up to the codes.
  AttentionChoices made;
  AttentionContext context{s.context()};
  context.report = &made;
  const NoGrad no_grad;
  (*s.attention)(s.operands[0], s.operands[1], s.operands[2], {}, context);
  check<UsageError>(made.codes.defined(), "--what cluster: attention '", p.attention, "' does not cluster codes");
  s.codes = made.codes, s.clusters = std::min(made.clusters, p.length), s.bits = int(made.planes.size(0));
  s.iterations = int(option_of(p.attention, "iterations", 10));
  s.operands.clear();
}

Workload::~Workload() = default;
const Problem& Workload::problem() const { return state_->problem; }

double Workload::operator()() {
  const Device device = state_->generator.state().device();
  reset_peak_memory(device);
  const int64_t others = memory(device).live;
  const auto start = Clock::now();
  state_->run();
  const double seconds = since(start);
  int64_t own = 0;
  for (const auto* list : {&state_->operands, &state_->learned})
    for (const Variable& x : *list) own += int64_t(x.value().bytes());
  for (const Tensor* x : {&state_->gradient, &state_->codes})
    if (x->defined()) own += int64_t(x->bytes());
  state_->peak = memory(device).peak - others + own;
  for (auto* list : {&state_->operands, &state_->learned})
    for (Variable& x : *list) x.clear_grad();
  return seconds;
}

int64_t Workload::peak_bytes() const { return state_->peak; }

std::map<std::string, double> Workload::stages() {
  trace::start();
  state_->run();
  const trace::Recording recording = trace::stop();
  std::map<std::string, double> seconds;
  int64_t gradients_end = -1;  // of the backward span that is open
  for (const trace::Event& event : recording.events) {
    if (std::string(event.category) == "backward")
      gradients_end = std::max(gradients_end, event.begin + event.duration);
    if (std::string(event.category) != "kernel") continue;
    const bool in_gradient = event.begin < gradients_end;
    seconds[(in_gradient ? "backward: " : "") + std::string(event.name)] += double(event.duration) * 1e-9;
  }
  return seconds;
}

Timing::Timing(std::vector<double> seconds) : repetitions(int64_t(seconds.size())) {
  std::sort(seconds.begin(), seconds.end());
  if (!seconds.empty())
    median = quantile(seconds, 0.5), spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / 2;
}

std::vector<std::vector<double>> measure(const std::vector<Workload*>& workloads, const Repetitions& repetitions) {
  std::vector<std::vector<double>> seconds(workloads.size());
  std::vector<double> spent(workloads.size(), 0.0);
  for (Workload* workload : workloads) (*workload)();  // the first run also warms caches, and threads
  for (int64_t i = 0; i < repetitions.most && !interrupted(); ++i)
    for (size_t w = 0; w < workloads.size(); ++w) {
      if (i >= repetitions.least && spent[w] >= repetitions.seconds) continue;
      seconds[w].push_back((*workloads[w])());
      spent[w] += seconds[w].back();
    }
  return seconds;
}

double Ceilings::floor_seconds(const Cost& cost) const { return std::max(cost.flops / flops, cost.bytes / bytes); }

Ceilings measure_ceilings(const Compute& compute) {
  Sequence random(1, 0, Purpose::test);
  const bool gpu = compute.device == Device::cuda;
  const int64_t n = gpu ? 4096 : 1024, elements = gpu ? int64_t(1) << 28 : int64_t(1) << 24;
  const Tensor a = random_normal({n, n}, random).cast(compute.activations).to(compute.device);
  const Tensor x = Tensor::full({elements}, 1, compute.activations, compute.device);
  const auto best_of = [](auto&& f) {
    double best = INFINITY;
    f();
    const auto begin = Clock::now();
    for (int i = 0; i < 7 || since(begin) < 0.5; ++i) {  // long enough to meet a quiet moment of a shared machine
      const auto start = Clock::now();
      finish(f());
      best = std::min(best, since(start));
    }
    return best;
  };
  Ceilings ceilings;
  ceilings.flops = 2 * std::pow(double(n), 3) / best_of([&] { return matmul(a, a); });
  ceilings.bytes = 2 * double(x.bytes()) / best_of([&] { return affine(x, 2); });
  return ceilings;
}

}  // namespace cairn::attention_bench
