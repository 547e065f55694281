// Softmax over rows, y_c = exp(x_c - max) / sum, in five steps. For n = rows * cols floats the floor is 8 n bytes: each
// is read and written once. Rows have at most 1024 elements, a multiple of 4. The library's kernel is cuda/softmax.cu:
// steps 3 to 5, for rows of any length.
#include <cmath>

#include "cuda/common.cuh"
#include "cuda/ladder/ladder.h"

namespace cairn::ladder {
namespace {

using namespace gpu;

constexpr int threads = 32 * rows_per_block;

// ---- 1. A thread takes a row and goes over it three times: for the maximum, for the sum, to write.
// Cost: the lanes of a warp read addresses `cols` apart, so each 4 bytes come with the 32 bytes of their sector. The
// rest of the sector is needed in the next seven iterations, but a thousand threads of a multiprocessor, each at a line
// of its own, leave it little time in the L1 cache. Up to 8 times the bytes for each of three readings, and only one
// thread for each row.
__global__ void __launch_bounds__(threads) thread_a_row(Rows size, const float* x, float* y) {
  const int64_t row = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (row >= size.rows) return;
  const float* const from = x + row * size.cols;
  float maximum = -INFINITY, sum = 0;
  for (int64_t c = 0; c < size.cols; ++c) maximum = fmaxf(maximum, from[c]);
  for (int64_t c = 0; c < size.cols; ++c) sum += expf(from[c] - maximum);
  for (int64_t c = 0; c < size.cols; ++c) y[row * size.cols + c] = expf(from[c] - maximum) / sum;
}

// ---- 2. A warp takes a row. Its lanes read neighbors: whole sectors, needed at once, and 32 times the threads.
// Expected: 3 times as fast or more. 16 n bytes are left of up to 128 n, but caches had hidden part of those (and now
// hide much of the second and the third reading).
__global__ void __launch_bounds__(threads) warp_a_row(Rows size, const float* x, float* y) {
  each_row<32>(size.rows, [&](int64_t row) {
    const float* const from = x + row * size.cols;
    float maximum = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) maximum = fmaxf(maximum, from[c]);
    maximum = warp_reduce(maximum, Max{});
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) sum += expf(from[c] - maximum);
    sum = warp_reduce(sum, Sum{});
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) y[row * size.cols + c] = expf(from[c] - maximum) / sum;
  });
}

// ---- 3. The maximum and the sum in one pass (Milakov & Gimelshein 2018): the sum is relative to the maximum so far,
// and rescaled when a larger element comes. Two readings instead of three; the second may come from a cache. Expected:
// 12 n bytes instead of 16 n, 1.3 times as fast. Less if a cache helped, because exponentials are not saved.
__global__ void __launch_bounds__(threads) online(Rows size, const float* x, float* y) {
  each_row<32>(size.rows, [&](int64_t row) {
    const float* const from = x + row * size.cols;
    float maximum = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) {
      const float value = from[c], larger = fmaxf(maximum, value);
      sum = sum * expf(maximum - larger) + expf(value - larger);
      maximum = larger;
    }
    const float of_row = warp_reduce(maximum, Max{});
    sum = warp_reduce(sum * expf(maximum - of_row), Sum{});
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) y[row * size.cols + c] = expf(from[c] - of_row) / sum;
  });
}

// ---- 4. The row stays in registers, 32 elements a lane: one reading, one exponential an element, 8 n bytes, the
// floor. All loads of a row are in flight before the first is needed. Expected: 1.5 times as fast.
//
// ---- 5. The same with loads and stores of four elements: a quarter of the memory instructions, addresses and bounds,
// for the same bytes. Expected: 1.1 times as fast, because memory is already the bound.
constexpr int items = max_cols / 32;

template <int in_pack>
__global__ void __launch_bounds__(threads) in_registers(Rows size, const float* x, float* y) {
  each_row<32>(size.rows, [&](int64_t row) {
    Pack<float, in_pack> keep[items / in_pack];
    // Calls f(pack, i) for the packs of this lane; pack i of x.
    const auto each_kept = [&](auto f) {
#pragma unroll
      for (int k = 0; k < items / in_pack; ++k) {
        const int64_t c = k * 32 + row_thread<32>();
        if (c < size.cols / in_pack) f(keep[k], row * size.cols / in_pack + c);
      }
    };
    float maximum = -INFINITY, sum = 0;
    each_kept([&](auto& kept, int64_t i) {
      kept = pack<in_pack>(x, i);
      for (const float value : kept.element) maximum = fmaxf(maximum, value);
    });
    maximum = warp_reduce(maximum, Max{});
    each_kept([&](auto& kept, int64_t) {
      for (float& value : kept.element) sum += value = expf(value - maximum);
    });
    const float scale = 1 / warp_reduce(sum, Sum{});
    each_kept([&](auto& kept, int64_t i) {
      for (float& value : kept.element) value *= scale;
      pack<in_pack>(y, i) = kept;
    });
  });
}

template <auto kernel, int rows_of_block = rows_per_block>
void run(Stream stream, Rows size, const float* x, float* y) {
  launch(kernel, {blocks(ceil_div(size.rows, rows_of_block)), threads, 0, stream}, size, x, y);
}

}  // namespace

std::vector<Step<Softmax>> softmax_steps() {
  return {{"a thread a row", run<thread_a_row, threads>},
          {"a warp a row", run<warp_a_row>},
          {"maximum and sum in one pass", run<online>},
          {"the row in registers", run<in_registers<1>>},
          {"16 bytes a load", run<in_registers<4>>}};
}

}  // namespace cairn::ladder
