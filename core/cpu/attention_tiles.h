#pragma once
// What the tiled attention kernels share: tiles of scores, their masks, dropout, and the gradient.
#include <algorithm>
#include <limits>

#include "core/cpu/gemm.h"
#include "core/cpu/vector.h"
#include "core/kernels/attention.h"
#include "core/parallel.h"
#include "core/workspace.h"

namespace cairn::cpu {

// Rows of a tile are queries, columns are keys. Forward, a tile of scores and its keys fit into an L2 cache; backward
// needs two tiles at once, so it takes fewer keys. With a mask, tiles are shorter, because only tiles that are hidden
// as a whole are skipped.
//
// Where the time goes, forward, N = 4096, one thread of an Intel with AMX, as parts of the 120 ms that the
// multiply-adds alone need: before packed keys and 512-bit vectors, the two products took 0.29 more (the blocks'
// beginnings and ends 0.08, a tile that lies in the L2 cache instead of the L1 cache 0.07), packing 0.17, exponentials
// 0.32, maxima 0.05. Two threads took half of the time of one. The exponentials take a quarter less time now: no
// limit above, no doubling, and four vectors at a time (7% forward, 5% both passes). Without success: tiles of
// 64 x 256 or 64 x 512 with packed keys (no faster), 14 or 28 queries at a time, whose scores stay in the L1 cache (no
// faster), 512 x 256 (2% forward), 384 x 256 backward (no faster with packed keys), large pages for the tiles (1%).
struct TileSize {
  int64_t queries, keys, keys_backward;
};
inline constexpr int64_t max_tile_queries = 256;
inline TileSize tile_size(const Mask& mask) {
  return mask.Positions::all() ? TileSize{max_tile_queries, 512, 384} : TileSize{128, 512, 256};
}

// Elements from a row of a tile to the next. Not a power of two: the rows would share a few sets of the L1 cache.
inline constexpr int64_t tile_row(int64_t keys) { return keys + 16; }

// Splits of the keys per (batch element, head), at most `limit`: more than 1 only when B H gives too few tasks. Depends
// on the shape alone.
inline int64_t key_splits(int64_t batch_heads, int64_t limit) {
  return std::clamp<int64_t>(batch_heads ? (8 + batch_heads - 1) / batch_heads : 1, 1, std::max<int64_t>(1, limit));
}

// Queries [q0, q1) by keys [k0, k1) of one (batch element, head).
struct Tile {
  int64_t batch, head, q0, q1, k0, k1;
  int64_t rows() const { return q1 - q0; }
  int64_t cols() const { return k1 - k0; }
  int64_t row() const { return tile_row(cols()); }
};

// Calls f(begin, end) for the ranges of positions that next(from, limit) finds, cut to at most `max_length`. If `from`
// and `max_length` are multiples of 4, so is begin.
template <class Next, class F>
void each_range(int64_t from, int64_t limit, int64_t max_length, Next&& next, F&& f) {
  while (from < limit) {
    const Range<int64_t> range = next(from, limit);
    from = std::min(range.end, range.begin + max_length);
    if (range.begin < limit) f(range.begin, from);
  }
}
// Calls f(begin, end) for the ranges of keys in [from, limit) that some query of [q0, q1) may see.
template <class F>
void each_keys(const Mask& mask, int64_t q0, int64_t q1, int64_t from, int64_t limit, int64_t max_length, F&& f) {
  each_range(
      from, limit, max_length, [&](int64_t at, int64_t end) { return mask.next_keys(q0, q1, at, end); }, f);
}
// Calls f(begin, end) for the ranges of queries in [0, limit) that may see some key of [k0, k1).
template <class F>
void each_queries(const Mask& mask, int64_t k0, int64_t k1, int64_t limit, int64_t max_length, F&& f) {
  each_range(
      0, limit, max_length, [&](int64_t at, int64_t end) { return mask.next_queries(k0, k1, at, end); }, f);
}

// scores [rows, cols] = scale Q K^T, minus infinity where masked. The rows are t.row() apart. `packed_keys`: see
// gemm_tile.
template <class T>
void score_tile(const AttentionOperands<T>& in, const Tile& t, T* scores, const T* packed_keys = nullptr) {
  const Mask& mask = in.mask;
  gemm_tile(false, true, t.rows(), t.cols(), in.size.D, in.size.scale, in.q.at(t.batch, t.q0, t.head), in.q.row_stride,
            in.k.at(t.batch, t.k0, t.head), in.k.row_stride, 0.0, scores, t.row(), packed_keys);
  // Loops without branches, which the compiler vectorizes.
  constexpr T hidden = -std::numeric_limits<T>::infinity();
  const auto positions = static_cast<const Positions&>(mask);
  if (!positions.sees_all(t.q0, t.q1, t.k0, t.k1)) {
    for (int64_t i = t.q0; i < t.q1; ++i) {
      T* const row = scores + (i - t.q0) * t.row();
      const auto query = int32_t(i), first = int32_t(t.k0);
      for (int32_t j = 0; j < int32_t(t.cols()); ++j) row[j] = positions.sees(query, first + j) ? row[j] : hidden;
    }
  }
  if (!mask.allowed) return;
  for (int64_t i = t.q0; i < t.q1; ++i) {
    const uint8_t* const allowed = mask.allowed_of(t.batch, t.head) + i * mask.allowed_query + t.k0 * mask.allowed_key;
    const int64_t step = mask.allowed_key;
    T* const row = scores + (i - t.q0) * t.row();
    for (int64_t j = 0; j < t.cols(); ++j) row[j] = allowed[j * step] ? row[j] : hidden;
  }
}

// factor[j - k0] = 1 / (1 - p) or 0 for keys [k0, k1) of one query. k0 is a multiple of 4.
template <class T>
void dropout_factors(const Dropout& dropout, PhiloxKey key, int64_t batch_head, int64_t query, int64_t k0, int64_t k1,
                     T* factor) {
  const uint32_t threshold = dropout.threshold();
  const T kept = T(dropout.scale());
  const uint32_t row = dropout.draw.row(batch_head);
  for (int64_t j = k0; j < k1; j += 4) {
    const PhiloxWords words = Dropout::words(key, row, uint32_t(query), uint32_t(j));
    for (int64_t l = j; l < std::min(j + 4, k1); ++l) factor[l - k0] = words.w[l - j] < threshold ? T(0) : kept;
  }
}

// Queries below q1 see no key from this one on.
inline int64_t end_of_keys(const Mask& mask, const AttentionSize& size, int64_t batch, int64_t head, int64_t q1) {
  const int64_t keys = mask.keys(batch, head, size.S);
  return mask.causal ? std::min(keys, q1) : keys;
}

template <class T>
void zero_rows(HeadView<T> x, int64_t batch, int64_t head, int64_t begin, int64_t end, int64_t cols) {
  for (int64_t i = begin; i < end; ++i) std::fill_n(x.at(batch, i, head), cols, T(0));
}

// Calls f(i, row) for i = 0 .. count-1: `row` is row rows[i] of (batch, head), n elements.
template <class T, class F>
void each_row(HeadView<T> x, int64_t batch, int64_t head, const int32_t* rows, int64_t count, int64_t n, F&& f) {
  each_fetched_row(
      count, n, [=](int64_t i) { return x.at(batch, rows[i], head); }, f);
}
// Copies these rows to `to` [count, n].
template <class T>
void gather_rows(HeadView<const T> x, int64_t batch, int64_t head, const int32_t* rows, int64_t count, int64_t n,
                 T* to) {
  each_row(x, batch, head, rows, count, n, [=](int64_t i, const T* row) { std::copy_n(row, n, to + i * n); });
}

// The top keys of i-clustered attention. The sum over values skips them; the gradient of their weights is dmass.
template <class T>
struct TopKeys {
  int64_t k = 0;                  // 0: none
  const int32_t* keys = nullptr;  // [B, H, N, k], rising, then -1
  const T* dmass = nullptr;       // [B, H, N]

