#pragma once
// Matrix products.
#include <cstdint>
#include <optional>

#include "core/dispatch.h"
#include "core/functions.h"

namespace cairn {

// C = f(op(A) op(B) + bias) for every member of a batch. op(A) is [m, k], op(B) [k, n], C [m, n]; a transposed operand
// is stored as [k, m] or [n, k]. Matrices are contiguous, and so are the batch's members; if A or B is shared, there is
// one for all of them. bias [n] is added to each row; without one, it is null. f is `activation`, if it is set.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1;
  bool share_a = false, share_b = false;
  std::optional<Unary> activation = {};

  // From a row of A or B to the next, and from a batch member to the next, in elements.
  int64_t row_a() const { return transpose_a ? m : k; }
  int64_t row_b() const { return transpose_b ? k : n; }
  int64_t stride_a() const { return share_a ? 0 : m * k; }
  int64_t stride_b() const { return share_b ? 0 : k * n; }
};

CAIRN_KERNELS(template <class T> void gemm(Stream, const Gemm&, const T* a, const T* b, const T* bias, T* c);
              // C = op(A) op(B), not rounded; without bias and activation.
              template <class T> void gemm_sums(Stream, const Gemm&, const T* a, const T* b, Accum<T>* c);)

}  // namespace cairn
