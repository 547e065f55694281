// Attention of sorted positions in chunks (Reformer, Kitaev et al. 2020, section 2) and its gradient, over R rounds of
// sorting. nn/attention/lsh.cpp has the whole variant and its deviations, core/kernels/bucket_attention.h the
// definition.
//
//   s_ij = scale q_i . k_j for the pairs (round, j) that query i sees: j in the chunk of i or the chunk before, in the
//   same bucket, without i itself;  A = softmax over these pairs;  out_i = sum z_ij A_ij v_j, z dropout, or
//   z_ii v_i if there are no pairs
//   with g = dout:  dA = z (g V^T);  delta_i = g_i . out_i;  dS = A (dA - delta);
//   dQ = scale dS K;  dK = scale dS^T Q;  dV = (z A)^T g
//
// q, k, dq, dk [B, N, H, D], v, dv, out, dout [B, N, H, M], with any strides, in float32 or bfloat16; labels and
// permutation [B, H, R, N], offsets [B, H, R, buckets + 1]; logsumexp [B, H, N]. Sums are in float32, in a fixed
// order, without atomics.
//
// Launch. Each round has a launch of its own. In a round a query is in one chunk only, so a block has its queries (or
// keys) to itself, and adds to the results of earlier rounds. A block takes 64 neighbors of the sorted order, whatever
// the chunk size is. It goes through the places from the chunk before its first chunk to the end of its last chunk, 64
// at a time, as tiles in float32 (attention_tiles.cuh) with gathered rows. One bit for each score says whether the
// query sees the key.
//   start_sums      what a result is if a query sees no key in any round: its own value, or zeros; a warp takes a row
//   attend_chunks   the mean of the values that a query sees and their logsumexp, merged with those of earlier rounds.
//                   It reads one array of logsumexps and writes another, because blocks with other columns read them
//                   too.
//   output_states   delta; a warp takes a query
//   bucket_query_gradient  dQ, in the blocks of attend_chunks
//   bucket_key_gradient    a block takes 64 keys, and goes through the queries of their chunks and the chunk after
//   round_sums      sums become bfloat16; a warp takes a row
//   invert_orders   for deduplication: the place of each position. By it a pair that has met in an earlier round, and
//                   so counts there, is recognized.
// For bfloat16, sums are in float32 in the workspace: N M floats forward, N (2 D + M) backward.
// Cost: with chunks of 32, 64 queries meet 96 keys; 128 are computed, and a query sees at most 64. Traffic: the
// operands twice or three times in each round, mostly from the L2 cache, and the sums read and written once in each
// round. Floor: operands and results once. Bound by arithmetic; tensor cores would make it bound by memory.
// Registers for sm_80 (nothing spills): attend_chunks 204 (246 for 128 columns), the gradients 255.
#include "core/kernels/bucket_attention.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/elementwise.h"
#include "core/workspace.h"
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {
namespace {

// A place of the sorted order.
struct alignas(16) Place {
  int position = -1, bucket = -1;
  int chunk = -1;   // -1: the place does not take part
  int before = -1;  // the chunk before, to which this one attends too
};

// Rows of a matrix in the order of places.
template <class T>
struct PlacedRows {
  using Element = T;
  const T* data;
  int64_t stride;
  const Place* places;
  int rows, columns;

  __device__ bool has(int r) const { return r < rows && places[r].chunk >= 0; }
  __device__ const T* row(int r) const { return data + places[r].position * stride; }
  __device__ void skip_rows(int n) { places += n, rows -= n; }
};

// A block's view of one round of a batch_head: n places in chunks of `size`. (It holds no address of its own members,
// so that they stay in registers.)
template <class T>
struct Work {
  const AttentionProblem<T>& p;
  const BucketRounds& rounds;
  BatchHead batch_head;
  TileDropout dropout;
  int64_t round;
  const int32_t *order, *labels;
  int n, size, chunks;
  Place *queries, *keys;  // of the present tile, in shared memory

  __device__ Work(const AttentionProblem<T>& problem, const BucketRounds& all_rounds, const TileTask& task,
                  int64_t of_round, Place* of_queries, Place* of_keys)
      : p(problem),
        rounds(all_rounds),
        batch_head(p.size, p.mask, task.batch_head),
        dropout(p.dropout, batch_head),
        round(of_round),
        queries(of_queries),
        keys(of_keys) {
    const int64_t row = rounds.row(batch_head.index, round);
    const Chunks all = rounds.chunks(row);
    order = rounds.order(row), labels = rounds.labels(row);
    n = int(all.n), size = int(all.size), chunks = int(all.count());
  }

  // The places of the keys (or queries) that the queries (or keys) of the tile at `first` meet, each once. Negative
  // places are those of the last chunk, and places after the last chunk are those of the first.
  __device__ int last_chunk(int first) const { return (min(first + tile, n) - 1) / size; }
  __device__ Range<int> keys_of(int first) const {
    if (first >= n) return {0, 0};
    const int chunk = first / size, last = last_chunk(first);
    const bool all = chunk == 0 && last == chunks - 1;
    return {all ? 0 : (chunk - 1) * size, min((last + 1) * size, n)};
  }
  __device__ Range<int> queries_of(int first) const {
    if (first >= n) return {0, 0};
    const int chunk = first / size, last = last_chunk(first);
    if (last < chunks - 1) return {chunk * size, min((last + 2) * size, n)};
    return {chunk * size, chunk == 0 ? n : (chunks + 1) * size};
  }

  // The contents of a place. Positions from `limit` on do not take part.
  __device__ Place at(int place, int limit) const {
    Place result;
    if (place >= p.N()) return result;
    result.position = order[place];
    if (place >= n || result.position >= limit) return result;
    result.bucket = labels[result.position];
    result.chunk = place / size;
    result.before = result.chunk > 0 ? result.chunk - 1 : chunks - 1;
    return result;
  }
  // Load the block's own places, or those of the tile that it meets. All threads see them on return.
  __device__ void load_own(Place* to, int first, int limit) const {
    if (int(threadIdx.x) < tile) to[threadIdx.x] = at(first + int(threadIdx.x), limit);
    __syncthreads();
  }
  __device__ void load_met(Place* to, int first, int end, int limit) const {
    __syncthreads();  // all have read the previous places
    int place = first + int(threadIdx.x);
    const bool some = place < end;
    if (place < 0)
      place += chunks * size;
    else if (place >= chunks * size)
      place -= chunks * size;
    if (int(threadIdx.x) < tile) to[threadIdx.x] = some && place < n ? at(place, limit) : Place{};
    __syncthreads();
  }
  __device__ PlacedRows<T> rows(const HeadView<const T>& x, const Place* places, int columns, int column = 0) const {
    return {batch_head.row(x, 0) + column, x.row_stride, places, tile, columns - column};
  }
  __device__ bool sees(int i, int j) const {
    const Place query = queries[i], key = keys[j];
    return query.chunk >= 0 && key.chunk >= 0 && (key.chunk == query.chunk || key.chunk == query.before) &&
           (!rounds.bucket_mask || key.bucket == query.bucket) && key.position != query.position &&
           batch_head.visible(query.position, key.position) &&
           !(rounds.deduplicate && rounds.met_before(batch_head.index, round, query.position, key.position));
  }
  __device__ bool keep(int i, int j) const {
    const int position = keys[j].position;
    return dropout.keep(queries[i].position, position & ~3) >> position % 4 & 1;
  }
  // The row of x that the sums of a place are added to; null where the place has no position.
  __device__ float* row_of(const HeadView<float>& x, const Place& place) const {
    return place.position < 0 ? nullptr : batch_head.row(x, place.position);
  }
};

// The factor of a query's own value in its output: 0 if the query sees other keys.
template <class T>
__device__ float self_factor(const AttentionProblem<T>& p, const float* logsumexp, int64_t row) {
  const BatchHead batch_head(p.size, p.mask, row / p.size.N);
  const int i = int(row % p.size.N);
  if (logsumexp[row] != -INFINITY || !batch_head.visible(i, i)) return 0;
  const TileDropout dropout(p.dropout, batch_head);
  return !dropout.active || dropout.keep(i, i & ~3) >> i % 4 & 1 ? dropout.scale : 0.0f;
}

// to = the rows of x for queries that see themselves alone, 0 for others. x may be null: zeros.
template <class T>
__global__ void __launch_bounds__(row_threads<32>)
    start_sums(AttentionProblem<T> p, const float* logsumexp, HeadView<const T> x, int64_t columns,
               HeadView<float> to) {
  each_row<32>(p.size.B * p.size.H * p.size.N, [&](int64_t row) {
    const float factor = x ? self_factor(p, logsumexp, row) : 0.0f;
    const T* const from = numbered_row(p.size, x, row);
    float* const sums = numbered_row(p.size, to, row);
    for (int64_t c = row_lane<32>(); c < columns; c += 32) sums[c] = factor == 0 ? 0.0f : factor * float(from[c]);
  });
}

template <class T>
__global__ void __launch_bounds__(row_threads<32>)
    round_sums(AttentionSize size, HeadView<const float> sums, int64_t columns, HeadView<T> to) {
  each_row<32>(size.B * size.H * size.N, [&](int64_t row) {
    const float* const from = numbered_row(size, sums, row);
    T* const result = numbered_row(size, to, row);
    for (int64_t c = row_lane<32>(); c < columns; c += 32) result[c] = T(from[c]);
  });
}

// `before`: the logsumexps of earlier rounds.
template <class T, int width>
__global__ void __launch_bounds__(tile_threads, 2)
    attend_chunks(AttentionProblem<T> p, BucketRounds rounds, int64_t round, HeadView<float> out, const float* before,
                  float* logsumexp) {
  __shared__ Place queries[tile], keys[tile];
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, p.size.M, width);
  const Work<T> work(p, rounds, task, round, queries, keys);
  const Range<int> range = work.keys_of(task.row);
  RunningSoftmax<8, 16> softmax;
  float sum[8][width / 16] = {};

  work.load_own(queries, task.row, work.batch_head.queries);
  for (int k0 = range.begin; k0 < range.end; k0 += tile) {
    work.load_met(keys, k0, range.end, work.batch_head.keys);
    TileOf s;
    row_products(work.rows(p.q, queries, p.D()), work.rows(p.k, keys, p.D()), workspace, s);
    const unsigned seen = pair_bits([&](int, int i, int j) { return work.sees(i, j); });
    unsigned keep = seen;
    if (work.dropout.active)
      keep = pair_bits([&](int bit, int i, int j) { return (seen >> bit & 1) && work.keep(i, j); });
    weigh_products(s, p.scale_2(), seen, keep, softmax, sum);
    store_weights(workspace, s);
    add_weighted_rows<width>(work.rows(p.v, keys, p.M(), task.column), workspace, sum);
  }
  softmax.finish();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const Place query = queries[tile_row(i)];
    float* const to = work.row_of(out, query);
    if (!to) continue;
    const int64_t row = work.batch_head.index * p.size.N + query.position;
    const MergedKeys<float> merged(before[row], softmax.logsumexp(i));
    if (task.column == 0 && tile_column() == 0) logsumexp[row] = merged.logsumexp;
    if (softmax.sum[i] == 0) continue;  // sees none of these keys
    const float factor = merged.new_factor * softmax.inverse(i) * work.dropout.scale;
#pragma unroll
    for (int c = 0; c < width / 16; ++c) {  // without an earlier key, `to` is the query's own value, perhaps NaN
      const int column = task.column + tile_column() + c % 4 + 64 * (c / 4);
      sum[i][c] *= factor;
      if (merged.old_factor != 0 && column < p.M()) sum[i][c] = fmaf(merged.old_factor, to[column], sum[i][c]);
    }
    write_row(sum[i], 1.0f, to + task.column, p.M() - task.column);
  }
}

