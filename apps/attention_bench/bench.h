#pragma once
// Measures one call of an attention variant, of a transformer layer with it, of its clustering alone, or of one of a
// layer's matrix products; and the speed of this machine, to compare with.
#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/settings.h"

namespace cairn::attention_bench {

// product: x W^T + b for the tokens x and a weight [feed_forward, features]; gradient: the gradient of that weight.
enum class What { attention, layer, cluster, product, gradient };

struct Problem {
  std::string attention;
  int64_t length = 1, batch = 1;
  What what = What::layer;
  bool backward = true;  // false: forward alone
  int64_t heads = 6, head_size = 64, feed_forward = 1536;
  DeviceAndDType compute;
  uint64_t seed = 1;

  int64_t features() const { return heads * head_size; }
  int64_t tokens() const { return batch * length; }
  bool is_product() const { return what == What::product || what == What::gradient; }
};

// The least work of any implementation: floating-point operations (a multiply-add is two), and the bytes of operands
// and results, each moved once in the forward pass and twice in the backward pass.
struct Cost {
  double flops = 0, bytes = 0;
};
Cost cost_of(const Problem& problem);

// FLOPs and bytes per second of this machine, measured now.
struct Ceilings {
  double flops = 0, bytes = 0;
};
Ceilings measure_ceilings(const DeviceAndDType& compute);

struct Repetitions {
  int64_t maximum = 20;
  double seconds = 20;  // for each problem: after this time and three repetitions, starts no more
};

// Measures several problems. On the CPU it takes turns, one repetition of each, so that other load on the machine
// affects all alike. On CUDA it measures one after another, because one alone may fill the device's memory. Returns an
// object for each: "attention", "length", "batch", "median_seconds", "spread" (half the interquartile range, in
// seconds), "repetitions", "seconds_per_element" (per token), "peak_bytes", "bytes_per_element"; with `stages` also
// "stages", the seconds of each operation, where gradients begin with "backward: ". After an interrupt, objects are
// missing. Errors (UsageError): an invalid specification; What::cluster for a variant without clusters.
std::vector<Json> measure(const std::vector<Problem>& problems, const Repetitions& repetitions, bool stages = false);

// Peak memory of one repetition in bytes, with operands and parameters. Errors: as measure().
int64_t peak_bytes(const Problem& problem);

}  // namespace cairn::attention_bench
