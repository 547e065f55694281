#pragma once
// Loops over the elements of tensors with strides.
#include <algorithm>
#include <cstdint>

#include "core/parallel.h"
#include "core/shape.h"

namespace cairn::cpu {

inline constexpr int64_t elements_a_task = 1 << 14;

// How far tensor t moves along the innermost axis.
inline int64_t inner_step(const Strides& s, int t) { return s.rank ? s.steps[t][s.rank - 1] : 0; }

// Calls f(first, at, n) for n elements that follow each other along the innermost axis. They are elements first,
// first + 1, ... of the loop. The first one is element at[t] of tensor t. Threads share the calls.
template <class F>
void each_inner_loop(const Strides& s, F&& f) {
  const int inner_axis = s.rank - 1;
  const int64_t inner = s.rank ? s.sizes[inner_axis] : 1;
  int64_t outer = 1;
  for (int axis = 0; axis < inner_axis; ++axis) outer *= s.sizes[axis];
  if (inner == 0 || outer == 0) return;
  if (outer == 1) {
    parallel_for(inner, elements_a_task, [&](int64_t begin, int64_t end) {
      Strides::Steps at;
      for (int t = 0; t < Strides::max_tensors; ++t) at[size_t(t)] = begin * inner_step(s, t);
      f(begin, at, end - begin);
    });
    return;
  }
  parallel_for(outer, std::max<int64_t>(1, elements_a_task / inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row;
      Strides::Steps at{};
      for (int axis = inner_axis; axis-- > 0; rest /= s.sizes[axis])
        for (int t = 0; t < Strides::max_tensors; ++t) at[size_t(t)] += rest % s.sizes[axis] * s.steps[t][axis];
      f(row * inner, at, inner);
    }
  });
}

}  // namespace cairn::cpu
