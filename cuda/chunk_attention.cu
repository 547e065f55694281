// Sorted positions in chunks, as operands of the attention kernels, and their results put back
// (core/kernels/chunk_attention.h).
//
// x [B, N, H, cols] and the slots' matrices in float32 or bfloat16; y, sums and logsumexps in float32.
//
// Launch.
//   chunk_rows  a thread takes a place of a slot
//   chunk_mask  a block takes a slot and 64 of its keys, whose positions and labels are in shared memory. A thread
//               takes one of these keys and every fourth query
//   add_chunks  a warp takes a row of a slot. The first of the slots that share the row adds all, in order: no atomics
//   own_rows    a warp takes a row, and copies it or writes zeros
// Traffic, e bytes an element: e + 8 for each element of add_chunks, e + 4 for one of own_rows, a byte for each pair of
// chunk_mask. These are the floors. Bound by memory.
#include "core/kernels/chunk_attention.h"

#include <cmath>

#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256, mask_keys = 64;

__global__ void __launch_bounds__(threads) find_rows(ChunkSlots c, int32_t* rows, int32_t* queries, int32_t* copied) {
  const int64_t place = int64_t(blockIdx.x) * threads + threadIdx.x, i = place / c.chunk, j = place % c.chunk;
  if (i >= c.before() + c.slots) return;
  const int64_t slot = c.first - c.before() + i;
  const auto [from, to] = c.places(slot);
  rows[place] = from + j < to ? c.row(slot, c.buckets.permutation[from + j], c.N) : -1;
  if (j == 0) queries[i] = c.has_queries(slot) ? int32_t(to - from) : 0;
  if (!copied) return;
  const auto [first, end] = c.key_places(slot);
  for (int64_t key = j; key < c.keys(); key += c.chunk)
    copied[i * c.keys() + key] = first + key < end ? c.row(slot, c.key_buckets.permutation[first + key], c.S) : -1;
}

__global__ void __launch_bounds__(threads) mask_pairs(ChunkSlots c, Mask mask, bool* allowed) {
  __shared__ int32_t position[mask_keys], label[mask_keys];
  const int64_t tiles = ceil_div(c.keys(), mask_keys), slot = blockIdx.x / tiles;
  const int64_t queries = c.queries[c.before() + slot];
  if (queries == 0) return;
  const int64_t batch_head = c.batch_head(c.first + slot), b = batch_head / c.H, h = batch_head % c.H;
  const int32_t* const labels = c.buckets.labels + c.bucket_row(c.first + slot) * c.N;
  const int32_t* const key_labels = c.own_keys() ? c.key_buckets.labels + c.bucket_row(c.first + slot) * c.S : labels;
  const int64_t first = blockIdx.x % tiles * mask_keys;
  if (threadIdx.x < mask_keys) {
    const int32_t row = first + threadIdx.x < c.keys() ? c.key_rows(slot)[first + threadIdx.x] : -1;
    const int32_t key = row < 0 ? -1 : int32_t(row / c.H % c.S);
    position[threadIdx.x] = key;
    label[threadIdx.x] = key < 0 || key >= mask.keys(b, h, c.S) ? -1 : c.bucket_mask ? key_labels[key] : 0;
  }
  __syncthreads();
  const int mine = int(threadIdx.x) % mask_keys;
  if (first + mine >= c.keys()) return;
  for (int64_t i = threadIdx.x / mask_keys; i < queries; i += threads / mask_keys) {
    const auto query = int32_t(c.query_rows(slot)[i] / c.H % c.N);
    const bool same = query < mask.queries(b, h, c.N) && label[mine] == (c.bucket_mask ? labels[query] : 0);
    allowed[(slot * c.chunk + i) * c.keys() + first + mine] =
        same && (c.own_keys() || position[mine] != query) && mask.visible(b, h, query, position[mine]);
  }
}

