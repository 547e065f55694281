#pragma once
// What many kernels share: reductions over a warp and a block, rows for warps and blocks, and elements that move
// several at a time.
#include <cmath>
#include <cstdint>

#include "core/functors.h"
#include "core/host_device.h"
#include "core/kernels/head_view.h"
#include "core/kernels/rows.h"
#include "cuda/launch.h"

namespace cairn::gpu {

inline constexpr unsigned full_warp = 0xffffffffu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// A NaN counts as smaller than any number, as in fmaxf.
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// Reduces the 32 values of a warp by op. All lanes take part and get the result. The order is fixed: a butterfly.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int distance = 16; distance > 0; distance /= 2) value = op(value, __shfl_xor_sync(full_warp, value, distance));
  return value;
}

// The same for integers, by one instruction where the GPU has it. (The emulator does not.)
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800
inline __device__ int warp_sum(int value) { return warp_reduce(value, Sum{}); }
inline __device__ uint32_t warp_min(uint32_t value) {
  return warp_reduce(value, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
}
inline __device__ uint32_t warp_max(uint32_t value) { return ~warp_min(~value); }
#else
inline __device__ int warp_sum(int value) { return __reduce_add_sync(full_warp, value); }
inline __device__ uint32_t warp_min(uint32_t value) { return __reduce_min_sync(full_warp, value); }
inline __device__ uint32_t warp_max(uint32_t value) { return __reduce_max_sync(full_warp, value); }
#endif

// The sum of the values of this lane and of all lower lanes.
inline __device__ int32_t warp_scan(int32_t value) {
  for (int distance = 1; distance < 32; distance *= 2) {
    const int32_t below = __shfl_up_sync(full_warp, value, unsigned(distance));
    if (int(threadIdx.x % 32) >= distance) value += below;
  }
  return value;
}

// Reduces the values of a block by op. The block has whole warps; all threads get the result. `none` is op's neutral
// element. of_warp: shared memory for 32 elements, which no warp uses after the last barrier.
template <class T, class Op>
__device__ T block_reduce(T value, T none, Op op, T* of_warp) {
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), warps = int(blockDim.x / 32);
  value = warp_reduce(value, op);
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = warp_reduce(lane < warps ? of_warp[lane] : none, op);
  __syncthreads();  // before of_warp is written again
  return value;
}
template <class T, class Op>
__device__ T block_reduce(T value, T none, Op op) {
  __shared__ T of_warp[32];
  return block_reduce(value, none, op, of_warp);
}

// ---- rows. A warp takes a row (`threads` = 32), and a block has four, or a block takes one (`threads` = 256).
inline constexpr int rows_per_block = 4;     // where a warp takes a row
inline constexpr int threads_per_row = 256;  // where a block takes a row
inline constexpr int64_t short_row = 1024;   // elements; a block takes longer rows

template <int threads>
inline constexpr int rows_a_block = threads == 32 ? rows_per_block : 1;
template <int threads>
inline constexpr int threads_a_block = threads* rows_a_block<threads>;  // of a block

// Calls f(row) for the rows of this thread.
template <int threads, class F>
__device__ void each_row(int64_t rows, F f) {
  constexpr int here = rows_a_block<threads>;
  for (int64_t row = int64_t(blockIdx.x) * here + threadIdx.x / threads; row < rows; row += int64_t(gridDim.x) * here)
    f(row);
}
// The index of this thread among the threads of its row.
template <int threads>
__device__ int row_thread() {
  return int(threadIdx.x % threads);
}

// Reduces the values of a row's threads by op. All of them get the result. `none` is op's neutral element.
template <int threads, class T, class Op>
__device__ T row_reduce(T value, T none, Op op) {
  if constexpr (threads == 32)
    return warp_reduce(value, op);
  else
    return block_reduce(value, none, op);
}

// n blocks, or as many as a grid can have, for kernels whose blocks take several rows in a loop.
constexpr int64_t blocks(int64_t n) { return n < 0x7fffffff ? n : 0x7fffffff; }

// The launch of a kernel over rows.
template <int threads>
Launch over_rows(Stream stream, int64_t rows, SourceLine where = SourceLine::current()) {
  return {blocks(ceil_div(rows, rows_a_block<threads>)), threads_a_block<threads>, 0, stream, where};
}

