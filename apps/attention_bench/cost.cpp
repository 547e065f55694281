#include "apps/attention_bench/cost.h"

#include "nn/attention/attention.h"

namespace cairn::attention_bench {

Cost cost_of(const Problem& p, int64_t element_bytes) {
  const double tokens = double(p.tokens()), d = double(p.features()), bytes = double(element_bytes);
  if (p.what == What::cluster)  // codes in, labels out; distances are no floating-point operations
    return {0, tokens * double(p.heads) * (8 + 4)};
  Cost cost;
  const double passes = p.backward ? 3 : 1;  // a product backward is two
  cost.flops = tokens * double(p.heads) *
               make_attention(p.attention)->flops({double(p.length), double(p.head_size), p.backward});
  cost.bytes = tokens * d * bytes * (p.backward ? 12 : 4);  // q, k, v, out; and again with their gradients
  if (p.what == What::attention) return cost;
  const double weights = 4 * d * d + 2 * d * double(p.feed_forward);
  cost.flops += tokens * 2 * weights * passes;
  // Each product reads a factor and writes its result: x, q, k, v, the attention's output, two sums and norms, the
  // hidden layer.
  cost.bytes += (tokens * (10 * d + 2 * double(p.feed_forward)) + weights) * bytes * passes;
  return cost;
}

}  // namespace cairn::attention_bench
