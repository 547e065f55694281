#pragma once
// Elements put in another order, or repeated: permuting, cutting and joining tensors, and broadcasting.
#include "core/dispatch.h"
#include "core/shape.h"

namespace cairn {

CAIRN_KERNELS(
    // Each element of x, where it moves by the first strides, to y, by the second ones. T is an unsigned integer of the
    // elements' size.
    template <class T> void strided_copy(Stream, const Strides&, const T* x, T* y);)

}  // namespace cairn
