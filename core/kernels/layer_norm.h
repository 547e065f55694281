#pragma once
// Layer normalization over the last axis (Ba, Kiros, Hinton 2016).
#include "core/dispatch.h"
#include "core/kernels/rows.h"

namespace cairn {

CAIRN_KERNELS(
    // y = (x - mean) / sqrt(variance + epsilon) * weight + bias; the variance divides by cols, not by cols - 1. mean
    // and rstd = 1 / sqrt(variance + epsilon), both [rows], are saved for backward.
    template <class T> void layer_norm_forward(Stream, Rows, double epsilon, const T* x, const T* weight, const T* bias,
                                               T* y, Accum<T>* mean, Accum<T>* rstd);
    // Gradients of x [rows, cols], weight [cols] and bias [cols].
    template <class T>
    void layer_norm_backward(Stream, Rows, const T* x, const T* weight, const Accum<T>* mean, const Accum<T>* rstd,
                             const T* dy, T* dx, Accum<T>* dweight, Accum<T>* dbias);)

}  // namespace cairn
