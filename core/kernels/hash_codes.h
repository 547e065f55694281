#pragma once
// Locality-sensitive hashing by the signs of random projections (Charikar 2002; the paper's section 3.2.2, step 1).
#include "core/dispatch.h"
#include "core/kernels/head_view.h"

namespace cairn {

// `bits` in 1..64.
struct HashSize {
  int64_t B = 0, H = 0, N = 0, D = 0;
  int bits = 0;
};

CAIRN_KERNELS(
    // planes [bits, D + 1]: row j is p_j, then the threshold t_j. Bit j of codes [B, H, N] is 1 where q . p_j > t_j; a
    // NaN gives 0. On every device the product is one chain of fused multiply-adds over d = 0 .. D-1 in float32, so the
    // same q get the same codes everywhere.
    template <class T> void hash_codes(Stream, HashSize, HeadView<const T> q, const float* planes, uint64_t* codes);)

}  // namespace cairn
