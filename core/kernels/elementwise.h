#pragma once
// Functions of single elements, with broadcasting. The formulas are in core/functions.h.
#include <cstdint>

#include "core/dispatch.h"
#include "core/functions.h"
#include "core/shape.h"

namespace cairn {

CAIRN_KERNELS(
    // y = f(x), n elements.
    template <class T> void unary(Stream, Unary, int64_t n, const T* x, T* y);
    // dx = f'(x) dy.
    template <class T> void unary_backward(Stream, Unary, int64_t n, const T* x, const T* dy, T* dx);
    // y = f(a, b). a and b have strides, y is contiguous.
    template <class T> void binary(Stream, Binary, const Strides&, const T* a, const T* b, T* y);
    // dx = df / da dy (operand 0) or df / db dy (operand 1). dy, a and b have strides.
    template <class T>
    void binary_backward(Stream, Binary, int operand, const Strides&, const T* dy, const T* a, const T* b, T* dx);
    template <class T> void compare(Stream, Compare, const Strides&, const T* a, const T* b, bool* y);
    // y = condition ? a : b.
    template <class T> void where(Stream, const Strides&, const bool* condition, const T* a, const T* b, T* y);
    // y = alpha x + beta.
    template <class T> void affine(Stream, int64_t n, double alpha, double beta, const T* x, T* y);
    // y += alpha x.
    template <class T> void accumulate(Stream, int64_t n, double alpha, const T* x, T* y);
    // y = value, for any element type.
    template <class T> void fill(Stream, int64_t n, T value, T* y);
    template <class From, class To> void cast(Stream, int64_t n, const From* x, To* y);)

// The last lines of a device's definitions: fill and cast for all element types.
#define CAIRN_CAST_FROM(From)                                  \
  template void fill(Stream, int64_t, From, From*);            \
  template void cast(Stream, int64_t, const From*, float*);    \
  template void cast(Stream, int64_t, const From*, double*);   \
  template void cast(Stream, int64_t, const From*, bfloat16*); \
  template void cast(Stream, int64_t, const From*, int32_t*);  \
  template void cast(Stream, int64_t, const From*, int64_t*);  \
  template void cast(Stream, int64_t, const From*, uint64_t*); \
  template void cast(Stream, int64_t, const From*, uint8_t*);  \
  template void cast(Stream, int64_t, const From*, bool*);
#define CAIRN_ALL_CASTS     \
  CAIRN_CAST_FROM(float)    \
  CAIRN_CAST_FROM(double)   \
  CAIRN_CAST_FROM(bfloat16) \
  CAIRN_CAST_FROM(int32_t)  \
  CAIRN_CAST_FROM(int64_t)  \
  CAIRN_CAST_FROM(uint64_t) \
  CAIRN_CAST_FROM(uint8_t)  \
  CAIRN_CAST_FROM(bool)

}  // namespace cairn
