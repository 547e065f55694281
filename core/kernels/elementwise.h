#pragma once
// Functions of single elements, with broadcasting. The arithmetic is in core/functors.h.
#include <cstdint>

#include "core/dispatch.h"
#include "core/functions.h"
#include "core/shape.h"

namespace cairn {

// The axes of a result and how far each operand moves along them, in elements (0 where it is broadcast).
struct Broadcast {
  int rank = 0;
  int64_t sizes[max_rank] = {}, stride_a[max_rank] = {}, stride_b[max_rank] = {};
};

CAIRN_KERNELS(
    // y = f(x), n elements.
    template <class T> void unary(Stream, Unary, int64_t n, const T* x, T* y);
    // dx = f'(x) dy.
    template <class T> void unary_backward(Stream, Unary, int64_t n, const T* x, const T* dy, T* dx);
    // y = f(a, b), y contiguous.
    template <class T> void binary(Stream, Binary, const Broadcast&, const T* a, const T* b, T* y);
    // y = x repeated along the axes where stride_a is 0.
    template <class T> void expand(Stream, const Broadcast&, const T* x, T* y);
    // y = alpha x + beta.
    template <class T> void affine(Stream, int64_t n, double alpha, double beta, const T* x, T* y);
    // y += alpha x.
    template <class T> void accumulate(Stream, int64_t n, double alpha, const T* x, T* y);
    // y = value, for any element type.
    template <class T> void fill(Stream, int64_t n, T value, T* y);
    template <class From, class To> void cast(Stream, int64_t n, const From* x, To* y);)

}  // namespace cairn
