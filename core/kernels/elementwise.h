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
    // y = f(a, b). a and b have strides, y is contiguous; it may be one of them if that is contiguous too.
    template <class T> void binary(Stream, Binary, const Strides&, const T* a, const T* b, T* y);
    // dx = df / da dy (operand 0) or df / db dy (operand 1). dy, a and b have strides.
    template <class T>
    void binary_backward(Stream, Binary, int operand, const Strides&, const T* dy, const T* a, const T* b, T* dx);
    template <class T> void compare(Stream, Compare, const Strides&, const T* a, const T* b, bool* y);
    // y = condition ? a : b.
    template <class T> void where(Stream, const Strides&, const bool* condition, const T* a, const T* b, T* y);
    // y = alpha x + beta.
    template <class T> void affine(Stream, int64_t n, double alpha, double beta, const T* x, T* y);
    // y_i = i.
    void arange(Stream, int64_t n, int32_t* y);
    // y = value, and y = x, converted from and to any element types.
    void fill(Stream, int64_t n, double value, DType, void* y);
    void cast(Stream, int64_t n, DType from, const void* x, DType to, void* y);)

}  // namespace cairn
