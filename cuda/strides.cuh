#pragma once
// Elements of tensors that move by strides, one for each thread.
#include <cstdint>

#include "core/shape.h"
#include "cuda/launch.h"

namespace cairn::gpu {

inline int64_t elements(const Strides& strides) {
  int64_t n = 1;
  for (int axis = 0; axis < strides.rank; ++axis) n *= strides.sizes[axis];
  return n;
}

// at[t]: where element i of the loop stands in tensor t. Index has 32 bits where the loop's elements fit, because
// division by 64 bits is slow.
template <class Index, int tensors>
__device__ void find(const Strides& strides, Index i, int64_t (&at)[tensors]) {
  for (int64_t& place : at) place = 0;
  for (int axis = strides.rank - 1; axis >= 0; --axis) {
    const Index size = Index(strides.sizes[axis]);
    const Index along = axis == 0 ? i : Index(i % size);
    for (int t = 0; t < tensors; ++t) at[t] += int64_t(along) * strides.steps[t][axis];
    if (axis > 0) i /= size;
  }
}

}  // namespace cairn::gpu
