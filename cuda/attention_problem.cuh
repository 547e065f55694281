#pragma once
// The arguments of the attention kernels, and the arithmetic of one score.
#include "cuda/attention_tiles.cuh"

namespace cairn::gpu {

// Limit of N, S and k: positions up to the end of the last tile, and numbers of top keys, are ints.
inline constexpr int64_t max_count = int64_t{1} << 30;

template <class T>
struct AttentionProblem : AttentionOperands<T> {
  using AttentionOperands<T>::size;
  float scale;  // of the scores

  // Error: so many queries or keys that ints cannot count them.
  AttentionProblem(const char* operation, const AttentionOperands<T>& in)
      : AttentionOperands<T>(in), scale(float(size.scale)) {
    check(size.N < max_count && size.S < max_count, operation,
          " on CUDA: expected fewer than 2^30 queries and keys, got ", size.N, " and ", size.S);
  }

  __device__ float scale_2() const { return scale * log2_e; }
  __device__ int N() const { return int(size.N); }
  __device__ int S() const { return int(size.S); }
  __device__ int D() const { return int(size.D); }
  __device__ int M() const { return int(size.M); }

  // Rows [row, end) of x in a batch_head, from column `column` on.
  __device__ RowBlock<T> rows(const HeadView<const T>& x, const BatchHead& batch_head, int row, int end, int columns,
                              int column = 0) const {
    return {batch_head.row(x, row) + column, x.row_stride, end - row, columns - column};
  }
};

// The top keys of full attention, which has none. TopKeys in cuda/centroid_topk.cuh has the same interface.
struct NoTop {
  using State = QueryState;
  static constexpr bool some = false, add = false;
  __device__ uint64_t bits_from(const AttentionSize&, const BatchHead&, int, int) const { return 0; }
};

// Row number `row` of x [B, N, H, any]; rows are numbered in the order [B, H, N].
template <class T>
__device__ T* numbered_row(const AttentionSize& size, const HeadView<T>& x, int64_t row) {
  const int64_t batch_head = row / size.N;
  return x.at(batch_head / size.H, row % size.N, batch_head % size.H);
}

// The dot product of row number `row` of x and of y. A warp computes it.
template <class T>
__device__ float product_of_rows(const AttentionSize& size, int64_t row, const HeadView<const T>& x,
                                 const HeadView<const T>& y, int64_t columns) {
  const T *const of_x = numbered_row(size, x, row), *const of_y = numbered_row(size, y, row);
  float sum = 0;
  for (int64_t c = threadIdx.x % 32; c < columns; c += 32) sum += float(of_x[c]) * float(of_y[c]);
  return warp_reduce(sum, Sum{});
}

// Computes the QueryState of each query from its output. A warp takes a query.
template <class T>
__global__ void __launch_bounds__(threads_a_block<32>)
    output_states(AttentionSize size, HeadView<const T> out, HeadView<const T> dout, const float* logsumexp,
                  QueryState* states) {
  each_row<32>(size.B * size.H * size.N, [&](int64_t row) {
    const float delta = product_of_rows(size, row, out, dout, size.M);
    if (row_thread<32>() == 0) states[row] = {finite_shift(logsumexp[row]) * log2_e, delta};
  });
}

// [grad. 1] [grad. 4] Turns s = q . k and g = dout . v of a query and a key into z A and dS / scale. For a top key dA
// is given, and s becomes 0: [grad. 17] only the other keys contribute to dV.
template <class State>
__device__ void score_gradient(float& s, float& g, float scale_2, const State& query, bool visible, bool in_top,
                               float z) {
  const float weight = visible ? exp2_approx(s * scale_2 - query.lse2) : 0.0f;
  g = visible ? weight * (query.weight_gradient(z * g, in_top) - query.delta) : 0.0f;
  s = in_top ? 0.0f : z * weight;
}

}  // namespace cairn::gpu
