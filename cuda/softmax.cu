// Softmax over rows, and its gradient.
//
//   y_rc = exp(x_rc - max_r) / sum_c exp(x_rc - max_r),   dx_rc = y_rc (dy_rc - sum_c y_rc dy_rc)
//
// A row of minus infinities gives zeros: its exponentials and their sum are 0. No other row has a sum of 0. NaN and
// plus infinity reach the sum, and with it the whole row. x, y, dy, dx: [rows, cols], float32 or bfloat16; all
// arithmetic is in float32.
//
// Launch (launch_rows in cuda/common.cuh). A warp takes a row of up to 1024 elements, four rows a block. A block of 256
// threads takes a longer row. A thread takes every 32nd or 256th chunk of 8 elements, and goes over them twice. A warp
// keeps x, and dy, in registers. Rows that do not start at multiples of 16 bytes are read in the same order, element by
// element.
// Traffic of n = rows * cols elements of e bytes: 2 e n forward and 3 e n backward, the floor. A second reading does
// not count: it comes from the L1 or the L2 cache. Bound by memory.
#include "core/kernels/softmax.h"

#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

template <class T, int threads, bool packs>
__global__ void __launch_bounds__(threads_a_block<threads>) softmax(Rows size, const T* x, T* y) {
  each_row<threads>(size.rows, [&](int64_t row) {
    const int64_t start = row * size.cols;
    RowChunks<T, threads, packs> own(x + start, size.cols, -INFINITY);
    SumOfExponentials sum;
    own.each([&](const Chunk& chunk, int64_t) { sum.add(chunk); });
    sum.join<threads>();
    own.each([&](Chunk& chunk, int64_t c) {
      for (float& value : chunk.element) value = sum.weight_of(value);
      store_chunk<packs>(chunk, y + start, size.cols, c);
    });
  });
}

template <class T, int threads, bool packs>
__global__ void __launch_bounds__(threads_a_block<threads>)
    softmax_gradient(Rows size, const T* y, const T* dy, T* dx) {
  each_row<threads>(size.rows, [&](int64_t row) {
    const int64_t start = row * size.cols;
    RowChunks<T, threads, packs> own(dy + start, size.cols);
    float sum = 0;
    own.each([&](const Chunk& g, int64_t c) {
      const Chunk weight = load_chunk<packs>(y + start, size.cols, c);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k) sum = fmaf(weight.element[k], g.element[k], sum);
    });
    sum = row_reduce<threads>(sum, 0.0f, Sum{});
    own.each([&](Chunk& g, int64_t c) {
      const Chunk weight = load_chunk<packs>(y + start, size.cols, c);
#pragma unroll
      for (int k = 0; k < chunk_size; ++k) g.element[k] = weight.element[k] * (g.element[k] - sum);
      store_chunk<packs>(g, dx + start, size.cols, c);
    });
  });
}

}  // namespace

template <class T>
void softmax_forward(Stream stream, Rows size, const T* x, T* y) {
  if (size.rows == 0 || size.cols == 0) return;
  launch_rows(stream, size, rows_hold_packs(size.cols, x, y), [&]<int threads, bool packs>(const Launch& shape) {
    launch(softmax<T, threads, packs>, shape, size, x, y);
  });
}

template <class T>
void softmax_backward(Stream stream, Rows size, const T* y, const T* dy, T* dx) {
  if (size.rows == 0 || size.cols == 0) return;
  launch_rows(stream, size, rows_hold_packs(size.cols, y, dy, dx), [&]<int threads, bool packs>(const Launch& shape) {
    launch(softmax_gradient<T, threads, packs>, shape, size, y, dy, dx);
  });
}

CAIRN_GPU_TYPES(softmax_forward)
CAIRN_GPU_TYPES(softmax_backward)

}  // namespace cairn::gpu
