#pragma once
// Attention of sorted positions in chunks (Reformer, Kitaev et al. 2020, section 2) runs on the kernels of attention.
// The kernels here prepare their operands and put their results back.
//
// A round sorts the positions of each (batch element, head) by bucket and cuts them into chunks. A chunk attends to
// itself and to the chunk before it, the first one to the last. So that the keys of a chunk lie side by side in memory,
// each chunk is put into a slot, and the last chunk also into a slot before the first. With three chunks:
//
//   slot             0   1   2   3
//   chunk            2   0   1   2
//   chunk's keys         2 0 0 1 1 2
//
// Slot 0 has keys, but no queries. (If no head can have two chunks, there is no such slot.) The slots of all heads lie
// one after another. To the attention kernels, a slot is a batch element of one head: its queries are those of the
// slot, its keys those of the slot before and of its own.
//
// If the keys are not the queries, they are sorted and cut into chunks by themselves. The first query of a chunk has a
// bucket, and some chunk holds the first key of this bucket (or of a later one, if it is empty). The queries attend to
// this chunk of keys and to the next one. A slot has the queries of a chunk, and a copy of the keys that they attend
// to. Neighboring slots may have the same keys.
#include <cmath>
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/clusters.h"
#include "core/kernels/head_view.h"
#include "core/kernels/rows.h"

namespace cairn {

struct BucketOptions {
  int64_t chunk = 32;
  bool bucket_mask = true;  // keys of other buckets are not visible
};

// Some slots of a round, [first, first + slots), with the keys that their queries attend to. A row of x [B, N, H, any]
// has the number (b N + i) H + h, a row of keys (b S + j) H + h.
struct ChunkSlots : BucketOptions {
  int64_t B = 0, H = 0, N = 0, S = 0, rounds = 1, C = 0;
  ClusterView buckets{};      // [B, H, rounds, N], C of them; a position of no bucket is in no chunk
  ClusterView key_buckets{};  // [B, H, rounds, S]; null: the queries are the keys
  int64_t round = 0, first = 0, slots = 0;
  // From slot first - before() on:
  const int32_t* rows = nullptr;     // [before() + slots, chunk]: numbers of rows; -1: none
  const int32_t* queries = nullptr;  // [before() + slots]: how many queries a slot has
  const int32_t* copied = nullptr;   // [slots, keys()]: rows of keys that are not the queries

  CAIRN_HD bool own_keys() const { return key_buckets.labels != nullptr; }
  CAIRN_HD int64_t before() const { return !own_keys() && N > chunk; }  // slots of keys besides the own one
  CAIRN_HD int64_t keys() const { return (own_keys() || before() ? 2 : 1) * chunk; }
  CAIRN_HD int64_t slots_a_head() const { return before() + (N + chunk - 1) / chunk; }

  // ---- slots of all heads
  CAIRN_HD int64_t batch_head(int64_t slot) const { return slot / slots_a_head(); }
  CAIRN_HD bool has_queries(int64_t slot) const { return slot % slots_a_head() >= before(); }
  CAIRN_HD int64_t bucket_row(int64_t slot) const { return batch_head(slot) * rounds + round; }
  // The sorted positions in a slot: buckets.permutation[begin] up to buckets.permutation[end].
  CAIRN_HD Range<int64_t> places(int64_t slot) const {
    const int64_t row = bucket_row(slot), n = buckets.offsets[row * (C + 1) + C];
    const int64_t chunks = (n + chunk - 1) / chunk, number = slot % slots_a_head() - before();
    if (number < 0 && chunks < 2) return {0, 0};  // a lone chunk does not attend to itself twice
    const int64_t begin = (number < 0 ? chunks - 1 : number) * chunk, end = begin + chunk;
    return {row * N + (begin < n ? begin : n), row * N + (end < n ? end : n)};
  }
  // The sorted keys of a slot whose keys are not the queries: key_buckets.permutation[begin] up to [end].
  CAIRN_HD Range<int64_t> key_places(int64_t slot) const {
    const auto [from, to] = places(slot);
    const int64_t row = bucket_row(slot);
    const int32_t* const offsets = key_buckets.offsets + row * (C + 1);
    const int64_t n = offsets[C];
    if (from >= to || n == 0) return {0, 0};
    const int64_t key = offsets[buckets.labels[row * N + buckets.permutation[from]]];
    const int64_t begin = (key < n ? key : n - 1) / chunk * chunk, end = begin + 2 * chunk;
    return {row * S + begin, row * S + (end < n ? end : n)};
  }
  CAIRN_HD int32_t row(int64_t slot, int32_t position, int64_t length) const {
    return int32_t((batch_head(slot) / H * length + position) * H + batch_head(slot) % H);
  }

