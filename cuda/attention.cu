// Full attention (the paper's equations 1 and 2) and its gradient, in tiles (Dao et al. 2022): neither the N x S
// weights nor anything of that size exists in memory.
//
//   s_ij = scale q_i . k_j, minus infinity where masked;  A = softmax(s);  out_i = sum_j z_ij A_ij v_j,  z dropout
//   with g = dout:  dA = z (g V^T);  delta_i = g_i . out_i;  dS = A (dA - delta);
//   dQ = scale dS K;  dK = scale dS^T Q;  dV = (z A)^T g
//
// q, dq [B, N, H, D], k, dk [B, S, H, D], v, dv [B, S, H, M], out, dout [B, N, H, M], with any strides, in float32 or
// bfloat16; logsumexp [B, H, N] of the scores s. Sums are in float32. Nothing is added up by atomics: the gradient of
// the queries and that of the keys and values each work out the weights again, so that results are the same bits every
// time. Before them, output_states prepares delta, a warp a query.
//
// Launch, in either form: a block of 128 threads takes a tile of queries and goes through the keys; for dK and dV it
// takes a tile of keys and goes through the queries. It skips the tiles of the other side that a causal mask or a
// pattern of positions hides (core/kernels/positions.h): a tile begins where something is visible. It keeps the sums of
// its rows in registers, with a running maximum of the scores.
//
// In float32 arithmetic, out of shared memory (cuda/attention_tiles.cuh); on every GPU, for all that tensor cores do
// not take, bfloat16 too. Tiles are 64 x 64; a thread has 8 x 4 scores in registers and, of the sums, 8 rows of 4
// columns in each 64. Operands go through shared memory 16 columns or rows at a time, weights do as a tile: 27 KB a
// block. Any D and M: a block computes 64 or 128 columns of its result, and more columns are more blocks, which work
// out the weights again.
//
// On tensor cores (cuda/attention_mma.cuh); compute capability 8.0 or newer, a positive scale, D and M up to 128 and
// rows made of whole chunks of 16 bytes: bfloat16 as it is, float32 rounded to TF32 where Float32Products allows that.
// Weights and their gradients are rounded alike to be multiplied. Zeros fill up rows to 32, 64 or 128 columns. A block
// takes 64 rows of its own, a strip of 16 a warp, and 64, 32 or 16 of the other side at a time; while these are
// multiplied the next ones are copied to shared memory, of which a block has 20 KB (bfloat16, 32 columns) to 97 KB
// (TF32, 128 columns).
//
// With two strips a warp, what ldmatrix loads of the other side would serve both of them. But they need up to 255
// registers, so that a multiprocessor has two blocks, where it has three with one strip and 168 registers. Microseconds
// of a launch on an H100, predicted from the machine code (B = 4, H = 6, N = 1024, 4096 and 16384, bfloat16):
//                                one strip          two strips
//   attend_mma, D = 64           33, 467, 7295      49, 486, 7610
//   attend_mma, D = 128          58, 860, 13564     (spills registers)
//   query_gradient_mma, D = 64   35, 534, 8329      63, 701, 11051, and 32 keys at a time; with 64 it spills
//   query_gradient_mma, D = 128  68, 1065, 16656    91, 1065, 17010, and on sm_80 it spills
//   key_gradient_mma, D = 64     52, 772, 12220     73, 823, 13038
//   key_gradient_mma, D = 128    128, 1462, 23138   (the sums alone would take 256 registers)
//
// Nothing spills.
//
// Cost, if nothing is masked: 2 (D + M) operations a score forward and 2 (4 D + 3 M) backward (3 D + 2 M if the weights
// were worked out once). Traffic: the operands once for each tile of the other side, mostly from the L2 cache, some
// e (D + M) / 64 bytes a score. Floor: operands and results once. Bound by arithmetic.
//
// Where queries are few (those of clustered attention are centroids), keys are cut into splits.
#include "core/kernels/attention.h"