// ---------------------------------------------------------------------------------------------------------- backward

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, 2)
    bucket_query_gradient(AttentionProblem<T> p, BucketRounds rounds, int64_t round, HeadView<const T> dout,
                          const QueryState* states, HeadView<float> dq) {
  __shared__ Place queries[tile], keys[tile];
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, p.size.D, width);
  const Work<T> work(p, rounds, task, round, queries, keys);
  const Range<int> range = work.keys_of(task.row);
  float sum[8][width / 16] = {};

  work.load_own(queries, task.row, work.batch_head.queries);
  for (int k0 = range.begin; k0 < range.end; k0 += tile) {
    work.load_met(keys, k0, range.end, work.batch_head.keys);
    TileOf s, g;
    row_products(work.rows(p.q, queries, p.D()), work.rows(p.k, keys, p.D()), workspace, s);
    row_products(work.rows(dout, queries, p.M()), work.rows(p.v, keys, p.M()), workspace, g);
    const unsigned seen = pair_bits([&](int, int i, int j) { return work.sees(i, j); });
    unsigned keep = seen;
    if (work.dropout.active)
      keep = pair_bits([&](int bit, int i, int j) { return (seen >> bit & 1) && work.keep(i, j); });
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const QueryState state = states[work.batch_head.index * p.size.N + max(queries[tile_row(i)].position, 0)];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        score_gradient(s[i][j], g[i][j], p.scale_2(), state, seen >> (4 * i + j) & 1, false,
                       keep >> (4 * i + j) & 1 ? work.dropout.scale : 0.0f);
    }
    store_weights(workspace, g);
    add_weighted_rows<width>(work.rows(p.k, keys, p.D(), task.column), workspace, sum);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (float* const to = work.row_of(dq, queries[tile_row(i)]))
      write_row(sum[i], p.scale, to + task.column, p.D() - task.column, true);
}

