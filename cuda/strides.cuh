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

// at[t]: where element i of the loop stands in tensor t.
template <class Index, int tensors>
__device__ void find_with(const Strides& strides, Index i, int64_t (&at)[tensors]) {
  for (int64_t& place : at) place = 0;
  for (int axis = strides.rank - 1; axis >= 0; --axis) {
    const Index size = Index(strides.sizes[axis]);
    const Index along = axis == 0 ? i : Index(i % size);
    for (int t = 0; t < tensors; ++t) at[t] += int64_t(along) * strides.steps[t][axis];
    if (axis > 0) i /= size;
  }
}
// For element i of n. Division by 64 bits is slow, so 32 do where n has no more.
template <int tensors>
__device__ void find(const Strides& strides, int64_t n, int64_t i, int64_t (&at)[tensors]) {
  if (n <= 0x7fffffff)
    find_with(strides, uint32_t(i), at);
  else
    find_with(strides, i, at);
}

}  // namespace cairn::gpu
