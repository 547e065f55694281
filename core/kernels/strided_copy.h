#pragma once
// Copies elements in another order, or repeats them: permute, slice, concat and broadcast.
#include "core/dispatch.h"
#include "core/shape.h"

namespace cairn {

CAIRN_KERNELS(
    // Copies x, with the first strides, to y, with the second ones. T is an unsigned integer of the elements' size.
    template <class T> void strided_copy(Stream, const Strides&, const T* x, T* y);)

}  // namespace cairn
