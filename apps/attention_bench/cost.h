#pragma once
// What has to be computed and moved, whoever does it: the numbers that a time is compared with.
#include <cstdint>
#include <string>

namespace cairn::attention_bench {

enum class What { attention, layer, cluster };
constexpr const char* name_of(What what) {
  return what == What::attention ? "attention" : what == What::layer ? "layer" : "cluster";
}

struct Problem {
  std::string attention = "i-clustered-100";
  int64_t length = 4096, batch = 1;
  What what = What::layer;
  bool backward = true;  // forward and backward, or forward alone
  int64_t heads = 6, head_size = 64, feed_forward = 1536;

  int64_t features() const { return heads * head_size; }
  int64_t tokens() const { return batch * length; }
};

// Floating-point operations, of which a multiply-add is two, and the bytes of operands and results, each moved once (in
// a backward pass twice).
struct Cost {
  double flops = 0, bytes = 0;
};
Cost cost_of(const Problem& problem, int64_t element_bytes);

}  // namespace cairn::attention_bench
