#include "apps/attention_bench/bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/common/program.h"
#include "core/ops.h"
#include "core/storage.h"
#include "core/timing.h"
#include "nn/attention/attention.h"
#include "nn/transformer.h"

namespace cairn::attention_bench {
namespace {

// The seconds of one call. On CUDA, a short call is repeated for up to a millisecond, and this is the mean: events have
// a resolution of half a microsecond, and the first kernel waits for its launch.
double seconds_per_call(Device device, const std::function<void()>& work) {
  const double once = seconds_of(device, work);
  const auto calls = int64_t(1e-3 / std::max(once, 1e-6));
  if (device == Device::cpu || calls < 2) return once;
  const auto repeat = [&] {
    for (int64_t i = 0; i < calls; ++i) work();
  };
  return seconds_of(device, repeat) / double(calls);
}

// The work of one repetition. The constructor does everything that is done only once.
class Workload {
 public:
  explicit Workload(const Problem& p) : device_(p.compute.device), generator_(p.seed) {
    RandomStream random(p.seed, 0, Purpose::data);
    const auto normal = [&](const Shape& shape) {
      return random_normal(shape, random).cast(p.compute.activations).to(device_);
    };
    const Context context{.training = true, .generator = &generator_};
    Generator parameters_of(p.seed);
    if (p.is_product()) {
      const Tensor x = normal({p.tokens(), p.features()}), weight = normal({p.feed_forward, p.features()}),
                   bias = normal({p.feed_forward}), dy = normal({p.tokens(), p.feed_forward});
      forward_ = [=] { return p.what == What::product ? linear(x, weight, bias) : matmul(dy, x, true, false); };
      leaves_ = {Variable(x), Variable(weight), Variable(dy)};
      return;
    }
    if (p.what == What::layer) {
      TransformerOptions options;
      options.heads = p.heads, options.head_size = p.head_size, options.feed_forward = p.feed_forward;
      options.attention = p.attention;
      const auto layer = std::make_shared<EncoderLayer>(options, parameters_of);
      move_to(*layer, device_);
      const Variable x(normal({p.batch, p.length, p.features()}), p.backward);
      forward_ = [=] { return (*layer)(x, {}, context); };
      leaves_ = parameters(*layer);
      leaves_.push_back(x);
    } else {
      const std::shared_ptr<Attention> attention = make_attention(p.attention);
      attention->initialize(p.heads, p.head_size, parameters_of);
      move_to(*attention, device_);
      std::vector<Variable> qkv;
      for (int i = 0; i < 3; ++i) qkv.emplace_back(normal({p.batch, p.length, p.heads, p.head_size}), p.backward);
      if (p.what == What::cluster) {
        cluster_alone(p, *attention, qkv);
        return;
      }
      forward_ = [=] { return (*attention)(qkv[0], qkv[1], qkv[2], {}, AttentionContext{context}); };
      leaves_ = parameters(*attention);
      leaves_.insert(leaves_.end(), qkv.begin(), qkv.end());
    }
    if (p.backward) gradient_ = normal(leaves_.back().shape());
  }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // Runs once. Returns the peak memory in bytes.
  int64_t run_once() {
    reset_peak_memory(device_);
    const MemoryCount before = memory(device_);
    const int64_t others = before.live - before.scratch;  // not scratch: threads keep it, and this run uses it too
    run();
    auto own = int64_t(gradient_.defined() ? gradient_.bytes() : 0);
    for (const Variable& x : leaves_) own += int64_t(x.value().bytes());
    const int64_t peak = memory(device_).peak - others + own;
    clear_gradients();
    return peak;
  }

  // The seconds of one run. Freed memory of the run before is reused, as in training.
  double operator()() {
    return seconds_per_call(device_, [this] { run(); });
  }

  // The seconds of each operation in one run.
  std::map<std::string, double> stages() {
    clear_gradients();
    Variable out;
    auto seconds = operation_seconds(device_, [&] { out = forward_(); });
    if (gradient_.defined())
      for (const auto& [kernel, time] : operation_seconds(device_, [&] { backward(out, gradient_); }))
        seconds["backward: " + kernel] = time;
    clear_gradients();
    return seconds;
  }

 private:
  // Measures clustering alone: one call of the variant computes the hash codes beforehand.
  void cluster_alone(const Problem& p, const Attention& attention, const std::vector<Variable>& qkv) {
    AttentionChoices made;
    const NoGrad no_grad;
    attention(qkv[0], qkv[1], qkv[2], {}, {{.training = true, .generator = &generator_}, &made});
    const Tensor codes = made.codes;
    check<UsageError>(codes.defined(), "--what cluster: attention '", p.attention, "' does not cluster hash codes");
    const int64_t clusters = std::min(attention.clusters(), p.length);
    const int iterations = attention.iterations();
    leaves_ = {Variable(codes)};
    forward_ = [=, this] {
      hamming_kmeans(codes, {}, clusters, iterations, generator_.draw(0, Purpose::clusters));
      return Variable();
    };
  }

  void run() {
    clear_gradients();
    const Variable out = forward_();
    if (gradient_.defined()) backward(out, gradient_);
  }

