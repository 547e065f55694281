#pragma once
// Layer normalization over the last axis (Ba, Kiros, Hinton 2016).
#include "core/dispatch.h"
#include "core/kernels/matrix.h"

namespace cairn {

CAIRN_KERNELS(
    // y = (x - mean) / sqrt(variance + epsilon) * weight + bias; the variance is the mean of squares (divided by cols).
    // mean and rstd [rows] are kept for the gradient.
    template <class T> void layer_norm_forward(Stream, Rows, double epsilon, const T* x, const T* weight, const T* bias,
                                               T* y, Accum<T>* mean, Accum<T>* rstd);
    // Gradients of x [rows, cols], weight [cols] and bias [cols].
    template <class T> void layer_norm_backward(Stream, Rows, const T* x, const T* weight, const Accum<T>* mean,
                                                const Accum<T>* rstd, const T* dy, T* dx, T* dweight, T* dbias);)

}  // namespace cairn
