#pragma once
// Dropout of single elements (Srivastava et al. 2014), scaled so that the expectation is kept.
#include "core/dispatch.h"
#include "core/philox.h"

namespace cairn {

CAIRN_KERNELS(
    // y_i = x_i / (1 - p) or 0; element i is decided by word j mod 4 of the draw (j div 4), j = i + Draw::first. The
    // gradient is the same function of the gradient. A residual (or null: none) is added to that. x may be y, and so
    // may the residual.
    template <class T> void dropout(Stream, int64_t n, Dropout, const T* x, const T* residual, T* y);)

}  // namespace cairn
