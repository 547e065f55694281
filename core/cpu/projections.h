#pragma once
// Products of rows with random vectors. Each product is one chain of fused multiply-adds over d = 0 .. D-1 in float32,
// as on every device.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/vector.h"

namespace cairn::cpu {

// 64 vectors, stored as the columns of [D, 64]: a step of all 64 chains then reads consecutive memory. Vectors that are
// not set are zeros.
class Projections {
 public:
  static constexpr int width = 64;

  explicit Projections(int64_t D) : D_(D), columns_(size_t(std::max<int64_t>(1, D) * width)) {}
  // Vector j, of D elements.
  void set(int j, const float* vector) {
    for (int64_t d = 0; d < D_; ++d) columns_[size_t(d * width + j)] = vector[d];
  }
  // Calls f(row, products [width]) for rows [begin, end); at(row) points to a row's elements. Products are computed in
  // tiles of 8 rows by 16 vectors: that many chains keep the processor's multiply-adds busy.
  template <class At, class F>
  void each(int64_t begin, int64_t end, At&& at, F&& f) const {
    float product[rows][width];
    for (int64_t first = begin; first < end; first += rows) {
      decltype(at(begin)) x[rows];
      for (int r = 0; r < rows; ++r) x[r] = at(std::min(first + r, end - 1));
      for (int r = 0; r < rows; ++r) fetch_row(at(std::min(first + rows + r, end - 1)), D_);
      for (int64_t column = 0; column < width; column += tile_columns)
        multiply_tile(x, columns_.data() + column, D_, product[0] + column);
      for (int r = 0; r < rows && first + r < end; ++r) f(first + r, product[r]);
    }
  }

 private:
  static constexpr int rows = 8, tile_columns = 16;

  // The products of one tile; their rows are `width` apart. Not inlined: alone in a function, all pointers stay in
  // registers.
  template <class X>
  [[gnu::noinline]] static void multiply_tile(const X* const (&x)[rows], const float* columns, int64_t D,
                                              float* products) {
    float sum[rows][tile_columns] = {};
    for (int64_t d = 0; d < D; ++d, columns += width) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const auto value = float(x[r][d]);
        for (int j = 0; j < tile_columns; ++j) sum[r][j] = std::fma(value, columns[j], sum[r][j]);
      }
    }
    for (int r = 0; r < rows; ++r) std::copy_n(sum[r], tile_columns, products + r * width);
  }

  int64_t D_;
  std::vector<float> columns_;
};

}  // namespace cairn::cpu
