#pragma once
// What attention-bench measures: one call of a variant, of a transformer layer around it, or of its clustering.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/attention_bench/cost.h"
#include "apps/common/program.h"

namespace cairn::attention_bench {

// One repetition can be run again and again; making it does all that is done once.
class Workload {
 public:
  // Errors: the specification (UsageError); What::cluster of a variant that has no clusters.
  Workload(const Problem& problem, const Compute& compute, uint64_t seed);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const Problem& problem() const;
  // Runs once, and waits until it is done. Returns the seconds it took.
  double operator()();
  // Bytes held at the most while it runs, with its operands; the most of the last run.
  int64_t peak_bytes() const;
  // Where the time of one run goes: seconds of each kernel, "backward: " before those of gradients. On the CPU alone.
  std::map<std::string, double> stages();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Repetitions of several workloads, one of each in turn, so that what else the machine does hits all alike.
struct Repetitions {
  int64_t most = 20, least = 3;
  double seconds = 20;  // of each workload; after `least`, no more are begun
};
struct Timing {
  explicit Timing(std::vector<double> seconds);  // of each repetition

  double median = 0, spread = 0;  // seconds; half the distance of the quartiles
  int64_t repetitions = 0;
};
// The seconds of each repetition of each workload. An interrupt ends it between repetitions; what was measured until
// then counts.
std::vector<std::vector<double>> measure(const std::vector<Workload*>& workloads, const Repetitions& repetitions);

// What this machine can do, measured now: the floor of a cost is the larger of its two times.
struct Ceilings {
  double flops = 0, bytes = 0;  // a second
  double floor_seconds(const Cost& cost) const;
};
Ceilings measure_ceilings(const Compute& compute);

}  // namespace cairn::attention_bench
