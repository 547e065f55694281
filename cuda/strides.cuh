#pragma once
// Finds the elements of a result in operands that have strides of their own.
#include <cstdint>

#include "core/shape.h"
#include "cuda/launch.h"

namespace cairn::gpu {

inline int64_t elements(const Strides& strides) {
  int64_t n = 1;
  for (int axis = 0; axis < strides.rank; ++axis) n *= strides.sizes[axis];
  return n;
}

// Finds element i of n in each operand. That takes a division by the size of each axis: 18 instructions in 32 bits, up
// to 75 in 64 bits, more time than memory needs for a few bytes. So 64 bits are for n from 2^31 on only.
struct StridedLoop {
  Strides strides;
  int64_t n = elements(strides);

  // at[t] becomes the index of element i in tensor t.
  template <int tensors>
  __device__ void find(int64_t i, int64_t (&at)[tensors]) const {
    if (n <= 0x7fffffff)
      find_with(uint32_t(i), at);
    else
      find_with(i, at);
  }

 private:
  template <class Index, int tensors>
  __device__ void find_with(Index i, int64_t (&at)[tensors]) const {
    for (int64_t& place : at) place = 0;
    for (int axis = strides.rank - 1; axis >= 0; --axis) {
      const Index size = Index(strides.sizes[axis]), along = i % size;
      for (int t = 0; t < tensors; ++t) at[t] += int64_t(along) * strides.steps[t][axis];
      i /= size;
    }
  }
};

}  // namespace cairn::gpu
