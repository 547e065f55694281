// Softmax over rows, y_c = exp(x_c - max) / sum, in five steps. n = rows * cols floats; the floor is 8 n bytes, each
// read and written once. cuda/softmax.cu is the library's: steps 3 and 5, for rows of any length.
#include <cmath>

#include "cuda/common.cuh"
#include "cuda/ladder/ladder.h"

namespace cairn::ladder {
namespace {

using namespace gpu;

// ---- 1. A thread takes a row and goes over it three times: for the maximum, for the sum, to write.
// What it costs: the lanes of a warp read addresses `cols` apart, so each 4 bytes come with the 32 of their sector. The
// rest of the sector is wanted seven iterations later; a thousand threads a multiprocessor, each at a line of its own,
// leave little of the L1 cache for waiting. Up to 8 times the bytes, for each of three readings; and as few threads as
// rows.
constexpr int naive_threads = 128;
__global__ void __launch_bounds__(naive_threads) thread_a_row(Rows size, const float* x, float* y) {
  const int64_t row = int64_t(blockIdx.x) * naive_threads + threadIdx.x;
  if (row >= size.rows) return;
  const float* const from = x + row * size.cols;
  float maximum = -INFINITY, sum = 0;
  for (int64_t c = 0; c < size.cols; ++c) maximum = fmaxf(maximum, from[c]);
  for (int64_t c = 0; c < size.cols; ++c) sum += expf(from[c] - maximum);
  for (int64_t c = 0; c < size.cols; ++c) y[row * size.cols + c] = expf(from[c] - maximum) / sum;
}

// ---- 2. A warp takes a row. Its lanes read neighbors: whole sectors, all of them wanted at once, and 32 times the
// threads. Expected: 3 times or more, as 16 n bytes are left of up to 128 n, though caches had hidden part of those
// (and now hide much of the second and the third reading).
__global__ void __launch_bounds__(32 * rows_per_block) warp_a_row(Rows size, const float* x, float* y) {
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

// ---- 3. The maximum and the sum in one pass (Milakov & Gimelshein 2018): a sum relative to the maximum so far is
// rescaled when a larger one comes. Two readings instead of three; the second comes from a cache or not.
// Expected: 12 n bytes instead of 16 n, 1.3 times, if no cache helped; less if it did, as exponentials are not saved.
__global__ void __launch_bounds__(32 * rows_per_block) online(Rows size, const float* x, float* y) {
  each_row<32>(size.rows, [&](int64_t row) {
    const float* const from = x + row * size.cols;
    float maximum = -INFINITY, sum = 0;
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) {
      const float value = from[c], larger = fmaxf(maximum, value);
      if (larger == -INFINITY) continue;
      sum = sum * expf(maximum - larger) + expf(value - larger);
      maximum = larger;
    }
    const float of_row = warp_reduce(maximum, Max{});
    sum = warp_reduce(maximum == -INFINITY ? 0.0f : sum * expf(maximum - of_row), Sum{});
    for (int64_t c = threadIdx.x % 32; c < size.cols; c += 32) y[row * size.cols + c] = expf(from[c] - of_row) / sum;
  });
}

// ---- 4. The row stays in registers, up to 32 elements a lane: one reading, one exponential an element, 8 n bytes, the
// floor. And all loads of a row are under way before the first is needed. Expected: 1.5 times.
constexpr int items = 32;

// Calls f(i, c) for the elements (or packs) c of a row that this lane keeps as its i-th of `count`.
template <int count, class F>
__device__ void each_kept(int64_t cols, F f) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int64_t c = i * 32 + row_lane<32>();
    if (c < cols) f(i, c);
  }
}

__global__ void __launch_bounds__(32 * rows_per_block) in_registers(Rows size, const float* x, float* y) {
  each_row<32>(size.rows, [&](int64_t row) {
    const int64_t start = row * size.cols;
    float keep[items], maximum = -INFINITY, sum = 0;
    each_kept<items>(size.cols, [&](int i, int64_t c) { maximum = fmaxf(maximum, keep[i] = x[start + c]); });
    maximum = warp_reduce(maximum, Max{});
    each_kept<items>(size.cols, [&](int i, int64_t) { sum += keep[i] = expf(keep[i] - maximum); });
    const float scale = 1 / warp_reduce(sum, Sum{});
    each_kept<items>(size.cols, [&](int i, int64_t c) { y[start + c] = keep[i] * scale; });
  });
}

// ---- 5. Four elements a load and a store: a quarter of the memory instructions, with their addresses and bounds, for
// the same bytes. Expected: little where memory is the bound already, 1.1 times.
__global__ void __launch_bounds__(32 * rows_per_block) in_packs(Rows size, const float* x, float* y) {
  each_row<32>(size.rows, [&](int64_t row) {
    const int64_t start = row * size.cols / 4;
    Pack<float, 4> keep[items / 4];
    float maximum = -INFINITY, sum = 0;
    each_kept<items / 4>(size.cols / 4, [&](int i, int64_t c) {
      keep[i] = pack<4>(x, start + c);
      for (const float value : keep[i].element) maximum = fmaxf(maximum, value);
    });
    maximum = warp_reduce(maximum, Max{});
    each_kept<items / 4>(size.cols / 4, [&](int i, int64_t) {
      for (float& value : keep[i].element) sum += value = expf(value - maximum);
    });
    const float scale = 1 / warp_reduce(sum, Sum{});
    each_kept<items / 4>(size.cols / 4, [&](int i, int64_t c) {
      for (float& value : keep[i].element) value *= scale;
      pack<4>(y, start + c) = keep[i];
    });
  });
}

void run_naive(Stream stream, Rows size, const float* x, float* y) {
  launch(thread_a_row, {ceil_div(size.rows, naive_threads), naive_threads, 0, stream}, size, x, y);
}
template <auto kernel>
void run(Stream stream, Rows size, const float* x, float* y) {
  launch(kernel, {blocks(ceil_div(size.rows, rows_per_block)), 32 * rows_per_block, 0, stream}, size, x, y);
}
// The last steps where they apply, else the one before.
void run_in_registers(Stream stream, Rows size, const float* x, float* y) {
  size.cols <= 32 * items ? run<in_registers>(stream, size, x, y) : run<online>(stream, size, x, y);
}
void run_in_packs(Stream stream, Rows size, const float* x, float* y) {
  size.cols <= 32 * items&& size.cols % 4 == 0 ? run<in_packs>(stream, size, x, y)
                                               : run_in_registers(stream, size, x, y);
}

}  // namespace

std::vector<Step<Softmax>> softmax_steps() {
  return {{"a thread a row", run_naive},
          {"a warp a row", run<warp_a_row>},
          {"maximum and sum in one pass", run<online>},
          {"the row in registers", run_in_registers},
          {"16 bytes a load", run_in_packs}};
}

}  // namespace cairn::ladder
