#pragma once
// Matrix products.
#include <cstdint>
#include <optional>

#include "core/dispatch.h"
#include "core/functions.h"

namespace cairn {

// C = f(alpha op(A) op(B) + beta C + bias) for every member of a batch. op(A) is [m, k], op(B) [k, n], C [m, n],
// row-major; rows are lda, ldb, ldc apart. bias [n] is added to each row; without one, it is null. A transposed operand
// is stored as [k, m] or [n, k]. Batch members are stride_* apart; with 0 they share an operand.
// f is `activation`, if it is set; C must then be a single matrix without gaps: batch 1, ldc = n.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t lda = 0, ldb = 0, ldc = 0;
  double alpha = 1, beta = 0;
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  std::optional<Unary> activation = {};
};

CAIRN_KERNELS(
    // With beta = 0, C is not read. k = 0 gives beta C + bias.
    template <class T> void gemm(Stream, const Gemm&, const T* a, const T* b, const T* bias, T* c);)

}  // namespace cairn