  // Calls f(column) for the top keys of `row` in [0, B H N) that lie in the tile.
  template <class F>
  void each(int64_t row, const Tile& t, F&& f) const {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t key = keys[row * k + i];
      if (key < 0 || key >= t.k1) break;
      if (key >= t.k0) f(key - t.k0);
    }
  }
};

// Calls f(row, batch, query, head) for all rows of [B, H, N].
template <class F>
void each_query(const AttentionSize& size, F&& f) {
  parallel_for(size.B * size.H * size.N, 256, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t batch_head = row / size.N;
      f(row, batch_head / size.H, row % size.N, batch_head % size.H);
    }
  });
}

// dq = the sum over splits of partial [B, H, splits, N, D], in order.
template <class T>
void sum_splits(const T* partial, int64_t splits, const AttentionSize& size, HeadView<T> dq) {
  const int64_t N = size.N, D = size.D;
  each_query(size, [=](int64_t row, int64_t b, int64_t i, int64_t h) {
    const T* const parts = partial + (row / N * splits * N + i) * D;
    std::copy_n(parts, D, dq.at(b, i, h));
    for (int64_t split = 1; split < splits; ++split) add_scaled(dq.at(b, i, h), D, T(1), parts + split * N * D);
  });
}

// The gradient of tiled attention. With A the weights, recomputed from logsumexp, z dropout and g = dout:
//   dA = z (g V^T), but dmass at top keys;  dS = A (dA - delta);  dQ = scale dS K;  dK = scale dS^T Q;
//   dV = (z A without top keys)^T g
// delta [B, H, N] is the sum over keys of A dA. Writes all of dq, dk, dv. With `add`, it adds to dk and dv instead.
template <class T>
void attention_gradient(const AttentionOperands<T>& in, const TopKeys<T>& top, const Accum<T>* logsumexp,
                        const T* delta, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv,
                        bool add = false) {
  const auto [B, H, N, S, D, M, scale_] = in.size;
  const double scale = scale_;
  const Mask& mask = in.mask;
  const Dropout& dropout = in.dropout;
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  // A split of the keys computes dk and dv of its keys, and its part of dq.
  const int64_t tile_queries = tile_size(mask).queries, tile_keys = tile_size(mask).keys_backward;
  const int64_t key_tiles = (S + tile_keys - 1) / tile_keys;
  const int64_t splits = key_splits(B * H, key_tiles);
  Workspace workspace(Device::cpu);
  T* partial = nullptr;
  if (splits > 1) partial = workspace.take<T>(B * H * splits * N * D);

  parallel_tasks(B * H * splits, [&, N = N, S = S, D = D, M = M, H = H](int64_t task) {
    thread_local Scratch<T> weight_memory, gradient_memory, factor_memory, packed_memory;
    T* weights = weight_memory.take(tile_queries * tile_row(tile_keys));
    T* gradient = gradient_memory.take(tile_queries * tile_row(tile_keys));
    T* factor = factor_memory.take(tile_keys);
    T* const transposed_keys = packed_memory.take(packed_size(tile_keys, D + M) + packed_size(D, tile_keys));
    T* const packed_values = transposed_keys + packed_size(tile_keys, D);
    T* const packed_keys = packed_values + packed_size(tile_keys, M);
    const int64_t batch_head = task / splits, split = task % splits, b = batch_head / H, h = batch_head % H;
    const int64_t queries = mask.queries(b, h, N), keys = mask.keys(b, h, S);
    const int64_t first_tile = split * key_tiles / splits, end_tile = (split + 1) * key_tiles / splits;
    T* dq_rows = partial ? partial + task * N * D : dq.batch_head(b, h);
    const int64_t dq_stride = partial ? D : dq.row_stride;
    for (int64_t i = 0; i < N; ++i) std::fill_n(dq_rows + i * dq_stride, D, T(0));

    for (int64_t key_tile = first_tile; key_tile < end_tile; ++key_tile) {
      const int64_t first_key = key_tile * tile_keys, end_key = std::min(S, first_key + tile_keys);
      if (!add) zero_rows(dk, b, h, first_key, end_key, D);
      if (!add) zero_rows(dv, b, h, first_key, end_key, M);
      // Without a mask, all queries see the same keys: these are packed once.
      Range<int64_t> packed{0, 0};
      const auto add_tile = [&](int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
        const Tile t{b, h, q0, q1, k0, k1};
        const T *const key_rows = in.k.at(b, k0, h), *const value_rows = in.v.at(b, k0, h);
        const int64_t k_stride = in.k.row_stride, v_stride = in.v.row_stride;
        if (k0 != packed.begin || k1 != packed.end) {
          packed = {k0, k1};
          pack_tile(true, t.cols(), D, key_rows, k_stride, transposed_keys);
          pack_tile(true, t.cols(), M, value_rows, v_stride, packed_values);
          pack_tile(false, D, t.cols(), key_rows, k_stride, packed_keys);
        }
        score_tile(in, t, weights, transposed_keys);
        gemm_tile(false, true, t.rows(), t.cols(), M, 1.0, dout.at(b, q0, h), dout.row_stride, value_rows, v_stride,
                  0.0, gradient, t.row(), packed_values);
        for (int64_t i = q0; i < q1; ++i) {
          T *a = weights + (i - q0) * t.row(), *g = gradient + (i - q0) * t.row();
          const int64_t row = batch_head * N + i;
          const T shift = finite_shift(logsumexp[row]), row_delta = delta[row];
          if (dropout.active()) {
            dropout_factors(dropout, key, batch_head, i, k0, k1, factor);
            for (int64_t j = 0; j < t.cols(); ++j) g[j] *= factor[j];
          }
          // [grad. 9] dA over the top keys is dm
          if (top.k) top.each(row, t, [&](int64_t j) { g[j] = top.dmass[row]; });
          exponentials(a, t.cols(), shift, a);
          // [grad. 1] [grad. 4] dS, times the scale
          for (int64_t j = 0; j < t.cols(); ++j) g[j] = T(scale) * a[j] * (g[j] - row_delta);
          if (dropout.active())
            for (int64_t j = 0; j < t.cols(); ++j) a[j] *= factor[j];
          // [grad. 17] the other keys alone give dV
          if (top.k) top.each(row, t, [&](int64_t j) { a[j] = 0; });
        }
        // [grad. 2] [grad. 5] dV, then dK and dQ
        gemm_tile(true, false, t.cols(), M, t.rows(), 1.0, weights, t.row(), dout.at(b, q0, h), dout.row_stride, 1.0,
                  dv.at(b, k0, h), dv.row_stride);
        gemm_tile(true, false, t.cols(), D, t.rows(), 1.0, gradient, t.row(), in.q.at(b, q0, h), in.q.row_stride, 1.0,
                  dk.at(b, k0, h), dk.row_stride);
        gemm_tile(false, false, t.rows(), D, t.cols(), 1.0, gradient, t.row(), key_rows, k_stride, 1.0,
                  dq_rows + q0 * dq_stride, dq_stride, packed_keys);
      };
      const int64_t limit = std::min(keys, end_key);
      each_queries(mask, first_key, limit, queries, tile_queries, [&](int64_t q0, int64_t q1) {
        each_keys(mask, q0, q1, first_key, limit, tile_keys, [&](int64_t k0, int64_t k1) { add_tile(q0, q1, k0, k1); });
      });
    }
  });
  if (partial) sum_splits(partial, splits, in.size, dq);
}

}  // namespace cairn::cpu
