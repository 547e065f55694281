#pragma once
// Finds the elements of a result in operands that have strides of their own.
#include <bit>
#include <cstdint>

#include "core/shape.h"
#include "cuda/launch.h"

namespace cairn::gpu {

inline int64_t elements(const Strides& strides) {
  int64_t n = 1;
  for (int axis = 0; axis < strides.rank; ++axis) n *= strides.sizes[axis];
  return n;
}

// Finds element i of n in each operand. That takes a division by the size of each axis. Divisions are slow: 18
// instructions in 32 bits, up to 75 in 64 bits, more time than memory needs for a few bytes. So for n below 2^31 it
// multiplies instead: the host computes factor = 2^shift / size, rounded up, and i / size is i factor / 2^shift,
// rounded down (Granlund and Montgomery 1994).
class StridedLoop {
 public:
  int64_t n;

  // There must be at least one element.
  explicit StridedLoop(const Strides& strides) : n(elements(strides)), strides_(strides) {
    for (int axis = 0; axis < strides.rank && n <= 0x7fffffff; ++axis) {
      const auto size = uint64_t(strides.sizes[axis]);
      shift_[axis] = 31 + std::bit_width(size - 1);
      factor_[axis] = uint32_t(((uint64_t{1} << shift_[axis]) + size - 1) / size);
    }
  }

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
    for (int axis = strides_.rank - 1; axis >= 0; --axis) {
      const Index outer = divide(i, axis), along = i - outer * Index(strides_.sizes[axis]);
      for (int t = 0; t < tensors; ++t) at[t] += int64_t(along) * strides_.steps[t][axis];
      i = outer;
    }
  }
  __device__ int64_t divide(int64_t i, int axis) const { return i / strides_.sizes[axis]; }
  __device__ uint32_t divide(uint32_t i, int axis) const {
    return uint32_t(uint64_t(i) * factor_[axis] >> shift_[axis]);
  }

  Strides strides_;
  uint32_t factor_[max_rank] = {};
  int shift_[max_rank] = {};
};

}  // namespace cairn::gpu
