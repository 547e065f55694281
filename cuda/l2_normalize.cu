// Rows of unit length and their gradient:
//
//   y_r = x_r / |x_r|,   dx_r = (dy_r - y_r (y_r . dy_r)) / |x_r|,   both zero for a row of zeros
//
// |x| is maximum * norm, with the maximum of |x_rc|, so that squares neither overflow nor vanish. x, y, dy, dx [rows,
// cols], float32 or bfloat16; arithmetic is in float32.
//
// Launch. A warp a row, four rows a block; a lane has elements lane, lane + 32, ... It reads a row three times, which
// for rows of the size of a head is from the cache.
// Traffic: 2 e R cols bytes forward and 3 e R cols backward, the floor. Bound by memory.
#include "core/kernels/l2_normalize.h"

#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

// f(c) for this lane's columns.
template <class F>
__device__ void each_column(int64_t cols, F f) {
  for (int64_t c = threadIdx.x % 32; c < cols; c += 32) f(c);
}

template <class T>
struct UnitRow {
  const T* x;
  float maximum = 0, norm = 0;

  __device__ UnitRow(const T* row, int64_t cols) : x(row) {
    each_column(cols, [&](int64_t c) { maximum = fmaxf(maximum, fabsf(float(x[c]))); });
    maximum = warp_reduce(maximum, Max{});
    if (maximum == 0) maximum = 1;
    each_column(cols, [&](int64_t c) { norm += float(x[c]) / maximum * (float(x[c]) / maximum); });
    norm = sqrtf(warp_reduce(norm, Sum{}));
  }
  __device__ float operator[](int64_t c) const { return norm == 0 ? 0.0f : float(x[c]) / maximum / norm; }
};

template <class T>
__global__ void __launch_bounds__(32 * rows_per_block) make_unit(Rows size, const T* x, T* y) {
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const UnitRow<T> unit(x + row * size.cols, size.cols);
    each_column(size.cols, [&](int64_t c) { y[row * size.cols + c] = T(unit[c]); });
  }
}

template <class T>
__global__ void __launch_bounds__(32 * rows_per_block) unit_gradient(Rows size, const T* x, const T* dy, T* dx) {
  for (int64_t row = first_row(); row < size.rows; row += row_step()) {
    const UnitRow<T> unit(x + row * size.cols, size.cols);
    const T* const g = dy + row * size.cols;
    float along = 0;
    each_column(size.cols, [&](int64_t c) { along += unit[c] * float(g[c]); });
    along = warp_reduce(along, Sum{});
    each_column(size.cols, [&](int64_t c) {
      const float across = float(g[c]) - unit[c] * along;
      dx[row * size.cols + c] = T(unit.norm == 0 ? 0.0f : across / unit.norm / unit.maximum);
    });
  }
}

Launch a_warp_a_row(Stream stream, Rows size) {
  return {blocks(ceil_div(size.rows, rows_per_block)), 32 * rows_per_block, 0, stream};
}

}  // namespace

template <class T>
void l2_normalize(Stream stream, Rows size, const T* x, T* y) {
  if (size.rows * size.cols > 0) launch(make_unit<T>, a_warp_a_row(stream, size), size, x, y);
}

template <class T>
void l2_normalize_backward(Stream stream, Rows size, const T* x, const T* dy, T* dx) {
  if (size.rows * size.cols > 0) launch(unit_gradient<T>, a_warp_a_row(stream, size), size, x, dy, dx);
}

CAIRN_GPU_TYPES(l2_normalize)
CAIRN_GPU_TYPES(l2_normalize_backward)

}  // namespace cairn::gpu
