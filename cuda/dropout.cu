// Dropout of single elements: y_i = x_i / (1 - p) or 0, for n elements of float32 or bfloat16, alone or added to a
// residual. With j = i + Draw::first, word j mod 4 of Philox at counter j div 4 decides element i. So the mask is the
// CPU's.
//
// Launch. A thread takes four elements at a time, for which it draws once. There are at most 4096 blocks of 256
// threads, so that a thread computes the key, which takes ten rounds of Philox, once for many elements.
// Traffic for elements of e bytes: 2 e n bytes, or 3 e n with a residual (5 e n if it were added by a kernel of its
// own), the floor. Bound by memory: about 25 integer instructions an element take less time.
#include "core/kernels/dropout.h"

#include <algorithm>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int64_t max_blocks = 4096;

// How many of the first four random numbers come before the one of the first element.
CAIRN_HD int skipped_numbers(const Dropout& dropout) { return int(dropout.draw.first % 4); }

template <class T>
__global__ void __launch_bounds__(threads)
    drop(int64_t n, bool packs, Dropout dropout, const T* x, const T* residual, T* y) {
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  const uint32_t threshold = dropout.threshold();
  const float scale = dropout.scale();
  const int64_t step = int64_t(gridDim.x) * threads;
  const int skipped = skipped_numbers(dropout);
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < ceil_div(skipped + n, 4); i += step) {
    const uint64_t four = dropout.draw.first / 4 + uint64_t(i);
    const PhiloxWords words = philox(key, {{uint32_t(four), uint32_t(four >> 32), 0, 0}});
    const auto result = [&](T value, T other, int k) {
      const float keep = words.w[k] < threshold ? 0.0f : float(value) * scale;
      return T(residual ? float(other) + keep : keep);
    };
    if (packs && 4 * i + 4 <= n) {
      Pack<T, 4> value = pack<4>(x, i);
      const Pack<T, 4> other = residual ? pack<4>(residual, i) : value;
#pragma unroll
      for (int k = 0; k < 4; ++k) value.element[k] = result(value.element[k], other.element[k], k);
      pack<4>(y, i) = value;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (const int64_t j = 4 * i + k - skipped; j >= 0 && j < n)
          y[j] = result(x[j], residual ? residual[j] : x[j], k);
    }
  }
}

}  // namespace

template <class T>
void dropout(Stream stream, int64_t n, Dropout dropout, const T* x, const T* residual, T* y) {
  if (n == 0) return;
  const int skipped = skipped_numbers(dropout);
  launch(drop<T>, {std::min(max_blocks, ceil_div(ceil_div(skipped + n, 4), threads)), threads, 0, stream}, n,
         skipped == 0 && holds_packs<4>(x, residual, y), dropout, x, residual, y);
}

CAIRN_GPU_TYPES(dropout)

}  // namespace cairn::gpu
