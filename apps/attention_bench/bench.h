#pragma once
// What attention-bench measures: one call of a variant, of a transformer layer around it, or of its clustering; and
// what its times are compared with.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/command.h"

namespace cairn::attention_bench {

enum class What { attention, layer, cluster };

struct Problem {
  std::string attention;
  int64_t length = 1, batch = 1;
  What what = What::layer;
  bool backward = true;  // forward and backward, or forward alone
  int64_t heads = 6, head_size = 64, feed_forward = 1536;
  Place place;
  uint64_t seed = 1;

  int64_t features() const { return heads * head_size; }
  int64_t tokens() const { return batch * length; }
};

// What has to be computed and moved, whoever does it: floating-point operations, of which a multiply-add is two, and
// the bytes of operands and results, each moved once (in a backward pass twice).
struct Cost {
  double flops = 0, bytes = 0;
};
Cost cost_of(const Problem& problem);

// What this machine can do in a second, measured now.
struct Ceilings {
  double flops = 0, bytes = 0;
};
Ceilings measure_ceilings(const Place& place);

struct Repetitions {
  int64_t maximum = 20;
  double seconds = 20;  // of each problem; after these, and three repetitions, no more are begun
};

// Measures several problems. On the CPU in turn, one repetition of each, so that what else the machine does hits all
// alike; on CUDA one after another, because one alone may fill the device's memory. An object for each: "attention",
// "length", "batch", "median_seconds", "spread" (half the distance of the quartiles), "repetitions", "peak_bytes", and
// both an element; with `stages` also "stages": seconds of each operation, "backward: " before those of gradients. An
// interrupt ends it between repetitions; then objects are missing.
// Errors: the specification (UsageError); What::cluster of a variant that has no clusters.
std::vector<nlohmann::ordered_json> measure(const std::vector<Problem>& problems, const Repetitions& repetitions,
                                            bool stages = false);

// Bytes held at the most in one repetition, with its operands and parameters. Errors: as measure().
int64_t peak_bytes(const Problem& problem);

}  // namespace cairn::attention_bench
