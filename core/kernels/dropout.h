#pragma once
// Dropout of single elements (Srivastava et al. 2014), scaled so that the expectation is kept.
#include "core/dispatch.h"
#include "core/random.h"

namespace cairn {

CAIRN_KERNELS(
    // y_i = x_i / (1 - p) or 0; element i is decided by word i mod 4 of the draw (i div 4). The gradient is the same
    // function of the gradient. x may be y.
    template <class T> void dropout(Stream, int64_t n, Dropout, const T* x, T* y);)

}  // namespace cairn
