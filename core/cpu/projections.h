#pragma once
// Random projections of a row, each one chain of fused multiply-adds over d = 0 .. D-1 in float32, as on every device.
#include <vector>

#include "core/cpu/vector.h"

namespace cairn::cpu {

// Vectors as columns [D, 64], 64 of them, so that one step of all 64 chains runs along memory. Those that are not set
// are zeros.
class Projections {
 public:
  static constexpr int width = 64;

  explicit Projections(int64_t D) : D_(D), columns_(size_t(D * width)) {}
  // Vector j, of D elements.
  void set(int j, const float* vector) {
    for (int64_t d = 0; d < D_; ++d) columns_[size_t(d * width + j)] = vector[d];
  }
  // The products of x with all of them.
  template <class T>
  void operator()(const T* x, float (&product)[width]) const {
    for (float& sum : product) sum = 0;
    add_fused_products(x, D_, columns_.data(), product);
  }

 private:
  int64_t D_;
  std::vector<float> columns_;
};

}  // namespace cairn::cpu