  void clear_gradients() {
    for (Variable& x : leaves_) x.clear_grad();
  }

  Device device_;
  Generator generator_;
  std::function<Variable()> forward_;  // for clustering alone, returns an undefined variable
  std::vector<Variable> leaves_;       // parameters and operands
  Tensor gradient_;                    // of the result; undefined: forward alone
};

// The value that is at the share q of the sorted values, between two of them by interpolation. 0.5 is the median.
double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * double(values.size() - 1);
  const auto low = size_t(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - double(low)) * (values[high] - values[low]);
}

Json result(const Problem& p, const std::vector<double>& seconds, int64_t peak) {
  const double median = quantile(seconds, 0.5);
  return {{"attention", p.attention},
          {"length", p.length},
          {"batch", p.batch},
          {"median_seconds", median},
          {"spread", (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / 2},
          {"repetitions", seconds.size()},
          {"seconds_per_element", median / double(p.tokens())},
          {"peak_bytes", peak},
          {"bytes_per_element", double(peak) / double(p.tokens())}};
}

}  // namespace

Cost cost_of(const Problem& p) {
  const double tokens = double(p.tokens()), d = double(p.features()), bytes = double(size_of(p.compute.activations));
  if (p.what == What::cluster)  // reads codes, writes labels; computes Hamming distances without floating point
    return {0, tokens * double(p.heads) * (8 + 4)};
  if (p.is_product()) {
    const double columns = double(p.feed_forward);
    return {2 * tokens * d * columns, (tokens * (d + columns) + d * columns) * bytes};
  }
  Cost cost;
  const double passes = p.backward ? 3 : 1;  // the backward pass of a product has two
  cost.flops = tokens * double(p.heads) *
               make_attention(p.attention)->flops({double(p.length), double(p.head_size), p.backward});
  cost.bytes = tokens * d * bytes * (p.backward ? 12 : 4);  // q, k, v, out; backward: these again and their gradients
  if (p.what == What::attention) return cost;
  const double weights = 4 * d * d + 2 * d * double(p.feed_forward);
  cost.flops += tokens * 2 * weights * passes;
  // Inputs and outputs of all steps: x, q, k, v, the attention's output, two sums and norms, the hidden layer.
  cost.bytes += (tokens * (10 * d + 2 * double(p.feed_forward)) + weights) * bytes * passes;
  return cost;
}

std::vector<Json> measure(const std::vector<Problem>& problems, const Repetitions& repetitions, bool stages) {
  constexpr int64_t fewest = 3;
  std::vector<Json> results;
  if (problems.size() > 1 && problems[0].compute.device == Device::cuda) {
    for (const Problem& problem : problems)
      for (const Json& one : measure({problem}, repetitions, stages)) results.push_back(one);
    return results;
  }
  std::vector<std::unique_ptr<Workload>> workloads;
  std::vector<int64_t> peaks;
  for (const Problem& problem : problems) {
    workloads.push_back(std::make_unique<Workload>(problem));
    peaks.push_back(workloads.back()->run_once());  // also loads kernels and warms caches
  }
  std::vector<std::vector<double>> seconds(problems.size());
  std::vector<double> spent(problems.size(), 0);
  for (int64_t n = 0; n < repetitions.maximum && !interrupted(); ++n)
    for (size_t i = 0; i < problems.size(); ++i)
      if (n < fewest || spent[i] < repetitions.seconds)
        spent[i] += seconds_of(Device::cpu, [&] { seconds[i].push_back((*workloads[i])()); });
  for (size_t i = 0; i < problems.size() && !interrupted(); ++i) {
    results.push_back(result(problems[i], seconds[i], peaks[i]));
    if (stages) results.back()["stages"] = workloads[i]->stages();
  }
  return results;
}

int64_t peak_bytes(const Problem& problem) { return Workload(problem).run_once(); }

Ceilings measure_ceilings(const DeviceAndDType& compute) {
  RandomStream random(1, 0, Purpose::test);
  const bool gpu = compute.device == Device::cuda;
#if CAIRN_CUDA_HOST
  const bool emulated = gpu;  // the emulator's speed means nothing
#else
  constexpr bool emulated = false;
#endif
  const int64_t n = emulated ? 64 : gpu ? 4096 : 1024, elements = int64_t(1) << (emulated ? 12 : gpu ? 28 : 24);
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return random_normal({rows, columns}, random).cast(compute.activations).to(compute.device);
  };
  const Tensor x = Tensor::full({elements}, 1, compute.activations, compute.device);
  // Repeats long enough to find a quiet moment on a shared machine.
  const auto best_of = [&](const std::function<void()>& work) {
    work();  // loads the kernel, warms caches
    double best = INFINITY, spent = 0;
    for (int i = 0; i < 8 || (spent < 0.2 && !emulated); ++i)
      spent += seconds_of(Device::cpu, [&] { best = std::min(best, seconds_per_call(compute.device, work)); });
    return best;
  };
  Variable result;
  Ceilings ceilings;
  // A square product is not the fastest on every machine, so it also tries a layer's products (one machine: 78 to 108
  // GFLOP/s).
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
