// Full attention in tiles. Each query has a running maximum and a running sum of exponentials. All maxima of a tile
// come before its exponentials, so that rows overlap: a row's exponentials wait for its maximum (4% at N = 128).
#include "core/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/attention_tiles.h"
#include "core/workspace.h"

namespace cairn::cpu {

template <class T>
void attention_forward(Stream, const AttentionOperands<T>& in, HeadView<T> out, Accum<T>* logsumexp) {
  const AttentionSize& size = in.size;
  const Mask& mask = in.mask;
  const Dropout& dropout = in.dropout;
  const int64_t tile_queries = tile_size(mask).queries, tile_keys = tile_size(mask).keys;
  const int64_t H = size.H, N = size.N, M = size.M, query_tiles = (N + tile_queries - 1) / tile_queries;
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  constexpr T none = -std::numeric_limits<T>::infinity();

  // If more than two tiles of queries see the same tiles of keys, these and their values are packed once.
  const int64_t key_tiles = (size.S + tile_keys - 1) / tile_keys;
  const int64_t keys_size = packed_size(tile_keys, size.D), values_size = packed_size(M, tile_keys);
  Workspace workspace(Device::cpu);
  T* all_packed = nullptr;
  const auto packed_at = [&](int64_t batch_head, int64_t k0) {
    return all_packed ? all_packed + (batch_head * key_tiles + k0 / tile_keys) * (keys_size + values_size) : nullptr;
  };
  if (query_tiles > 2 && mask.Positions::all()) {
    all_packed = workspace.take<T>(size.B * H * key_tiles * (keys_size + values_size));
    parallel_tasks(size.B * H * key_tiles, [&](int64_t task) {
      const int64_t batch_head = task / key_tiles, b = batch_head / H, h = batch_head % H;
      const int64_t k0 = task % key_tiles * tile_keys, keys = std::min(tile_keys, mask.keys(b, h, size.S) - k0);
      if (keys <= 0) return;
      T* const to = packed_at(batch_head, k0);
      pack_tile(true, keys, size.D, in.k.at(b, k0, h), in.k.row_stride, to);
      pack_tile(false, M, keys, in.v.at(b, k0, h), in.v.row_stride, to + keys_size);
    });
  }

  parallel_tasks(size.B * H * query_tiles, [&](int64_t task) {
    thread_local Scratch<T> score_memory, factor_memory;
    const int64_t batch_head = task / query_tiles, b = batch_head / H, h = batch_head % H;
    const int64_t q0 = task % query_tiles * tile_queries, end = std::min(N, q0 + tile_queries);
    const int64_t q1 = std::clamp(mask.queries(b, h, N), q0, end);
    T* scores = score_memory.take(tile_queries * tile_row(tile_keys));
    T* factor = factor_memory.take(tile_keys);
    T running_max[max_tile_queries], sum[max_tile_queries], correction[max_tile_queries];
    std::fill_n(running_max, tile_queries, none);
    std::fill_n(sum, tile_queries, T(0));
    bool first = true;  // `out` holds nothing yet

    each_keys(mask, q0, q1, 0, mask.keys(b, h, size.S), tile_keys, [&](int64_t k0, int64_t k1) {
      const T* const packed_keys = packed_at(batch_head, k0);
      const T* const packed_values = packed_keys ? packed_keys + keys_size : nullptr;
      // [lesson 6
      const Tile t{b, h, q0, q1, k0, k1};
      score_tile(in, t, scores, packed_keys);
      for (int64_t i = 0; i < t.rows(); ++i) {
        const T before = running_max[i];
        running_max[i] = std::max(before, maximum(scores + i * t.row(), t.cols()));
        correction[i] = exponential(before - finite_shift(running_max[i]));
      }
      for (int64_t i = 0; i < t.rows(); ++i) {
        T* row = scores + i * t.row();
        // [eq. 1] [eq. 4] The softmax; for clustered attention the queries are centroids.
        sum[i] = sum[i] * correction[i] + exponentials(row, t.cols(), finite_shift(running_max[i]), row);
        if (!first && correction[i] != 1) scale(out.at(b, q0 + i, h), M, correction[i]);
        if (dropout.active()) {
          dropout_factors(dropout, key, batch_head, q0 + i, k0, t.k1, factor);
          for (int64_t j = 0; j < t.cols(); ++j) row[j] *= factor[j];
        }
      }
      // [eq. 2] [eq. 5] Weights times values.
      gemm_tile(false, false, t.rows(), M, t.cols(), 1.0, scores, t.row(), in.v.at(b, k0, h), in.v.row_stride,
                first ? 0.0 : 1.0, out.at(b, q0, h), out.row_stride, packed_values);
      first = false;
      // lesson 6]
    });
    zero_rows(out, b, h, first ? q0 : q1, end, M);
    for (int64_t i = q0; i < end; ++i) {
      const T total = sum[i - q0];
      if (i < q1 && !first) scale(out.at(b, i, h), M, total == 0 ? T(0) : 1 / total);
      logsumexp[batch_head * N + i] = total == 0 ? none : running_max[i - q0] + std::log(total);
    }
  });
}

template <class T>
void attention_backward(Stream, const AttentionOperands<T>& in, HeadView<const T> out, const Accum<T>* logsumexp,
                        HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = in.size;
  Workspace workspace(Device::cpu);
  // [grad. 1] delta, the sum over keys of A dA, is g . out, dropout or not.
  T* delta = workspace.take<T>(size.B * size.H * size.N);
  each_query(size, [&](int64_t row, int64_t b, int64_t i, int64_t h) {
    delta[row] = dot(out.at(b, i, h), dout.at(b, i, h), size.M);
  });
  attention_gradient(in, TopKeys<T>{}, logsumexp, delta, dout, dq, dk, dv);
}

CAIRN_CPU_TYPES(attention_forward)
CAIRN_CPU_TYPES(attention_backward)

}  // namespace cairn::cpu
