#pragma once
// Sums over one axis of [outer, n, inner], giving [outer, inner].
#include <cstdint>

#include "core/dispatch.h"

namespace cairn {

struct Reduction {
  int64_t outer = 1, n = 1, inner = 1;
};

CAIRN_KERNELS(
    // y[o, i] = sum over j of x[o, j, i].
    template <class T> void sum(Stream, Reduction, const T* x, T* y);)

}  // namespace cairn