template <class T, bool packs>
__global__ void __launch_bounds__(threads_a_block<32>) add(ChunkSlots c, bool first_chunk, Rows size, const T* x,
                                                           const float* logsumexp_of_x, float* sums, float* logsumexp) {
  each_row<32>(c.slots * c.chunk, [&](int64_t place) {
    const int64_t slot = place / c.chunk, i = place % c.chunk, row = c.rows_of(slot, size.rows, first_chunk)[i];
    if (c.queries[c.before() + slot] == 0 || row < 0) return;
    const int64_t end = c.end_of_sharing(slot, size.rows, first_chunk);
    for (int64_t other = slot; other < end; ++other) {
      if (logsumexp && logsumexp_of_x[other * c.chunk + i] == -INFINITY) continue;
      float old_factor = 1, new_factor = 1;
      if (logsumexp) {
        const MergedKeys<float> merged(logsumexp[row], logsumexp_of_x[other * c.chunk + i]);
        old_factor = merged.old_factor, new_factor = merged.new_factor;
        __syncwarp();  // all have read it
        if (row_thread<32>() == 0) logsumexp[row] = merged.logsumexp;
        __syncwarp();  // before the next round reads it
      }
      const T* const from = x + (other * size.rows + (first_chunk ? 0 : size.rows - c.chunk) + i) * size.cols;
      float* const to = sums + row * size.cols;
      each_chunk<32>(size.cols, [&](int64_t k) {
        Chunk sum = load_chunk<packs>(to, size.cols, k);
        const Chunk more = load_chunk<packs>(from, size.cols, k);
#pragma unroll
        for (int l = 0; l < chunk_size; ++l)
          sum.element[l] = fmaf(new_factor, more.element[l], old_factor * sum.element[l]);
        store_chunk<packs>(sum, to, size.cols, k);
      });
    }
  });
}

template <class T, bool packs>
__global__ void __launch_bounds__(threads_a_block<32>)
    keep_own(ChunkSlots c, Mask mask, int64_t cols, const float* logsumexp, const T* x, float* y) {
  each_row<32>(c.B * c.N * c.H, [&](int64_t row) {
    const int64_t b = row / (c.N * c.H), i = row / c.H % c.N, h = row % c.H;
    const bool own = (!logsumexp || logsumexp[row] == -INFINITY) && i < mask.queries(b, h, c.N) &&
                     i < mask.keys(b, h, c.N) && mask.visible(b, h, i, i);
    each_chunk<32>(cols, [&](int64_t k) {
      store_chunk<packs>(own ? load_chunk<packs>(x + row * cols, cols, k) : Chunk{}, y + row * cols, cols, k);
    });
  });
}

}  // namespace

void chunk_rows(Stream stream, ChunkSlots c, int32_t* rows, int32_t* queries, int32_t* copied) {
  const int64_t places = (c.before() + c.slots) * c.chunk;
  launch(find_rows, {ceil_div(places, threads), threads, 0, stream}, c, rows, queries, copied);
}

void chunk_mask(Stream stream, ChunkSlots c, Mask mask, bool* allowed) {
  launch(mask_pairs, {c.slots * ceil_div(c.keys(), mask_keys), threads, 0, stream}, c, mask, allowed);
}

template <class T>
void add_chunks(Stream stream, ChunkSlots c, bool first_chunk, Rows size, const T* x, const Accum<T>* logsumexp_of_x,
                Accum<T>* sums, Accum<T>* logsumexp) {
  const bool packs = rows_hold_packs(size.cols, x) && rows_hold_packs(size.cols, sums);
  launch(packs ? add<T, true> : add<T, false>, over_rows<32>(stream, c.slots * c.chunk), c, first_chunk, size, x,
         logsumexp_of_x, sums, logsumexp);
}

template <class T>
void own_rows(Stream stream, ChunkSlots c, Mask mask, int64_t cols, const Accum<T>* logsumexp, const T* x,
              Accum<T>* y) {
  const int64_t rows = c.B * c.N * c.H;
  if (rows == 0 || cols == 0) return;
  const bool packs = rows_hold_packs(cols, x) && rows_hold_packs(cols, y);
  launch(packs ? keep_own<T, true> : keep_own<T, false>, over_rows<32>(stream, rows), c, mask, cols, logsumexp, x, y);
}

CAIRN_GPU_TYPES(add_chunks)
CAIRN_GPU_TYPES(own_rows)

}  // namespace cairn::gpu
