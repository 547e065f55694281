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
    // planes [bits, D + 1]: p_j normal, and in the last column the threshold t_j, normal with `bias`, else 0. Number
    // (j, d) of the draw stands at [j, d], so the planes do not depend on the number of bits.
    void random_planes(Stream, int bits, int64_t D, bool bias, Draw, float* planes);
    // Bit j of codes [B, H, N] is 1 where q . p_j > t_j. The product is one chain of fused multiply-adds over
    // d = 0 .. D-1 in float32 on every device: the same q give the same codes everywhere. A NaN gives 0 bits.
    template <class T> void hash_codes(Stream, HashSize, HeadView<const T> q, const float* planes, uint64_t* codes);)

}  // namespace cairn
