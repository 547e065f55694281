// Order within rows of x [rows, cols]: the permutation that sorts a row, stably, and the k largest of it. float32,
// bfloat16, int32, int64.
//
// A value becomes a key, an unsigned whole number of the same order: NaNs share the largest, -0 and 0 are one; where
// the largest come first, it is the complement. Keys are sorted by merging runs. Where two runs meet, an entry goes to
// its place in its own run plus the number of entries of the other that come before it, found by a binary search; equal
// ones of the left run come first, so it is stable. What lies beyond the k-th place of a run, k rounded up to a power
// of two, is dropped: small k soon have little left to do.
//
// Launch.
//   sort_tiles   a block takes 2048 entries, one tile of a long row or several short rows, and sorts them in shared
//                memory. All pairs of runs merge at once, in 11 rounds or fewer: a thread has up to eight entries in
//                registers while it looks where they go.
//   merge_runs   a thread takes an entry of rows of several tiles; each time there are half as many runs. Entries go to
//                and fro between two scratch areas.
// The last of these writes columns and values.
// Traffic: e + 4 bytes an element of e bytes, the floor, for rows of up to 2048 columns; for longer ones 16 bytes an
// entry (32 for int64) for each pass of merge_runs, log2(cols / 2048) of them. The searches bound both: a round reads
// as many keys of shared memory, or of the L2 cache, as the length of a run has bits.
//
// cost sort_tiles: (e+4)*n bytes, 0 FLOPs
#include "core/kernels/sort.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256, items = 8, tile_entries = threads * items;

template <class T>
using Key = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, uint32_t>;
__device__ uint32_t key_of(int32_t x) { return uint32_t(x) ^ 0x80000000u; }
__device__ uint64_t key_of(int64_t x) {
  return uint64_t(x) ^ uint64_t { 1 } << 63;
}
__device__ uint32_t key_of(float x) {
  if (x != x) return 0xffffffffu;
  const uint32_t bits = __float_as_uint(x + 0.0f);  // -0 + 0 = 0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ uint32_t key_of(bfloat16 x) { return key_of(float(x)); }

template <class T>
struct Entry {
  Key<T> key;
  uint32_t column;
};

// What is asked for, and where it goes.
template <class T>
struct Order {
  Rows size;
  int64_t k;  // places of a row that are wanted
  bool largest_first;
  const T* x;
  T* values;  // or null
  int32_t* columns;

  __device__ Entry<T> entry(int64_t row, int64_t column) const {
    const Key<T> key = key_of(x[row * size.cols + column]);
    return {largest_first ? ~key : key, uint32_t(column)};
  }
  __device__ void put(int64_t row, int64_t place, const Entry<T>& entry) const {
    if (place >= k) return;
    columns[row * k + place] = int32_t(entry.column);
    if (values) values[row * k + place] = x[row * size.cols + entry.column];
  }
};

// n entries, at least one, in sorted runs of 2^log_length, of which the last may be shorter.
struct Runs {
  uint32_t n;
  int log_length;

  CAIRN_HD uint32_t length() const { return 1u << log_length; }
  // What becomes of them when two and two are merged, and at most 2^log_k of each kept.
  CAIRN_HD Runs merged(int log_k) const {
    const uint32_t pairs_before = n == 0 ? 0 : (n - 1) >> (log_length + 1),
                   rest = n - (pairs_before << (log_length + 1));
    const Runs keep{0, log_length < log_k ? log_length + 1 : log_k};
    return {(pairs_before << keep.log_length) + (rest < keep.length() ? rest : keep.length()), keep.log_length};
  }
};

// Where entry i of the runs goes, or -1 where it is dropped.
template <class T>
__device__ int64_t place(const Runs& runs, const Runs& merged, uint32_t i, const Entry<T>* all) {
  const uint32_t run = i >> runs.log_length, start = (run ^ 1) << runs.log_length;
  const Key<T> key = all[i].key;
  uint32_t low = min(start, runs.n), high = min(start + runs.length(), runs.n);
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const Key<T> other = all[middle].key;
    if (other < key || (other == key && start < i))
      low = middle + 1;
    else
      high = middle;
  }
  const uint32_t before = low - min(start, runs.n), at = (i & (runs.length() - 1)) + before;
  return at < merged.length() ? (int64_t(run / 2) << merged.log_length) + at : -1;
}

