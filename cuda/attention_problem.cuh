#pragma once
// What the kernels of cuda/attention.cu are given, and the arithmetic of one score.
#include "cuda/attention_tiles.cuh"

namespace cairn::gpu {

template <class T>
struct AttentionProblem {
  AttentionSize size;
  Heads<const T> q, k, v;
  Mask mask;
  Dropout dropout;
  float scale = 1;     // of the scores
  bool packs = false;  // can all rows be read and written four elements at a time?

  __device__ float scale_2() const { return scale * log2_e; }
  __device__ int N() const { return int(size.N); }
  __device__ int S() const { return int(size.S); }
  __device__ int D() const { return int(size.D); }
  __device__ int M() const { return int(size.M); }

  // Rows [row, end) of x in a plane, from column `column` on.
  __device__ RowBlock<T> rows(const Heads<const T>& x, const Plane& plane, int row, int end, int columns,
                              int column = 0) const {
    return {x.at(plane.batch, row, plane.head) + column, x.row_stride, end - row, columns - column, packs};
  }
};

// s = q . k and g = dout . v of a query and a key become z A and dS / scale.
inline __device__ void score_gradient(float& s, float& g, float scale_2, const QueryState& query, bool visible,
                                      float z) {
  const float weight = visible ? power_of_two(s * scale_2 - query.shift) : 0.0f;
  g = visible ? weight * (z * g - query.delta) : 0.0f;
  s = z * weight;
}

}  // namespace cairn::gpu
