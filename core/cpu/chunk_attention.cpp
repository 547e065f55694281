#include "core/kernels/chunk_attention.h"

#include <algorithm>
#include <limits>

#include "core/cpu/vector.h"
#include "core/parallel.h"
#include "core/workspace.h"

namespace cairn::cpu {
namespace {

constexpr int64_t slots_a_task = 8;

}  // namespace

void chunk_rows(Stream, ChunkSlots c, int32_t* rows, int32_t* queries, int32_t* copied) {
  parallel_for(c.before() + c.slots, slots_a_task, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slot = c.first - c.before() + i;
      const auto [from, to] = c.places(slot);
      for (int64_t j = 0; j < c.chunk; ++j)
        rows[i * c.chunk + j] = from + j < to ? c.row(slot, c.buckets.permutation[from + j], c.N) : -1;
      queries[i] = c.has_queries(slot) ? int32_t(to - from) : 0;
      if (!copied) continue;
      const auto [first, end_key] = c.key_places(slot);
      for (int64_t j = 0; j < c.keys(); ++j)
        copied[i * c.keys() + j] = first + j < end_key ? c.row(slot, c.key_buckets.permutation[first + j], c.S) : -1;
    }
  });
}

void chunk_mask(Stream, ChunkSlots c, Mask mask, bool* allowed) {
  parallel_for(c.slots, slots_a_task, [=](int64_t begin, int64_t end) {
    thread_local Scratch<int32_t> memory;
    const int64_t keys = c.keys(), own = keys - c.chunk;  // the first key of the own slot
    const auto position_of = [=](int32_t row, int64_t length) { return int32_t(row / c.H % length); };
    int32_t *const position = memory.take(2 * keys), *const label = position + keys;
    for (int64_t slot = begin; slot < end; ++slot) {
      const int64_t batch_head = c.batch_head(c.first + slot), b = batch_head / c.H, h = batch_head % c.H;
      const int32_t* const labels = c.buckets.labels + c.bucket_row(c.first + slot) * c.N;
      const int32_t* const key_labels =
          c.own_keys() ? c.key_buckets.labels + c.bucket_row(c.first + slot) * c.S : labels;
      for (int64_t j = 0; j < keys; ++j) {
        const int32_t row = c.key_rows(slot)[j];
        position[j] = row < 0 ? -1 : position_of(row, c.S);
        const bool valid = row >= 0 && position[j] < mask.keys(b, h, c.S);
        label[j] = !valid ? -1 : c.bucket_mask ? key_labels[position[j]] : 0;
      }
      for (int64_t i = 0; i < c.queries[c.before() + slot]; ++i) {
        const int32_t query = position_of(c.query_rows(slot)[i], c.N);
        const int32_t wanted = query >= mask.queries(b, h, c.N) ? -2 : c.bucket_mask ? labels[query] : 0;
        bool* const row = allowed + (slot * c.chunk + i) * keys;
        for (int64_t j = 0; j < keys; ++j) row[j] = label[j] == wanted;
        if (!c.own_keys()) row[own + i] = false;
        if (!mask.elementwise()) continue;
        for (int64_t j = 0; j < keys; ++j) row[j] = row[j] && mask.visible(b, h, query, position[j]);
      }
    }
  });
}

// A task adds all chunks of the same rows, in order.
template <class T>
void add_chunks(Stream, ChunkSlots c, bool first_chunk, Rows size, const T* x, const Accum<T>* logsumexp_of_x,
                Accum<T>* sums, Accum<T>* logsumexp) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  const int64_t cols = size.cols, first = first_chunk ? 0 : size.rows - c.chunk;
  parallel_for(c.slots, slots_a_task, [=](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      if (c.queries[c.before() + slot] == 0) continue;
      const int32_t* const rows = c.rows_of(slot, size.rows, first_chunk);
      for (int64_t other = slot; other < c.end_of_sharing(slot, size.rows, first_chunk); ++other)
        each_fetched_row(
            std::find(rows, rows + c.chunk, -1) - rows, cols, [=](int64_t i) { return sums + rows[i] * cols; },
            [=](int64_t i, T* to) {
              const T* const from = x + (other * size.rows + first + i) * cols;
              if (!logsumexp) return add_scaled(to, cols, T(1), from);
              T& kept = logsumexp[rows[i]];
              const T more = logsumexp_of_x[other * c.chunk + i];
              if (more == none) return;
              const MergedKeys<T> merged(kept, more);
              scale(to, cols, merged.old_factor);
              add_scaled(to, cols, merged.new_factor, from);
              kept = merged.logsumexp;
            });
    }
  });
}

template <class T>
void own_rows(Stream, ChunkSlots c, Mask mask, int64_t cols, const Accum<T>* logsumexp, const T* x, Accum<T>* y) {
  constexpr T none = -std::numeric_limits<T>::infinity();
  parallel_for(c.B * c.N * c.H, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / (c.N * c.H), i = row / c.H % c.N, h = row % c.H;
      const bool own = (!logsumexp || logsumexp[row] == none) && i < mask.queries(b, h, c.N) &&
                       i < mask.keys(b, h, c.N) && mask.visible(b, h, i, i);
      for (int64_t j = 0; j < cols; ++j) y[row * cols + j] = own ? x[row * cols + j] : T(0);
    }
  });
}

CAIRN_CPU_TYPES(add_chunks)
CAIRN_CPU_TYPES(own_rows)

}  // namespace cairn::cpu