// The tile's rows are keys here, and its columns queries.
template <class T>
__global__ void __launch_bounds__(tile_threads, 2)
    bucket_key_gradient(AttentionProblem<T> p, BucketRounds rounds, int64_t round, HeadView<const T> dout,
                        const QueryState* states, HeadView<float> dk, HeadView<float> dv) {
  __shared__ Place queries[tile], keys[tile];
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, max(p.size.D, p.size.M), tile);
  const Work<T> work(p, rounds, task, round, queries, keys);
  const Range<int> range = work.queries_of(task.row);
  float sum_k[8][4] = {}, sum_v[8][4] = {};

  work.load_own(keys, task.row, work.batch_head.keys);
  for (int q0 = range.begin; q0 < range.end; q0 += tile) {
    work.load_met(queries, q0, range.end, work.batch_head.queries);
    TileOf s, g;
    row_products(work.rows(p.k, keys, p.D()), work.rows(p.q, queries, p.D()), workspace, s);
    row_products(work.rows(p.v, keys, p.M()), work.rows(dout, queries, p.M()), workspace, g);
    const unsigned seen = pair_bits([&](int, int i, int j) { return work.sees(j, i); });
    unsigned keep = seen;
    if (work.dropout.active)
      keep = pair_bits([&](int bit, int i, int j) { return (seen >> bit & 1) && work.keep(j, i); });
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const QueryState state = states[work.batch_head.index * p.size.N + max(queries[tile_column() + j].position, 0)];
#pragma unroll
      for (int i = 0; i < 8; ++i)
        score_gradient(s[i][j], g[i][j], p.scale_2(), state, seen >> (4 * i + j) & 1, false,
                       keep >> (4 * i + j) & 1 ? work.dropout.scale : 0.0f);
    }
    if (task.column < p.M()) {
      store_weights(workspace, s);
      add_weighted_rows<tile>(work.rows(dout, queries, p.M(), task.column), workspace, sum_v);
    }
    if (task.column < p.D()) {
      store_weights(workspace, g);
      add_weighted_rows<tile>(work.rows(p.q, queries, p.D(), task.column), workspace, sum_k);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const Place key = keys[tile_row(i)];
    if (key.position < 0) continue;
    write_row(sum_k[i], p.scale, work.row_of(dk, key) + task.column, p.D() - task.column, true);
    write_row(sum_v[i], 1.0f, work.row_of(dv, key) + task.column, p.M() - task.column, true);
  }
}

