#pragma once
// Attention and its gradient in float32 arithmetic, for every GPU and every problem that the tensor cores cannot take.
// Tiles are 64 x 64 (cuda/attention_tiles.cuh). A thread has 8 x 4 scores in registers, and of the sums 8 rows of 4
// columns in each 64. Operands go through shared memory 16 columns or rows at a time, weights as a tile: 27 KB a block.
// D and M may be any size: a block computes 64 or 128 columns of the result. Further columns are for further blocks,
// which compute the weights again.
//
// Top is NoTop for full attention. For centroids (cuda/centroid_topk.cu) it is TopKeys: a query's top keys do not
// contribute to its output and to dV, and the gradients of their weights are given.
#include <algorithm>

#include "cuda/attention_problem.cuh"

namespace cairn::gpu {

// Whether the key is a top key of the query, in the order of visible_bits.
template <bool key_rows, class Top>
__device__ unsigned top_bits(const Top& top, const AttentionSize& size, const BatchHead& batch_head, int q0, int k0) {
  if (!Top::some) return 0;
  return tile_bits<key_rows>(
      q0, k0, [&](int query, int key) { return unsigned(top.bits_from(size, batch_head, query, key)) & 15u; });
}

// logsumexp may be null.
template <class T, int width, class Top>
__global__ void __launch_bounds__(tile_threads, 2)
    attend(AttentionProblem<T> p, Top top, HeadView<T> out, float* logsumexp) {
  float* const shared = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, p.size.M, width);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const int q0 = task.row;
  RunningSoftmax<8, 16> softmax;
  float sum[8][width / 16] = {};

  for (int k0 = batch_head.next_key(q0, tile, 0); k0 < batch_head.keys; k0 = batch_head.next_key(q0, tile, k0 + tile)) {
    TileOf s;
    row_products(p.rows(p.q, batch_head, q0, batch_head.queries, p.D()),
                 p.rows(p.k, batch_head, k0, batch_head.keys, p.D()), shared, s);
    const unsigned visible = visible_bits<false>(batch_head, q0, k0);
    const unsigned keep = kept_bits<false>(dropout, q0, k0) & ~top_bits<false>(top, p.size, batch_head, q0, k0);
    // [eq. 1] [eq. 4] The softmax; for clustered attention the queries are centroids.
    weigh_products(s, p.scale_2(), visible, keep, softmax, sum);
    store_weights(shared, s);
    // [eq. 2] [eq. 5] Weights times values. [eq. 10] [eq. 17] Of the keys outside top.
    add_weighted_rows<width>(p.rows(p.v, batch_head, k0, batch_head.keys, p.M(), task.column), shared, sum);
  }
  softmax.finish();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int query = q0 + tile_row(i);
    if (query >= p.N()) continue;
    write_row(sum[i], softmax.inverse(i) * dropout.scale, batch_head.row(out, query) + task.column,
              p.M() - task.column);
    if (logsumexp && task.column == 0 && tile_column() == 0)
      logsumexp[batch_head.index * p.size.N + query] = softmax.logsumexp(i);
  }
}

template <class T, int width, class Top>
__global__ void __launch_bounds__(tile_threads, 2)
    query_gradient(AttentionProblem<T> p, HeadView<const T> dout, const typename Top::State* states, Top top,
                   HeadView<T> dq) {
  float* const shared = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, p.size.D, width);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const int q0 = task.row;
  float sum[8][width / 16] = {};

  for (int k0 = batch_head.next_key(q0, tile, 0); k0 < batch_head.keys; k0 = batch_head.next_key(q0, tile, k0 + tile)) {
    TileOf s, g;
    row_products(p.rows(p.q, batch_head, q0, batch_head.queries, p.D()),
                 p.rows(p.k, batch_head, k0, batch_head.keys, p.D()), shared, s);
    row_products(p.rows(dout, batch_head, q0, batch_head.queries, p.M()),
                 p.rows(p.v, batch_head, k0, batch_head.keys, p.M()), shared, g);
    const unsigned visible = visible_bits<false>(batch_head, q0, k0), keep = kept_bits<false>(dropout, q0, k0);
    const unsigned in_top = top_bits<false>(top, p.size, batch_head, q0, k0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto state = states[batch_head.index * p.size.N + min(q0 + tile_row(i), p.N() - 1)];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int bit = 4 * i + j;
        score_gradient(s[i][j], g[i][j], p.scale_2(), state, visible >> bit & 1, in_top >> bit & 1,
                       keep >> bit & 1 ? dropout.scale : 0.0f);
      }
    }
    store_weights(shared, g);
    add_weighted_rows<width>(p.rows(p.k, batch_head, k0, batch_head.keys, p.D(), task.column), shared, sum);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int query = q0 + tile_row(i);
    if (query < p.N())
      write_row(sum[i], query < batch_head.queries ? p.scale : 0.0f, batch_head.row(dq, query) + task.column,
                p.D() - task.column);
  }
}