// ---- packs: n elements that move as one word of up to 16 bytes
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T element[n];
};
// Whether packs can be read and written at these addresses. A slice of a tensor may start anywhere.
template <int n, class... T>
CAIRN_HD bool holds_packs(const T*... addresses) {
  return ((reinterpret_cast<uintptr_t>(addresses) % (sizeof(T) * n) == 0) && ...);
}
// Whether every row can be read and written in packs, if it has whole packs of elements.
template <int n, class T>
bool holds_packs(const HeadView<T>& x) {
  return holds_packs<n>(x.data) && (x.batch_stride | x.row_stride | x.head_stride) % n == 0;
}
template <int n, class T>
__device__ const Pack<T, n>& pack(const T* x, int64_t i) {
  return reinterpret_cast<const Pack<T, n>*>(x)[i];
}
template <int n, class T>
__device__ Pack<T, n>& pack(T* x, int64_t i) {
  return reinterpret_cast<Pack<T, n>*>(x)[i];
}

// ---- rows in chunks of eight elements. A thread takes whole chunks. Where all chunks start at multiples of 16 bytes,
// it moves 16 bytes at a time (`packs`). Elsewhere the same thread moves the same elements one by one. So the order of
// a sum depends neither on where a tensor starts nor on the element type.
inline constexpr int chunk_size = 8;
using Chunk = Pack<float, chunk_size>;

// Whether matrices of `cols` columns can be moved as packs.
template <class T, class... More>
CAIRN_HD bool rows_hold_packs(int64_t cols, const T* matrix, const More*... more) {
  return cols % chunk_size == 0 && holds_packs<16 / sizeof(T)>(matrix, more...);
}

