#pragma once
// Random projections of a row, each one chain of fused multiply-adds over d = 0 .. D-1 in float32, as on every device.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu/vector.h"

namespace cairn::cpu {

// Vectors as columns [D, 64], 64 of them, so that one step of all 64 chains runs along memory. Those that are not set
// are zeros.
class Projections {
 public:
  static constexpr int width = 64;

  explicit Projections(int64_t D) : D_(D), columns_(size_t(std::max<int64_t>(1, D) * width)) {}
  // Vector j, of D elements.
  void set(int j, const float* vector) {
    for (int64_t d = 0; d < D_; ++d) columns_[size_t(d * width + j)] = vector[d];
  }
  // f(row, products [width]) for rows begin to end, whose elements stand at(row). Several rows at a time, in strips of
  // columns: that many chains keep the processor's multiply-adds busy.
  template <class At, class F>
  void each(int64_t begin, int64_t end, At&& at, F&& f) const {
    float product[rows][width];
    for (int64_t first = begin; first < end; first += rows) {
      decltype(at(begin)) x[rows];
      for (int r = 0; r < rows; ++r) x[r] = at(std::min(first + r, end - 1));
      for (int r = 0; r < rows; ++r) fetch_row(at(std::min(first + rows + r, end - 1)), D_);
      for (int64_t column = 0; column < width; column += strip)
        multiply_strip(x, columns_.data() + column, D_, product[0] + column);
      for (int r = 0; r < rows && first + r < end; ++r) f(first + r, product[r]);
    }
  }

 private:
  static constexpr int rows = 8, strip = 16;

  // products, whose rows are `width` apart, of x and a strip of columns. Not inlined: where little else is alive, all
  // pointers have registers.
  template <class X>
  [[gnu::noinline]] static void multiply_strip(const X* const (&x)[rows], const float* columns, int64_t D,
                                               float* products) {
    float sum[rows][strip] = {};
    for (int64_t d = 0; d < D; ++d, columns += width) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const auto value = float(x[r][d]);
        for (int j = 0; j < strip; ++j) sum[r][j] = std::fma(value, columns[j], sum[r][j]);
      }
    }
    for (int r = 0; r < rows; ++r) std::copy_n(sum[r], strip, products + r * width);
  }

  int64_t D_;
  std::vector<float> columns_;
};

}  // namespace cairn::cpu
