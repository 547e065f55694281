#pragma once
// One matrix product on the calling thread, for CPU kernels that share out their own tasks.
#include "core/kernels/gemm.h"

namespace cairn::cpu {

// cairn::Gemm with a batch of one. The same arguments give the same bits, whatever other threads do.
template <class T>
void gemm_tile(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const T* a,
               int64_t lda, const T* b, int64_t ldb, double beta, T* c, int64_t ldc);

}  // namespace cairn::cpu