// Chunk c of a row. Elements beyond the end of the row become `missing`. (Packs have none.)
template <bool packs, class T>
__device__ Chunk load_chunk(const T* row, int64_t cols, int64_t c, float missing = 0) {
  Chunk result;
  if constexpr (packs) {
    constexpr int in_word = 16 / sizeof(T), words = chunk_size / in_word;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      const Pack<T, in_word> word = pack<in_word>(row, c * words + w);
#pragma unroll
      for (int k = 0; k < in_word; ++k) result.element[w * in_word + k] = float(word.element[k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < chunk_size; ++k)
      result.element[k] = c * chunk_size + k < cols ? float(row[c * chunk_size + k]) : missing;
  }
  return result;
}
template <bool packs, class T>
__device__ void store_chunk(const Chunk& x, T* row, int64_t cols, int64_t c) {
  if constexpr (packs) {
    constexpr int in_word = 16 / sizeof(T), words = chunk_size / in_word;
#pragma unroll
    for (int w = 0; w < words; ++w) {
      Pack<T, in_word> word;
#pragma unroll
      for (int k = 0; k < in_word; ++k) word.element[k] = T(x.element[w * in_word + k]);
      pack<in_word>(row, c * words + w) = word;
    }
  } else {
#pragma unroll
    for (int k = 0; k < chunk_size; ++k)
      if (c * chunk_size + k < cols) row[c * chunk_size + k] = T(x.element[k]);
  }
}

// Calls f(c) for this thread's chunks c of a row. Threads may have different numbers of chunks, so f must not wait for
// other threads.
template <int threads, class F>
__device__ void each_chunk(int64_t cols, F f) {
  for (int64_t c = row_thread<threads>(); c < ceil_div(cols, chunk_size); c += threads) f(c);
}

// Where a warp takes a row, a lane has so many chunks at most.
inline constexpr int max_lane_chunks = int(short_row) / (32 * chunk_size);

// The same for a thread that keeps something for each of its chunks, of which it has at most `kept`. Calls f(c, i) for
// the i-th one. If kept is 0, it keeps nothing, and i is 0.
template <int threads, int kept, class F>
__device__ void each_chunk(int64_t cols, F f) {
  if constexpr (kept == 0) each_chunk<threads>(cols, [&](int64_t c) { f(c, 0); });
#pragma unroll
  for (int i = 0; i < kept; ++i)
    if (const int64_t c = row_thread<threads>() + threads * i; c * chunk_size < cols) f(c, i);
}

// This thread's chunks of a row, for kernels that go over it several times. They stay in registers if a warp has the
// row, so that all loads are in flight at once, and the row is read once. A longer row is read each time.
template <class T, int threads, bool packs, int kept = threads == 32 ? max_lane_chunks : 0>
class RowChunks {
 public:
  __device__ RowChunks(const T* row, int64_t cols, float missing = 0) : row_(row), cols_(cols), missing_(missing) {
    if constexpr (kept > 0) each_chunk<threads, kept>(cols, [&](int64_t c, int i) { load(c, i); });
  }
  // Chunk c of the row, the i-th of this thread.
  __device__ Chunk& at(int64_t c, int i) {
    if constexpr (kept == 0) load(c, i);
    return kept_[i];
  }
  // Calls f(chunk, c).
  template <class F>
  __device__ void each(F f) {
    each_chunk<threads, kept>(cols_, [&](int64_t c, int i) { f(at(c, i), c); });
  }

 private:
  __device__ void load(int64_t c, int i) { kept_[i] = load_chunk<packs>(row_, cols_, c, missing_); }

  const T* row_;
  int64_t cols_;
  float missing_;
  Chunk kept_[kept + 1];
};

// Calls f.operator()<lanes, packs>(launch) for rows of this length.
template <class F>
void launch_rows(Stream stream, Rows size, bool packs, F f, SourceLine where = SourceLine::current()) {
  const auto with_threads = [&]<int threads>() {
    const Launch shape = over_rows<threads>(stream, size.rows, where);
    packs ? f.template operator()<threads, true>(shape) : f.template operator()<threads, false>(shape);
  };
  size.cols <= short_row ? with_threads.template operator()<32>() : with_threads.template operator()<threads_per_row>();
}

// Softmax is computed with powers of 2, for which a GPU has an instruction.
inline constexpr float log2_e = 1.44269504f, ln_2 = 0.693147181f;

// 2^x with a relative error of 2e-7; results below the smallest normal number become 0. One instruction; exp2f takes
// four.
inline __device__ float exp2_approx(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// e^x with a relative error of (|x| + 2) 2^-23. Two instructions; expf takes eight.
inline __device__ float exp_approx(float x) { return exp2_approx(x * log2_e); }

// The number to subtract from scores before their exponentials: the maximum, but 0 where that is minus infinity,
// because exp(-inf - 0) is 0 and exp(-inf + inf) is NaN.
inline __device__ float finite_shift(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

// The sum of exp(x - maximum) over the elements so far (Milakov & Gimelshein 2018). Elements of minus infinity add
// nothing. NaN and plus infinity make the sum NaN.
//
// Products are written as fmaf, because the compiler may otherwise round them in one instance of a kernel and not in
// another.
struct SumOfExponentials {
  float maximum = -INFINITY, sum = 0;

  __device__ void add(const Chunk& x) {
    float larger = maximum, added = 0;
    for (const float value : x.element) larger = fmaxf(larger, value);
    for (const float value : x.element) added += exp_approx(value - finite_shift(larger));
    sum = relative_to(larger, added);
    maximum = larger;
  }
  // Combines the sums of all threads of a row. Each of them gets the result.
  template <int threads>
  __device__ void join() {
    const float largest = row_reduce<threads>(maximum, -INFINITY, Max{});
    sum = row_reduce<threads>(relative_to(largest, 0), 0.0f, Sum{});
    maximum = largest;
  }
  __device__ float logarithm() const { return maximum + logf(sum); }
  // The softmax of an element; 0 if all elements are minus infinity, where the sum is 0.
  __device__ float weight_of(float x) const {
    return exp_approx(x - finite_shift(maximum)) * (sum == 0 ? 0.0f : 1 / sum);
  }

 private:
  // The sum relative to a maximum that is at least as large, plus `added`.
  __device__ float relative_to(float larger, float added) const {
    return fmaf(sum, exp_approx(maximum - finite_shift(larger)), added);
  }
};

template <class T, int threads, bool packs>
__global__ void __launch_bounds__(threads_a_block<threads>) row_logsumexp(Rows size, const T* x, float* logsumexp) {
  each_row<threads>(size.rows, [&](int64_t row) {
    SumOfExponentials sum;
    each_chunk<threads>(size.cols,
                        [&](int64_t c) { sum.add(load_chunk<packs>(x + row * size.cols, size.cols, c, -INFINITY)); });
    sum.join<threads>();
    if (row_thread<threads>() == 0) logsumexp[row] = sum.logarithm();
  });
}
// logsumexp [rows] of each row of x.
template <class T>
void logsumexp_of_rows(Stream stream, Rows size, const T* x, float* logsumexp) {
  if (size.rows == 0) return;
  launch_rows(stream, size, rows_hold_packs(size.cols, x), [&]<int threads, bool packs>(const Launch& shape) {
    launch(row_logsumexp<T, threads, packs>, shape, size, x, logsumexp);
  });
}

}  // namespace cairn::gpu
