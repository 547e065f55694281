#pragma once
// The bias of a linear layer and the activation after it, in one pass over the product.
#include "core/dispatch.h"
#include "core/functions.h"
#include "core/kernels/matrix.h"

namespace cairn {

CAIRN_KERNELS(
    // y = f(x + bias) for x [rows, cols] and bias [cols].
    template <class T> void bias_activation_forward(Stream, Activation, Rows, const T* x, const T* bias, T* y);
    // dx = f'(x + bias) dy. The gradient of bias is its sum over rows.
    template <class T>
    void bias_activation_backward(Stream, Activation, Rows, const T* x, const T* bias, const T* dy, T* dx);)

}  // namespace cairn