constexpr int order_threads = 256;

// rows: pairs (batch_head, round).
__global__ void __launch_bounds__(order_threads) invert_orders(BucketRounds rounds, int64_t rows, int32_t* places) {
  const int64_t i = int64_t(blockIdx.x) * order_threads + threadIdx.x, row = i / rounds.N;
  if (row < rows) places[row * rounds.N + rounds.order(row)[i % rounds.N]] = int32_t(i % rounds.N);
}

// --------------------------------------------------------------------------------------------------- the host's part

// The rounds, with what kernels need besides.
BucketRounds prepared(Stream stream, const AttentionSize& size, BucketRounds rounds, Workspace& workspace) {
  check(size.N < 0x3fffffff, "bucket_attention on CUDA: expected fewer than 2^30 - 1 queries, got ", size.N);
  rounds.chunk = std::min(rounds.chunk, size.N);  // places are ints
  if (!rounds.deduplicate) return rounds;
  const int64_t rows = size.B * size.H * rounds.rounds;
  int32_t* const places = workspace.take<int32_t>(rows * size.N);
  launch(invert_orders, {ceil_div(rows * size.N, order_threads), order_threads, 0, stream}, rounds, rows, places);
  rounds.places = places;
  return rounds;
}

// Memory for the sums [B, N, H, columns] of a result, in float32: the result itself if it is. They start from the rows
// of x.
template <class T>
HeadView<float> sums_of(Stream stream, const AttentionProblem<T>& p, HeadView<T> result, int64_t columns,
                        const float* logsumexp, HeadView<const T> x, Workspace& workspace) {
  const auto& [B, H, N, S, D, M, scale] = p.size;
  HeadView<float> sums;
  if constexpr (std::is_same_v<T, float>)
    sums = result;
  else
    sums = {workspace.take<float>(B * N * H * columns), N * H * columns, H * columns, columns};
  launch(start_sums<T>, over_rows<32>(stream, B * H * N), p, logsumexp, x, columns, sums);
  return sums;
}

