#pragma once
// What attention-bench measures: one call of a variant, of a transformer layer around it, or of its clustering; and
// what its times are compared with.
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/command.h"
#include "nn/attention/attention.h"

namespace cairn::attention_bench {

enum class What { attention, layer, cluster };
constexpr const char* name_of(What what) {
  return what == What::attention ? "attention" : what == What::layer ? "layer" : "cluster";
}

struct Problem {
  std::string attention;
  int64_t length = 1, batch = 1;
  What what = What::layer;
  bool backward = true;  // forward and backward, or forward alone
  int64_t heads = 6, head_size = 64, feed_forward = 1536;

  int64_t features() const { return heads * head_size; }
  int64_t tokens() const { return batch * length; }
};

// What has to be computed and moved, whoever does it: floating-point operations, of which a multiply-add is two, and
// the bytes of operands and results, each moved once (in a backward pass twice).
struct Cost {
  double flops = 0, bytes = 0;
};
Cost cost_of(const Problem& problem, int64_t element_bytes);

// What this machine can do in a second, measured now.
struct Ceilings {
  double flops = 0, bytes = 0;
};
Ceilings measure_ceilings(const Place& compute);

// One repetition can be run again and again; making it does all that is done once. On CUDA a time is that of the device
// between two events, for as many runs as take about a millisecond.
class Workload {
 public:
  // Errors: the specification (UsageError); What::cluster of a variant that has no clusters.
  Workload(const Problem& problem, const Place& compute, uint64_t seed);
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // Runs once. Returns the seconds of the host, which on CUDA only queues the work.
  double run_once();
  // The seconds that one run takes.
  double operator()();
  // Bytes held at the most while it runs, with its operands and parameters; of the last run_once().
  int64_t peak_bytes() const { return peak_; }
  // Where the time of one run goes: seconds of each operation, "backward: " before those of gradients.
  std::map<std::string, double> stages();

 private:
  void cluster_alone(const Problem& p, const Attention& attention, const std::vector<Variable>& qkv);
  void run();
  void clear_gradients();

  Device device_;
  Generator generator_;
  std::function<Variable()> forward_;  // what it returns is undefined where nothing is differentiated
  std::vector<Variable> leaves_;       // parameters and operands
  Tensor gradient_;                    // of the result; undefined: forward alone
  int64_t peak_ = 0, runs_ = 0;        // runs: of one measurement on CUDA, 0 before the first
};

// A problem that was measured.
struct Measurement {
  Problem problem;
  std::vector<double> seconds{};  // of each repetition
  int64_t peak_bytes = 0;
  std::map<std::string, double> stages{};  // if they were asked for

  double median() const;
  double spread() const;  // half the distance of the quartiles
  double seconds_per_element() const { return median() / double(problem.tokens()); }
  double bytes_per_element() const { return double(peak_bytes) / double(problem.tokens()); }
  // "attention", "length", "batch", "median_seconds", "spread", "repetitions", "peak_bytes" and both an element.
  nlohmann::ordered_json json() const;
};

struct Repetitions {
  int64_t maximum = 20;
  double seconds = 20;  // of each problem; after these, and three repetitions, no more are begun
};

// Measures several problems. On the CPU in turn, one repetition of each, so that what else the machine does hits all
// alike; on CUDA one after another, because one alone may fill the device's memory. An interrupt ends it between
// repetitions.
std::vector<Measurement> measure(const std::vector<Problem>& problems, const Place& compute, uint64_t seed,
                                 const Repetitions& repetitions, bool stages = false);

}  // namespace cairn::attention_bench