// The tile's rows are keys here, and its columns queries.
template <class T, class Top>
__global__ void __launch_bounds__(tile_threads, 2)
    key_gradient(AttentionProblem<T> p, HeadView<const T> dout, const typename Top::State* states, Top top,
                 HeadView<T> dk, HeadView<T> dv) {
  float* const shared = dynamic_shared<float>();
  const TileTask task(p.size.S, tile, max(p.size.D, p.size.M), tile);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const int k0 = task.row;
  float sum_k[8][4] = {}, sum_v[8][4] = {};

  for (int q0 = batch_head.next_query(k0, tile, 0); q0 < batch_head.queries;
       q0 = batch_head.next_query(k0, tile, q0 + tile)) {
    TileOf s, g;
    row_products(p.rows(p.k, batch_head, k0, batch_head.keys, p.D()),
                 p.rows(p.q, batch_head, q0, batch_head.queries, p.D()), shared, s);
    row_products(p.rows(p.v, batch_head, k0, batch_head.keys, p.M()),
                 p.rows(dout, batch_head, q0, batch_head.queries, p.M()), shared, g);
    const unsigned visible = visible_bits<true>(batch_head, q0, k0), keep = kept_bits<true>(dropout, q0, k0);
    const unsigned in_top = top_bits<true>(top, p.size, batch_head, q0, k0);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto state = states[batch_head.index * p.size.N + min(q0 + tile_column() + j, p.N() - 1)];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int bit = key_bit(i, j);
        score_gradient(s[i][j], g[i][j], p.scale_2(), state, visible >> bit & 1, in_top >> bit & 1,
                       keep >> bit & 1 ? dropout.scale : 0.0f);
      }
    }
    if (task.column < p.M()) {  // [grad. 2] [grad. 5] dV, then dK
      store_weights(shared, s);
      add_weighted_rows<tile>(p.rows(dout, batch_head, q0, batch_head.queries, p.M(), task.column), shared, sum_v);
    }
    if (task.column < p.D()) {
      store_weights(shared, g);
      add_weighted_rows<tile>(p.rows(p.q, batch_head, q0, batch_head.queries, p.D(), task.column), shared, sum_k);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int key = k0 + tile_row(i);
    if (key >= p.S()) continue;
    const bool valid = key < batch_head.keys;
    write_row(sum_k[i], valid ? p.scale : 0.0f, batch_head.row(dk, key) + task.column, p.D() - task.column, top.add);
    write_row(sum_v[i], valid ? 1.0f : 0.0f, batch_head.row(dv, key) + task.column, p.M() - task.column, top.add);
  }
}

template <class T, class Top>
void attend_simt(Stream stream, const AttentionProblem<T>& p, Top top, HeadView<T> out, float* logsumexp) {
  const int64_t tiles = p.size.B * p.size.H * ceil_div(p.size.N, tile);
  with_tile_width(p.size.M, [&]<int width> {
    launch<attend<T, width, Top>, tile_bytes>(tile_blocks(stream, tiles, p.size.M, width), p, top, out, logsumexp);
  });
}

template <class T, class Top>
void gradients_simt(Stream stream, const AttentionProblem<T>& p, HeadView<const T> dout,
                    const typename Top::State* states, Top top, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = p.size;
  const int64_t heads = size.B * size.H, query_tiles = heads * ceil_div(size.N, tile),
                key_tiles = heads * ceil_div(size.S, tile);
  if (query_tiles > 0)
    with_tile_width(size.D, [&]<int width> {
      launch<query_gradient<T, width, Top>, tile_bytes>(tile_blocks(stream, query_tiles, size.D, width), p, dout,
                                                        states, top, dq);
    });
  if (key_tiles > 0)
    launch<key_gradient<T, Top>, tile_bytes>(tile_blocks(stream, key_tiles, std::max(size.D, size.M), tile), p, dout,
                                             states, top, dk, dv);
}

}  // namespace cairn::gpu