  // ---- slots of this part, from 0 on: the rows of a slot's keys and of its queries
  CAIRN_HD const int32_t* key_rows(int64_t slot) const {
    return own_keys() ? copied + slot * keys() : rows + slot * chunk;
  }
  CAIRN_HD const int32_t* query_rows(int64_t slot) const { return rows + (slot + before()) * chunk; }
  // The rows that a chunk of a slot's matrix of so many rows belongs to: its first chunk or its last one.
  CAIRN_HD const int32_t* rows_of(int64_t slot, int64_t matrix_rows, bool first_chunk) const {
    if (matrix_rows == chunk && !first_chunk) return query_rows(slot);
    return key_rows(slot) + (first_chunk ? 0 : matrix_rows - chunk);
  }
  // Slots whose chunks belong to the same rows are neighbors, because buckets rise. Returns the end of these slots if
  // `slot` is the first of them and such rows exist, else `slot`.
  CAIRN_HD int64_t end_of_sharing(int64_t slot, int64_t matrix_rows, bool first_chunk) const {
    const int32_t row = *rows_of(slot, matrix_rows, first_chunk);
    if (row < 0 || (slot > 0 && *rows_of(slot - 1, matrix_rows, first_chunk) == row)) return slot;
    int64_t end = slot + 1;
    while (end < slots && *rows_of(end, matrix_rows, first_chunk) == row) ++end;
    return end;
  }
};

// Attention to the union of two sets of keys, out of the attention to each of them: its logsumexp, and the factors of
// their outputs. One of the two logsumexps must be finite.
template <class T>
struct MergedKeys {
  T logsumexp, old_factor, new_factor;

  CAIRN_HD MergedKeys(T old_keys, T new_keys) {
    const T shift = old_keys > new_keys ? old_keys : new_keys;
    const T a = std::exp(old_keys - shift), b = std::exp(new_keys - shift);
    logsumexp = shift + std::log(a + b), old_factor = a / (a + b), new_factor = b / (a + b);
  }
};

CAIRN_KERNELS(
    // Writes the rows and queries of ChunkSlots, and the rows of keys that are not the queries.
    void chunk_rows(Stream, ChunkSlots, int32_t* rows, int32_t* queries, int32_t* copied);
    // allowed [slots, chunk, keys]: may the query attend to the key, by bucket, lengths and mask? Never to itself, if
    // the queries are the keys. Nothing is written for places without a query.
    void chunk_mask(Stream, ChunkSlots, Mask, bool* allowed);
    // Each slot has a matrix of x, of its queries or of its keys. Its last `chunk` rows are added to their rows of
    // `sums`; with `first_chunk`, its first ones. x may be attention to other keys than sums: with the logsumexps of
    // both, [slots, chunk] and [B, N, H], sums becomes attention to all of these keys.
    template <class T> void add_chunks(Stream, ChunkSlots, bool first_chunk, Rows size, const T* x,
                                       const Accum<T>* logsumexp_of_x, Accum<T>* sums, Accum<T>* logsumexp);
    // x, y [B, N, H, cols]: y_i = x_i if query i may attend to itself, else 0. Where a logsumexp is given that is not
    // minus infinity, the query attends to other keys, and y_i = 0 too.
    template <class T>
    void own_rows(Stream, ChunkSlots, Mask, int64_t cols, const Accum<T>* logsumexp, const T* x, Accum<T>* y);)

}  // namespace cairn
