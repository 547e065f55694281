#pragma once
// One matrix product on the calling thread, for CPU kernels that share out their own tasks.
#include "core/kernels/gemm.h"

namespace cairn::cpu {

// C = beta C + alpha op(A) op(B), where op(A) is [m, k], op(B) [k, n] and C [m, n]. lda, ldb and ldc are the distances
// of the stored rows. With beta = 0, C is not read. The same arguments give the same bits, whatever other threads do.
// `packed` is null, or what pack_tile made of B, with the same n, k and ldb: then B is not read.
template <class T>
void gemm_tile(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const T* a,
               int64_t lda, const T* b, int64_t ldb, double beta, T* c, int64_t ldc, const T* packed = nullptr);

// Packs B for several products, into packed_size(n, k) numbers.
inline int64_t packed_size(int64_t n, int64_t k) { return (n + 31) / 32 * 32 * k; }
template <class T>
void pack_tile(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb, T* packed);

}  // namespace cairn::cpu
