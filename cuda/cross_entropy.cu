// Cross entropy of softmax(logits) against one class a row, and its gradient.
//
//   loss = mean over the rows that count of logsumexp(x_r) - x_r[target_r]
//   dx_rc = (softmax(x_r)_c - [c = target_r]) dloss / count
//
// logits, dlogits [rows, cols] and loss in float32 or bfloat16, targets int32 [rows], logsumexp [rows] and all
// arithmetic in float32, the sum over rows in float64. A row counts if its target is one of its columns. The CPU's
// operation refuses targets beyond the last column; here they are ignored like negative ones.
//
// Launch. A warp takes a row of up to 1024 columns, four rows a block. A block of 256 threads takes a longer row. A
// thread takes 16 bytes at a time, or the same elements one by one where rows do not start at multiples of 16 bytes.
// One block then adds up the losses of all rows, in a fixed order.
// Traffic of n = rows * cols logits of e bytes: forward e n, backward 2 e n, the floor, and about 30 bytes a row. Bound
// by memory.
#include "core/kernels/cross_entropy.h"

#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int adding_threads = 1024;

__device__ bool counts(int32_t target, int64_t cols) { return target >= 0 && target < cols; }

template <class T>
__global__ void __launch_bounds__(adding_threads)
    add_losses(Rows size, const T* logits, const int32_t* targets, const float* logsumexp, T* loss, int32_t* count) {
  double sum = 0;
  int32_t counted = 0;
#pragma unroll 4
  for (int64_t row = threadIdx.x; row < size.rows; row += adding_threads) {
    if (!counts(targets[row], size.cols)) continue;
    sum += logsumexp[row] - float(logits[row * size.cols + targets[row]]);
    ++counted;
  }
  sum = block_reduce(sum, 0.0, Sum{});
  counted = block_reduce(counted, 0, Sum{});
  if (threadIdx.x == 0) {
    *count = counted;
    *loss = T(counted ? float(sum / counted) : 0.0f);
  }
}

template <class T, int threads, bool packs>
__global__ void __launch_bounds__(threads_a_block<threads>)
    gradient(Rows size, const T* logits, const int32_t* targets, const float* logsumexp, const int32_t* count,
             const T* dloss, T* dlogits) {
  const float g = *count ? float(*dloss) / float(*count) : 0.0f;
  each_row<threads>(size.rows, [&](int64_t row) {
    const int32_t target = targets[row];
    const bool counted = counts(target, size.cols);
    const float shift = logsumexp[row];
    const int64_t start = row * size.cols;
    each_chunk<threads>(size.cols, [&](int64_t c) {
      Chunk chunk = {};
      if (counted) {
        chunk = load_chunk<packs>(logits + start, size.cols, c);
        const int at = c == target / chunk_size ? target % chunk_size : -1;
#pragma unroll
        for (int k = 0; k < chunk_size; ++k)
          chunk.element[k] = fmaf(g, exponential(chunk.element[k] - shift), k == at ? -g : 0.0f);
      }
      store_chunk<packs>(chunk, dlogits + start, size.cols, c);
    });
  });
}

}  // namespace

template <class T>
void cross_entropy_forward(Stream stream, Rows size, const T* logits, const int32_t* targets, Accum<T>* logsumexp,
                           T* loss, int32_t* count) {
  logsumexp_of_rows(stream, size, logits, logsumexp);
  launch(add_losses<T>, {1, adding_threads, 0, stream}, size, logits, targets, logsumexp, loss, count);
}

template <class T>
void cross_entropy_backward(Stream stream, Rows size, const T* logits, const int32_t* targets,
                            const Accum<T>* logsumexp, const int32_t* count, const T* dloss, T* dlogits) {
  if (size.rows == 0 || size.cols == 0) return;
  const bool all_packs = rows_hold_packs(size.cols, logits, dlogits);
  launch_rows(stream, size, all_packs, [&]<int threads, bool packs>(const Launch& shape) {
    launch(gradient<T, threads, packs>, shape, size, logits, targets, logsumexp, count, dloss, dlogits);
  });
}

CAIRN_GPU_TYPES(cross_entropy_forward)
CAIRN_GPU_TYPES(cross_entropy_backward)

}  // namespace cairn::gpu
