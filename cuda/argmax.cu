// columns [rows]: the column of the largest number of each row of x [rows, cols], float32 or bfloat16. Of equal numbers
// the first column counts; a NaN is larger than any number.
//
// Launch. A warp takes a row, four rows a block; a lane takes elements lane, lane + 32, ... Then the lanes compare
// their largest elements.
// Traffic: e rows cols + 4 rows bytes, the floor. Bound by memory.
#include "core/kernels/argmax.h"

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

// The largest of some numbers, seen in any order.
struct RowMaximum {
  float value = 0;
  int32_t column = INT32_MAX;  // nothing seen

  __device__ void see(float x, int32_t at) {
    const bool x_nan = x != x, value_nan = value != value;
    const bool larger = x_nan != value_nan ? x_nan : x > value, equal = x_nan ? value_nan : x == value;
    if (column == INT32_MAX || larger || (equal && at < column)) value = x, column = at;
  }
};

template <class T>
__global__ void __launch_bounds__(row_threads<32>) find_largest(Rows size, const T* x, int32_t* columns) {
  each_row<32>(size.rows, [&](int64_t row) {
    RowMaximum best;
    for (int64_t c = row_lane<32>(); c < size.cols; c += 32) best.see(float(x[row * size.cols + c]), int32_t(c));
    for (int distance = 16; distance > 0; distance /= 2) {
      const float value = __shfl_xor_sync(full_warp, best.value, distance);
      const int32_t column = __shfl_xor_sync(full_warp, best.column, distance);
      if (column != INT32_MAX) best.see(value, column);
    }
    if (row_lane<32>() == 0) columns[row] = best.column;
  });
}

}  // namespace

template <class T>
void argmax(Stream stream, Rows size, const T* x, int32_t* columns) {
  if (size.rows == 0) return;
  launch(find_largest<T>, over_rows<32>(stream, size.rows), size, x, columns);
}

CAIRN_GPU_TYPES(argmax)

}  // namespace cairn::gpu
