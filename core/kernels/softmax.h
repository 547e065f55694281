#pragma once
// Softmax over the last axis.
#include "core/dispatch.h"
#include "core/kernels/rows.h"

namespace cairn {

CAIRN_KERNELS(
    // y_rc = exp(x_rc - max_r) / sum_c exp(x_rc - max_r). A row of minus infinities (all masked) gives zeros, not NaN.
    // A row with a NaN or plus infinity gives NaN where the formula does. x may be y.
    template <class T> void softmax_forward(Stream, Rows, const T* x, T* y);
    // dx_rc = y_rc (dy_rc - sum_c y_rc dy_rc). dy may be dx.
    template <class T> void softmax_backward(Stream, Rows, const T* y, const T* dy, T* dx);)

}  // namespace cairn