#include <algorithm>

#include "core/workspace.h"
#include "cuda/attention_mma.cuh"

namespace cairn::gpu {
namespace {

// ---------------------------------------------------------------------------------- in float32, out of shared memory

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 4 : 3)
    attend(AttentionProblem<T> p, HeadView<T> out, float* logsumexp) {
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
    const unsigned visible = visible_in(batch_head, q0, optimization_barrier(k0)), keep = keep_mask(dropout, q0, k0);
    // [eq. 1] [eq. 4] The softmax; for clustered attention the queries are centroids.
    weigh_products(s, p.scale_2(), visible, keep, softmax, sum);
    store_weights(shared, s);
    // [eq. 2] [eq. 5] Weights times values.
    add_weighted_rows<width>(p.rows(p.v, batch_head, k0, batch_head.keys, p.M(), task.column), shared, sum);
  }
  softmax.finish();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int query = q0 + tile_row(i);
    if (query >= p.N()) continue;
    const bool valid = query < batch_head.queries;
    if (!valid)
#pragma unroll
      for (int c = 0; c < width / 16; ++c) sum[i][c] = 0;  // even where a value is NaN
    write_row(sum[i], softmax.inverse(i) * dropout.scale,
              out.at(batch_head.batch, query, batch_head.head) + task.column, p.M() - task.column, p.packs);
    if (task.column == 0 && tile_column() == 0) logsumexp[batch_head.index * p.size.N + query] = softmax.logsumexp(i);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 3 : 2)
    query_gradient(AttentionProblem<T> p, HeadView<const T> dout, const QueryState* states, HeadView<T> dq) {
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
    const unsigned visible = visible_in(batch_head, q0, k0), keep = keep_mask(dropout, q0, k0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const QueryState state = states[batch_head.index * p.size.N + min(q0 + tile_row(i), p.N() - 1)];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        score_gradient(s[i][j], g[i][j], p.scale_2(), state, visible >> (4 * i + j) & 1,
                       keep >> (4 * i + j) & 1 ? dropout.scale : 0.0f);
    }
    store_weights(shared, g);
    add_weighted_rows<width>(p.rows(p.k, batch_head, k0, batch_head.keys, p.D(), task.column), shared, sum);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int query = q0 + tile_row(i);
    if (query < p.N())
      write_row(sum[i], query < batch_head.queries ? p.scale : 0.0f,
                dq.at(batch_head.batch, query, batch_head.head) + task.column, p.D() - task.column, p.packs);
  }
}

// Rows of the tile are keys here, and columns queries.
template <class T>
__global__ void __launch_bounds__(tile_threads, 2)
    key_gradient(AttentionProblem<T> p, HeadView<const T> dout, const QueryState* states, HeadView<T> dk,
                 HeadView<T> dv) {
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
    const unsigned visible = visible_to(batch_head, q0, k0), keep = kept_to(dropout, q0, k0);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const QueryState state = states[batch_head.index * p.size.N + min(q0 + tile_column() + j, p.N() - 1)];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        score_gradient(s[i][j], g[i][j], p.scale_2(), state, visible >> key_bit(i, j) & 1,
                       keep >> key_bit(i, j) & 1 ? dropout.scale : 0.0f);
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
    write_row(sum_k[i], p.scale, dk.at(batch_head.batch, key, batch_head.head) + task.column, p.D() - task.column,
              p.packs);
    write_row(sum_v[i], 1.0f, dv.at(batch_head.batch, key, batch_head.head) + task.column, p.M() - task.column,
              p.packs);
  }
}

// ----------------------------------------------------------------------------------------------------- the host's part

template <class T>
Launch mma_tiles(Stream stream, const AttentionProblem<T>& p, int64_t rows, int tile_rows, int shared, int splits = 1) {
  return {p.size.B * p.size.H * ceil_div(rows, tile_rows) * splits, mma_threads, size_t(shared), stream};
}

