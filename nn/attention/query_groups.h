#pragma once
// Grouping the queries (the paper's section 3.2.2), for every clustered variant: sign hashes, then k-means in Hamming
// space.
#include "nn/attention/attention.h"

namespace cairn {

struct GroupingOptions {
  int64_t clusters = 100;
  int bits = 63;
  int iterations = 10;  // updates of the centroids
  bool bias = true;     // hyperplanes with a normal offset, as in the authors' code

  // From a specification: the number and the options bits, iterations, bias.
  static GroupingOptions read(SpecReader& spec);
};

// A partition of the queries [B, N, H, D], each (batch element, head) for itself; queries beyond their length join
// none. The planes are the same for all of one call and fresh at each (seed, step, layer). Carries no gradient.
Groups group_queries(const Tensor& q, const AttentionMask& mask, const GroupingOptions& options,
                     const AttentionContext& context);

}  // namespace cairn