// Rounds the sums to bfloat16, unless they are the result.
template <class T>
void finish(Stream stream, const AttentionSize& size, HeadView<const float> sums, int64_t columns, HeadView<T> result) {
  if constexpr (!std::is_same_v<T, float>)
    launch(round_sums<T>, over_rows<32>(stream, size.B * size.H * size.N), size, sums, columns, result);
}

}  // namespace

template <class T>
void bucket_attention_forward(Stream stream, const AttentionOperands<T>& in, BucketRounds rounds, HeadView<T> out,
                              Accum<T>* logsumexp) {
  const AttentionSize& size = in.size;
  const int64_t queries = size.B * size.H * size.N, tiles = size.B * size.H * ceil_div(size.N, tile);
  if (queries == 0) return;
  Workspace workspace(Device::cuda);
  const AttentionProblem<T> p("bucket_attention", in);
  rounds = prepared(stream, size, rounds, workspace);
  float* const other = workspace.take<float>(queries);
  float* now = rounds.rounds % 2 == 0 ? logsumexp : other;  // the last round writes the result
  fill(stream, queries, -INFINITY, DType::float32, now);
  const HeadView<float> sums = sums_of(stream, p, out, size.M, now, in.v, workspace);
  for (int64_t round = 0; round < rounds.rounds; ++round) {
    const float* const before = now;
    now = before == logsumexp ? other : logsumexp;
    with_tile_width(size.M, [&]<int width> {
      launch(attend_chunks<T, width>, tile_blocks(stream, tiles, size.M, width), p, rounds, round, sums, before, now);
    });
  }
  finish(stream, size, sums, size.M, out);
}

template <class T>
void bucket_attention_backward(Stream stream, const AttentionOperands<T>& in, BucketRounds rounds,
                               HeadView<const T> out, const Accum<T>* logsumexp, HeadView<const T> dout, HeadView<T> dq,
                               HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = in.size;
  const int64_t queries = size.B * size.H * size.N, tiles = size.B * size.H * ceil_div(size.N, tile);
  if (queries == 0) return;
  Workspace workspace(Device::cuda);
  const AttentionProblem<T> p("bucket_attention", in);
  rounds = prepared(stream, size, rounds, workspace);
  QueryState* const states = workspace.take<QueryState>(queries);
  const HeadView<float> of_q = sums_of(stream, p, dq, size.D, logsumexp, {}, workspace);
  const HeadView<float> of_k = sums_of(stream, p, dk, size.D, logsumexp, {}, workspace);
  const HeadView<float> of_v = sums_of(stream, p, dv, size.M, logsumexp, dout, workspace);
  launch(output_states<T>, over_rows<32>(stream, queries), size, out, dout, logsumexp, states);
  for (int64_t round = 0; round < rounds.rounds; ++round) {
    with_tile_width(size.D, [&]<int width> {
      launch(bucket_query_gradient<T, width>, tile_blocks(stream, tiles, size.D, width), p, rounds, round, dout, states,
             of_q);
    });
    launch(bucket_key_gradient<T>, tile_blocks(stream, tiles, std::max(size.D, size.M), tile), p, rounds, round, dout,
           states, of_k, of_v);
  }
  finish(stream, size, of_q, size.D, dq);
  finish(stream, size, of_k, size.D, dk);
  finish(stream, size, of_v, size.M, dv);
}

CAIRN_GPU_TYPES(bucket_attention_forward)
CAIRN_GPU_TYPES(bucket_attention_backward)

}  // namespace cairn::gpu