// A block for every tile of rows and of columns.
Launch tiles(Stream stream, const AttentionSize& size, int64_t rows, int64_t columns, int width) {
  return {size.B * size.H * ceil_div(rows, tile) * TileTask::tile_parts(columns, width), tile_threads, tile_bytes,
          stream};
}

}  // namespace

template <class T>
void attention_forward(Stream stream, const AttentionOperands<T>& in, HeadView<T> out, Accum<T>* logsumexp) {
  const AttentionSize& size = in.size;
  if (size.B * size.H * size.N == 0) return;
  const AttentionProblem<T> p = attention_problem("attention", in, out);
  if (suits_mma(p, out)) {
    const int64_t rows = size.B * size.H * size.N;
    Workspace workspace(Device::cuda);
    with_mma_shape<T>(size, [&]<int columns>(auto shape) {
      Splits splits = split_keys(p, shape.own, size.M, workspace);
      if (splits.partial) splits.softmax = workspace.take<float2>(splits.count * rows);
      launch(attend_mma<T, columns>, mma_tiles(stream, p, size.N, shape.own, shape.forward_bytes, splits.count), p,
             splits, out, logsumexp);
      if (splits.partial)
        launch(combine_splits<T>, {blocks(ceil_div(rows, rows_per_block)), 32 * rows_per_block, 0, stream}, size,
               in.dropout.scale(), splits, out, logsumexp);
    });
  } else if (size.M <= 64)
    launch(attend<T, 64>, tiles(stream, size, size.N, size.M, 64), p, out, logsumexp);
  else
    launch(attend<T, 128>, tiles(stream, size, size.N, size.M, 128), p, out, logsumexp);
}

template <class T>
void attention_backward(Stream stream, const AttentionOperands<T>& in, HeadView<const T> out, const Accum<T>* logsumexp,
                        HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = in.size;
  Workspace workspace(Device::cuda);
  const int64_t queries = size.B * size.H * size.N;
  const AttentionProblem<T> p = attention_problem("attention", in, dout, dq, dk, dv);
  QueryState* const states = workspace.take<QueryState>(queries);
  if (queries > 0)
    launch(output_states<T>, {blocks(ceil_div(queries, rows_per_block)), 32 * rows_per_block, 0, stream}, size, out,
           dout, logsumexp, states);
  const bool keys = size.B * size.H * size.S > 0;

  if (suits_mma(p, dout, dq, dk, dv)) {
    with_mma_shape<T>(size, [&]<int columns>(auto shape) {
      if (queries > 0) {
        const Splits splits = split_keys(p, shape.own, size.D, workspace);
        launch(query_gradient_mma<T, columns, NoTop>,
               mma_tiles(stream, p, size.N, shape.own, decltype(shape)::template query_gradient_bytes<NoTop>,
                         splits.count),
               p, splits, dout, states, NoTop{}, dq);
        add_up(stream, size, splits, size.D, dq);
      }
      if (keys)
        launch(key_gradient_mma<T, columns, NoTop>,
               mma_tiles(stream, p, size.S, shape.own, decltype(shape)::template key_gradient_bytes<NoTop>), p, dout,
               states, NoTop{}, dk, dv);
    });
    return;
  }
  if (queries > 0 && size.D <= 64)
    launch(query_gradient<T, 64>, tiles(stream, size, size.N, size.D, 64), p, dout, states, dq);
  else if (queries > 0)
    launch(query_gradient<T, 128>, tiles(stream, size, size.N, size.D, 128), p, dout, states, dq);
  if (keys)
    launch(key_gradient<T>, tiles(stream, size, size.S, std::max(size.D, size.M), tile), p, dout, states, dk, dv);
}

CAIRN_GPU_TYPES(attention_forward)
CAIRN_GPU_TYPES(attention_backward)

}  // namespace cairn::gpu
