#pragma once
// What attention-bench measures: one call of a variant, of a transformer layer around it, or of its clustering.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/attention_bench/cost.h"
#include "apps/common/command.h"
#include "nn/transformer.h"

namespace cairn::attention_bench {

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
  // Bytes held at the most while it runs, with its operands; of the last run_once().
  int64_t peak_bytes() const { return peak_; }
  // Where the time of one run goes: seconds of each operation, "backward: " before those of gradients.
  std::map<std::string, double> stages();

 private:
  Context context() const { return {true, &generator_}; }
  void run();
  Variable forward();
  void cluster();
  void clear_gradients();

  Problem problem_;
  Device device_;
  Generator generator_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<EncoderLayer> layer_;
  std::vector<Variable> operands_;  // q, k, v, or the layer's input
  std::vector<Variable> learned_;
  Tensor gradient_, codes_, labels_;
  int iterations_ = 0;
  int64_t clusters_ = 0, peak_ = 0, runs_ = 0;  // runs: of one measurement on CUDA, 0 before the first
};

struct Repetitions {
  int64_t maximum = 20, minimum = 3;
  double seconds = 20;  // of each problem; after `minimum`, no more are begun
};
struct Measurement {
  std::vector<double> seconds;  // of each repetition
  int64_t peak_bytes = 0;
  std::map<std::string, double> stages;  // if they were asked for
};
// Measures several problems. On the CPU in turn, one repetition of each, so that what else the machine does hits all
// alike; on CUDA one after another, because one alone may fill the device's memory. An interrupt ends it between
// repetitions; what was measured until then counts.
std::vector<Measurement> measure(const std::vector<Problem>& problems, const Place& compute, uint64_t seed,
                                 const Repetitions& repetitions, bool stages = false);

struct Timing {
  explicit Timing(std::vector<double> seconds);  // of each repetition

  double median = 0, spread = 0;  // seconds; half the distance of the quartiles
  int64_t repetitions = 0;
};
// What this machine can do, measured now: the floor of a cost is the larger of its two times.
struct Ceilings {
  double flops = 0, bytes = 0;  // a second
  double floor_seconds(const Cost& cost) const;
};
Ceilings measure_ceilings(const Place& compute);

}  // namespace cairn::attention_bench
