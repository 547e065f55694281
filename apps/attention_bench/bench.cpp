#include "apps/attention_bench/bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "apps/common/program.h"
#include "core/ops.h"
#include "core/storage.h"
#include "core/timing.h"
#include "nn/transformer.h"

namespace cairn::attention_bench {
namespace {

// Seconds that a measurement on CUDA is to last, where one run is shorter: events tell half a microsecond, and all
// kernels of a measurement are queued before the first begins, of which the driver takes about a thousand.
constexpr double measured_at_once = 1e-3;

// The seconds of one run on CUDA, measured over several.
double seconds_of_runs(const std::function<void()>& work, int64_t runs) {
  return seconds_of(Device::cuda,
                    [&] {
                      for (int64_t i = 0; i < runs; ++i) work();
                    }) /
         double(runs);
}
// How many runs one measurement on CUDA takes.
int64_t runs_of_measurement(const std::function<void()>& work) {
  const double once = seconds_of_runs(work, 2);
  return std::clamp<int64_t>(int64_t(measured_at_once / std::max(once, 1e-7)), 1, 1000);
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * double(sorted.size() - 1);
  const auto low = size_t(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - double(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

Workload::Workload(const Problem& p, const Place& compute, uint64_t seed)
    : problem_(p), device_(compute.device), generator_(seed) {
  RandomStream random(seed, 0, Purpose::data);
  // A batch is one sequence many times over.
  const auto normal = [&](const Shape& shape) {
    return broadcast_to(random_normal(shape.with(0, 1), random).cast(compute.activations).to(compute.device), shape);
  };
  const Shape flat{p.batch, p.length, p.features()}, split{p.batch, p.length, p.heads, p.head_size};
  if (p.what == What::layer) {
    TransformerOptions options;
    options.heads = p.heads, options.head_size = p.head_size, options.feed_forward = p.feed_forward;
    options.attention = p.attention;
    Generator parameters_of(seed);
    layer_ = std::make_unique<EncoderLayer>(options, parameters_of);
    move_to(*layer_, compute.device);
    if (p.backward) learned_ = parameters(*layer_);
    operands_ = {Variable(normal(flat), p.backward)};
    if (p.backward) gradient_ = normal(flat);
    return;
  }
  attention_ = make_attention(p.attention);
  Generator parameters_of(seed);
  attention_->initialize(p.heads, p.head_size, parameters_of);
  move_to(*attention_, compute.device);
  for (int i = 0; i < 3; ++i) operands_.emplace_back(normal(split), p.backward);
  learned_ = parameters(*attention_);
  if (p.backward) gradient_ = normal(split);
  if (p.what != What::cluster) return;
  // What the variant makes of these queries up to the codes.
  AttentionChoices made;
  AttentionContext inner{context()};
  inner.report = &made;
  const NoGrad no_grad;
  (*attention_)(operands_[0], operands_[1], operands_[2], {}, inner);
  codes_ = made["codes"];
  check<UsageError>(codes_.defined(), "--what cluster: attention '", p.attention, "' does not cluster codes");
  clusters_ = std::min(made.numbers["clusters"], p.length);
  iterations_ = int(made.numbers["iterations"]);
  operands_.clear();
}

void Workload::run() {
  if (problem_.what == What::cluster) return cluster();
  clear_gradients();
  const Variable out = forward();
  if (problem_.backward) backward(out, gradient_);
}

Variable Workload::forward() {
  if (layer_) return (*layer_)(operands_[0], {}, context());
  return (*attention_)(operands_[0], operands_[1], operands_[2], {}, AttentionContext{context()});
}

void Workload::cluster() {
  labels_ = hamming_kmeans(codes_, {}, clusters_, iterations_, generator_.draw(0, Purpose::clusters));
}

void Workload::clear_gradients() {
  for (auto* list : {&operands_, &learned_})
    for (Variable& x : *list) x.clear_grad();
}

double Workload::run_once() {
  reset_peak_memory(device_);
  const MemoryCount before = memory(device_);
  const int64_t others = before.live - before.scratch;  // threads keep their scratch, which this run needs too
  const double seconds = seconds_of(Device::cpu, [this] { run(); });
  int64_t own = 0;
  for (const auto* list : {&operands_, &learned_})
    for (const Variable& x : *list) own += int64_t(x.value().bytes());
  for (const Tensor* x : {&gradient_, &codes_})
    if (x->defined()) own += int64_t(x->bytes());
  peak_ = memory(device_).peak - others + own;
  clear_gradients();
  return seconds;
}

double Workload::operator()() {
  if (device_ == Device::cpu) return run_once();
  const auto work = [this] { run(); };
  if (runs_ == 0) runs_ = runs_of_measurement(work);
  return seconds_of_runs(work, runs_);
}

std::map<std::string, double> Workload::stages() {
  if (problem_.what == What::cluster) return operation_seconds(device_, [&] { cluster(); });
  clear_gradients();
  Variable out;
  auto seconds = operation_seconds(device_, [&] { out = forward(); });
  if (problem_.backward)
    for (const auto& [kernel, time] : operation_seconds(device_, [&] { backward(out, gradient_); }))
      seconds["backward: " + kernel] = time;
  clear_gradients();
  return seconds;
}

Timing::Timing(std::vector<double> seconds) : repetitions(int64_t(seconds.size())) {
  std::sort(seconds.begin(), seconds.end());
  if (!seconds.empty())
    median = quantile(seconds, 0.5), spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / 2;
}

std::vector<Measurement> measure(const std::vector<Problem>& problems, const Place& compute, uint64_t seed,
                                 const Repetitions& repetitions, bool stages) {
  std::vector<Measurement> results(problems.size());
  // One repetition of each of `these` after another.
  const auto in_turn = [&](const std::vector<size_t>& these) {
    std::map<size_t, std::unique_ptr<Workload>> workloads;
    std::map<size_t, double> spent;
    for (const size_t i : these) {
      workloads[i] = std::make_unique<Workload>(problems[i], compute, seed);
      workloads[i]->run_once();  // kernels are loaded, caches warm, the peak known
    }
    for (int64_t n = 0; n < repetitions.maximum && !interrupted(); ++n)
      for (const size_t i : these) {
        if (n >= repetitions.minimum && spent[i] >= repetitions.seconds) continue;
        spent[i] += seconds_of(Device::cpu, [&] { results[i].seconds.push_back((*workloads[i])()); });
      }
    for (const size_t i : these) {
      results[i].peak_bytes = workloads[i]->peak_bytes();
      if (stages && !interrupted()) results[i].stages = workloads[i]->stages();
    }
  };
  std::vector<size_t> all(problems.size());
  std::iota(all.begin(), all.end(), size_t(0));
  if (compute.device == Device::cpu)
    in_turn(all);
  else
    for (const size_t i : all) in_turn({i});
  return results;
}

double Ceilings::floor_seconds(const Cost& cost) const { return std::max(cost.flops / flops, cost.bytes / bytes); }

Ceilings measure_ceilings(const Place& compute) {
  RandomStream random(1, 0, Purpose::test);
  const bool gpu = compute.device == Device::cuda;
#if CAIRN_CUDA_HOST
  const bool emulated = gpu;  // what the emulator does in a second tells nothing
#else
  constexpr bool emulated = false;
#endif
  const int64_t n = emulated ? 64 : gpu ? 4096 : 1024, elements = int64_t(1) << (emulated ? 12 : gpu ? 28 : 24);
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return random_normal({rows, columns}, random).cast(compute.activations).to(compute.device);
  };
  const Tensor x = Tensor::full({elements}, 1, compute.activations, compute.device);
  // Long enough to meet a quiet moment of a shared machine.
  const auto best_of = [&](const std::function<void()>& work) {
    work();  // the kernel is loaded, caches are warm
    const int64_t runs = gpu ? runs_of_measurement(work) : 1;
    double best = INFINITY, spent = 0;
    for (int i = 0; i < 8 || (spent < 0.2 && !emulated); ++i) {
      const double seconds = gpu ? seconds_of_runs(work, runs) : seconds_of(Device::cpu, work);
      best = std::min(best, seconds), spent += seconds * double(runs);
    }
    return best;
  };
  Tensor result;
  Ceilings ceilings;
  // A square product is not the fastest on every machine, so those of a layer are tried too: 78 to 108 GFLOP/s on one.
  struct Product {
    int64_t rows, depth, columns;
  };
  for (const Product& p : {Product{n, n, n}, {4 * n, 384, 1536}, {4 * n, 1536, 384}}) {
    const Tensor a = matrix(p.rows, p.depth), b = matrix(p.depth, p.columns);
    const double seconds = best_of([&] { result = matmul(a, b); });
    ceilings.flops = std::max(ceilings.flops, 2 * double(p.rows * p.depth * p.columns) / seconds);
  }
  ceilings.bytes = 2 * double(x.bytes()) / best_of([&] { result = affine(x, 2); });
  return ceilings;
}

}  // namespace cairn::attention_bench
