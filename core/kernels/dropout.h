#pragma once
// Dropout of single elements (Srivastava et al. 2014), scaled so that the expectation stays the same.
#include "core/dispatch.h"
#include "core/philox.h"

namespace cairn {

CAIRN_KERNELS(
    // y_i = x_i / (1 - p) or 0, plus residual_i (null: no residual). With j = i + Draw::first, word j mod 4 of the draw
    // at coordinate j div 4 decides element i. The gradient is the same function of dy. y may be x or the residual.
    template <class T> void dropout(Stream, int64_t n, Dropout, const T* x, const T* residual, T* y);)

}  // namespace cairn
