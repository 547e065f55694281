#pragma once
// Reductions over one axis of [outer, n, inner], giving [outer, inner].
#include <cstdint>

#include "core/dispatch.h"

namespace cairn {

enum class Reduce { sum, max };

struct Reduction {
  int64_t outer = 1, n = 1, inner = 1;
};

CAIRN_KERNELS(
    // y[o, i] = sum or maximum over j of x[o, j, i]. n = 0 gives 0 or minus infinity. A maximum with a NaN is NaN.
    template <class T> void reduce(Stream, Reduce, Reduction, const T* x, T* y);)

}  // namespace cairn
