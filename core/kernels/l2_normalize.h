#pragma once
// Rows of unit length: the keys of lsh attention.
#include "core/dispatch.h"
#include "core/kernels/matrix.h"

namespace cairn {

CAIRN_KERNELS(
    // y_r = x_r / |x_r|, zeros for a row of zeros. Lengths are taken relative to the row's largest element, so that
    // squares neither overflow nor vanish.
    template <class T> void l2_normalize(Stream, Rows, const T* x, T* y);
    // dx_r = (dy_r - y_r (y_r . dy_r)) / |x_r|, zeros for a row of zeros.
    template <class T> void l2_normalize_backward(Stream, Rows, const T* x, const T* dy, T* dx);)

}  // namespace cairn
