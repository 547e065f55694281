// Dropout of single elements: y_i = x_i / (1 - p) or 0, for n elements of float32 or bfloat16. Element i is decided by
// word i mod 4 of Philox at counter i div 4, so the mask is the CPU's.
//
// Launch. A thread takes four elements at a time, for which it draws once; blocks of 256 threads, at most 4096 of them,
// so that the key, ten rounds of Philox by itself, is worked out once for many elements.
// Traffic: 2 e n bytes for elements of e bytes, the floor. About 25 integer instructions an element are below what the
// memory lets pass.
//
// cost drop: 2*e*n bytes, n FLOPs
#include "core/kernels/dropout.h"

#include <algorithm>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int64_t most_blocks = 4096;

template <class T>
__global__ void __launch_bounds__(threads) drop(int64_t n, bool packs, Dropout dropout, const T* x, T* y) {
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  const uint32_t threshold = dropout.threshold();
  const float scale = dropout.scale();
  const int64_t step = int64_t(gridDim.x) * threads;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < pieces(n, 4); i += step) {
    const PhiloxWords words = philox(key, {{uint32_t(i), uint32_t(uint64_t(i) >> 32), 0, 0}});
    const auto kept = [&](T value, int k) { return words.w[k] < threshold ? T(0.0f) : T(float(value) * scale); };
    if (packs && 4 * i + 4 <= n) {
      Pack<T, 4> value = pack<4>(x, i);
#pragma unroll
      for (int k = 0; k < 4; ++k) value.element[k] = kept(value.element[k], k);
      pack<4>(y, i) = value;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (4 * i + k < n) y[4 * i + k] = kept(x[4 * i + k], k);
    }
  }
}

}  // namespace

template <class T>
void dropout(Stream stream, int64_t n, Dropout dropout, const T* x, T* y) {
  if (n == 0) return;
  launch(drop<T>, {unsigned(std::min(most_blocks, pieces(pieces(n, 4), threads))), threads, 0, stream}, n,
         holds_packs<4>(x, y), dropout, x, y);
}

template void dropout(Stream, int64_t, Dropout, const float*, float*);
template void dropout(Stream, int64_t, Dropout, const bfloat16*, bfloat16*);

}  // namespace cairn::gpu