// Rows are cut into tiles of 2^log_tile entries; a block takes one tile, or as many whole rows as it has room for.
// `sorted` [rows, runs_a_row.n] gets the runs; null: tiles are rows, and what comes out is the result.
template <class T>
__global__ void __launch_bounds__(threads, 3)
    sort_tiles(Order<T> order, int log_tile, int log_k, Runs runs_a_row, Entry<T>* sorted) {
  __shared__ Entry<T> shared[tile_entries];
  const int64_t tile = 1 << log_tile, tiles_a_row = ceil_div(order.size.cols, tile);
  const int64_t first = int64_t(blockIdx.x) * (tile_entries >> log_tile), first_row = first / tiles_a_row;
  const int64_t tile_in_row = first % tiles_a_row, first_column = tile_in_row * tile;
  const int rows = int(min(order.size.rows - first_row, int64_t(tiles_a_row > 1 ? 1 : tile_entries >> log_tile)));
  Runs runs{uint32_t(min(tile, order.size.cols - first_column)), 0};

  const auto row_of = [&](int i) { return i >> log_tile; };
  const auto in_row = [&](int i) { return uint32_t(i) & uint32_t(tile - 1); };
  const auto exists = [&](int i) { return row_of(i) < rows && in_row(i) < runs.n; };
  const auto all_of_row = [&](int i) { return shared + (row_of(i) << log_tile); };

  for (int i = int(threadIdx.x); i < tile_entries; i += threads)
    if (exists(i)) shared[i] = order.entry(first_row + row_of(i), first_column + in_row(i));
  for (int round = 0; round < log_tile; ++round) {
    const Runs merged = runs.merged(log_k);
    Entry<T> entry[items];
    int64_t to[items];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < items; ++n) {
      const int i = int(threadIdx.x) + n * threads;
      to[n] = -1;
      if (!exists(i)) continue;
      entry[n] = shared[i];
      to[n] = place(runs, merged, in_row(i), all_of_row(i));
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < items; ++n)
      if (to[n] >= 0) all_of_row(int(threadIdx.x) + n * threads)[to[n]] = entry[n];
    runs = merged;
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < tile_entries; i += threads) {
    if (!exists(i)) continue;
    const int64_t row = first_row + row_of(i);
    if (sorted)
      sorted[row * runs_a_row.n + (tile_in_row << runs_a_row.log_length) + in_row(i)] = shared[i];
    else
      order.put(row, in_row(i), shared[i]);
  }
}

// to: null, where what comes out is the result.
template <class T>
__global__ void __launch_bounds__(threads)
    merge_runs(Order<T> order, Runs runs, Runs merged, const Entry<T>* from, Entry<T>* to) {
  const int64_t step = int64_t(gridDim.x) * threads;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < order.size.rows * runs.n; i += step) {
    const int64_t row = i / runs.n;
    const int64_t at = place(runs, merged, uint32_t(i % runs.n), from + row * runs.n);
    if (at < 0) continue;
    if (to)
      to[row * merged.n + at] = from[i];
    else
      order.put(row, at, from[i]);
  }
}

template <class T>
void sort(Stream stream, const Order<T>& order) {
  const auto [rows, cols] = order.size;
  if (rows == 0 || order.k == 0) return;
  const auto log_of = [](int64_t n) {
    return int(std::bit_width(uint64_t(n - 1)));
  };  // of n rounded up to a power of 2
  const int log_k = log_of(order.k), log_tile = std::min(log_of(tile_entries), log_of(cols));
  // The runs of a row when its tiles are sorted: so many rounds have merged runs of one.
  Runs runs{uint32_t(cols), 0};
  for (int round = 0; round < log_tile; ++round) runs = runs.merged(log_k);
  const int64_t tiles_a_row = ceil_div(cols, int64_t{1} << log_tile);
  const int64_t tile_blocks = ceil_div(rows * tiles_a_row, tile_entries >> log_tile);

  Workspace workspace(Device::cuda);
  Entry<T>* from = tiles_a_row > 1 ? workspace.take<Entry<T>>(rows * runs.n) : nullptr;
  Entry<T>* to = tiles_a_row > 2 ? workspace.take<Entry<T>>(rows * runs.n) : nullptr;
  launch(sort_tiles<T>, {tile_blocks, threads, 0, stream}, order, log_tile, log_k, runs, from);
  for (int64_t left = tiles_a_row; left > 1; left = ceil_div(left, 2)) {
    const Runs merged = runs.merged(log_k);
    launch(merge_runs<T>, {blocks(ceil_div(rows * runs.n, threads)), threads, 0, stream}, order, runs, merged, from,
           left > 2 ? to : nullptr);
    runs = merged;
    std::swap(from, to);
  }
}

}  // namespace

template <class T>
void stable_sort(Stream stream, Rows size, const T* x, int32_t* permutation) {
  sort<T>(stream, {size, size.cols, false, x, nullptr, permutation});
}

template <class T>
void top_k(Stream stream, Rows size, int64_t k, const T* x, T* values, int32_t* columns) {
  sort<T>(stream, {size, k, true, x, values, columns});
}

#define INSTANTIATE(T)                                         \
  template void stable_sort(Stream, Rows, const T*, int32_t*); \
  template void top_k(Stream, Rows, int64_t, const T*, T*, int32_t*);
INSTANTIATE(float)
INSTANTIATE(bfloat16)
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)

}  // namespace cairn::gpu
