// Linear attention (Katharopoulos et al. 2020) and its gradient; core/kernels/linear_attention.h has the definition.
// Deviation: dropout, which the paper has none of, drops the value of a key for all queries of a head.
//
// Forward and backward are one thing, said of two sides. Row r of a side has the features f_r = phi(x_r) [D] and the
// vector [a_r y_r, b_r] [M + 1]:
//   keys     x = k, y = v,        a_j = z_j (dropout), b_j = 1
//   queries  x = q, y = g = dout, a_i = 1 / d_i,       b_i = -(g_i . out_i) / d_i
// and takes from the rows o of the other side that it sees
//   attend         the sum of (f . f_o) [a_o y_o, b_o]: a query n and d, out = n / d; a key dv / z
//   differentiate  phi'(x) times the sum of (a a_o y . y_o + b b_o) f_o: a query dq, a key dk
// Summed over o, the product f_o [a_o y_o, b_o]^T is a matrix [D, M] and a vector [D], for all rows that see the same.
// If causal, these are chunks of 64 rows, and their own chunk is done by pairs.
//
// q, dq [B, N, H, D], k, dk [B, S, H, D], v, dv [B, S, H, M], out, dout [B, N, H, M], with any strides, in float32 or
// bfloat16; denominators [B, H, N]. Sums are in float32, and nothing is added up by atomics.
//
// Launch, with tiles of 64 x 64 by blocks of 128 threads as in cuda/attention_tiles.cuh:
//   sum_rows       a block has 64 x 64 elements of a matrix and goes through the rows of a part of a side: a chunk if
//                  causal, otherwise as many rows as leave enough blocks to fill the GPU
//   combine_sums   a thread an element: if causal the sum over the chunks before (of queries: behind) each chunk,
//                  otherwise that of all parts; in order
//   attend         a block has 64 rows and 64 or 128 columns of the result
//   differentiate  the same with 64 columns
//   query_factors  a warp a query; key_factors a thread a key, with dropout alone
//
// Traffic: operands and results, and of the matrices 4 D (M + 1) bytes written, read, written (if causal) and read a
// chunk, in workspace memory. Floor: operands and results. If causal it is bound by arithmetic.
// 27 KB of dynamic shared memory.
#include "core/kernels/linear_attention.h"

#include <algorithm>

#include "core/workspace.h"
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {
namespace {

constexpr int64_t enough_blocks = 1024;  // to fill a GPU
constexpr int sum_threads = 128;

// An element of x that counts as phi(x).
template <class T>
struct Feature {
  T x;
  __device__ explicit operator float() const { return linear_feature(float(x)); }
};

struct alignas(8) Factors {
  float of_y, last;  // a and b
};

template <class T>
struct Side {
  bool queries;
  HeadView<const T> x, y;
  int64_t rows;
  const Factors* given = nullptr;  // [B, H, rows], null: 1 and 1

  __device__ int end(const BatchHead& batch_head) const { return queries ? batch_head.queries : batch_head.keys; }
  __device__ Factors factors(const BatchHead& batch_head, int row) const {
    return given ? given[batch_head.index * rows + row] : Factors{1, 1};
  }
};

// The matrices [D, M], each with its vector [D] behind it. Of a (batch element, head) there are `count`: one for each
// chunk of rows that look at them if causal, otherwise the sum and behind it the parts that it was added up from.
struct Sums {
  float* data;
  int count;
  int64_t D, M;
  bool packs;

  __device__ __host__ int64_t elements() const { return D * (M + 1); }
  __device__ float* matrix(int64_t batch_head, int which) const {
    return data + (batch_head * count + which) * elements();
  }
  __device__ float* vector(int64_t batch_head, int which) const { return matrix(batch_head, which) + D * M; }
  // Rows [d, D) of a matrix, from column m on.
  __device__ RowBlock<float> rows(int64_t batch_head, int which, int d, int m) const {
    return {matrix(batch_head, which) + d * M + m, M, int(D) - d, int(M) - m, packs};
  }
};

// Rows [row, end) of x in a batch_head, from column `column` on, as features.
template <class T>
__device__ RowBlock<Feature<T>> features(const AttentionProblem<T>& p, const HeadView<const T>& x,
                                         const BatchHead& batch_head, int row, int end, int column = 0) {
  const RowBlock<T> rows = p.rows(x, batch_head, row, end, p.D(), column);
  return {reinterpret_cast<const Feature<T>*>(rows.data), rows.stride, rows.rows, rows.columns, rows.packs};
}

// The sum of the 16 threads that share rows of a tile.
__device__ float half_warp_sum(float value) {
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2) value += __shfl_xor_sync(full_warp, value, distance);
  return value;
}

// Four neighboring elements of row r from `column` on, 0 where there are none.
template <class T>
__device__ Pack4 four_of(const RowBlock<T>& x, int r, int column) {
  Pack4 result{};
  if (r >= x.rows || column >= x.columns) return result;
  if (x.packs) {
    const Pack<T, 4> four = pack<4>(x.row(r), column / 4);
#pragma unroll
    for (int e = 0; e < 4; ++e) result.element[e] = float(four.element[e]);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (column + e < x.columns) result.element[e] = float(x.row(r)[column + e]);
  }
  return result;
}

// Grid: parts of a batch_head, tiles of D, tiles of M. `tiles` rows of tiles are shared out to the parts.
template <class T>
__global__ void __launch_bounds__(tile_threads, 4) sum_rows(AttentionProblem<T> p, Side<T> side, int tiles, Sums sums) {
  float* const workspace = dynamic_shared<float>();
  const int part = int(blockIdx.x % sums.count), d0 = int(blockIdx.y) * tile, m0 = int(blockIdx.z) * tile;
  const BatchHead batch_head(p.size, p.mask, blockIdx.x / sums.count);
  const int end = side.end(batch_head), last_tile = int(int64_t(part + 1) * tiles / sums.count);
  float sum[8][4] = {}, sum_last[8] = {};

  for (int t = int(int64_t(part) * tiles / sums.count); t < last_tile && t < int(ceil_div(end, tile)); ++t) {
    const int row0 = t * tile;
    const auto rows = features(p, side.x, batch_head, row0, end, d0);
    TileOf weights;  // the features' transpose
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = tile_column() + j;
      const Factors factors = row0 + r < end ? side.factors(batch_head, row0 + r) : Factors{};
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const Pack4 four = four_of(rows, r, tile_row(i));
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum_last[i + e] += four.element[e] * factors.last;
          weights[i + e][j] = four.element[e] * factors.of_y;
        }
      }
    }
    store_weights(workspace, weights);
    add_weighted_rows<tile>(p.rows(side.y, batch_head, row0, end, p.M(), m0), workspace, sum);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int d = d0 + tile_row(i);
    const float last = half_warp_sum(sum_last[i]);
    if (d >= p.D()) continue;
    write_row(sum[i], 1.0f, sums.matrix(batch_head.index, part) + d * sums.M + m0, p.M() - m0, sums.packs);
    if (m0 == 0 && tile_column() == 0) sums.vector(batch_head.index, part)[d] = last;
  }
}

// A thread an element of the matrices of a batch_head.
__global__ void __launch_bounds__(sum_threads)
    combine_sums(Sums sums, int64_t batch_heads, bool causal, bool from_last) {
  constexpr int batch = 8;  // loads under way
  const int64_t element = int64_t(blockIdx.x) * sum_threads + threadIdx.x;
  if (element >= batch_heads * sums.elements()) return;
  float* const first = sums.matrix(element / sums.elements(), 0) + element % sums.elements();
  const auto at = [&](int n) { return first + (from_last ? sums.count - 1 - n : n) * sums.elements(); };
  float sum = 0;
  for (int n0 = 0; n0 < sums.count; n0 += batch) {
    float value[batch];
#pragma unroll
    for (int l = 0; l < batch; ++l) value[l] = n0 + l < sums.count ? *at(n0 + l) : 0.0f;
#pragma unroll
    for (int l = 0; l < batch; ++l) {
      if (causal && n0 + l < sums.count) *at(n0 + l) = sum;
      sum += value[l];
    }
  }
  if (!causal) *first = sum;
}

// What rows of `own` take from those of `other`, of which `sums` are.
template <class T>
struct Meeting {
  AttentionProblem<T> p;
  Side<T> own, other;
  Sums sums;

  // Which of the sums the rows from row0 on see.
  __device__ int seen_from(int row0) const { return p.mask.causal ? row0 / tile : 0; }
  // Does row `row` see row o of its own chunk?
  __device__ bool sees(int row, int o) const { return own.queries ? o <= row : o >= row; }
};

// Forward (`denominators`): own are queries. Otherwise the gradient of values.
template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 4 : 3)
    attend(Meeting<T> t, HeadView<T> to, float* denominators) {
  const AttentionProblem<T>& p = t.p;
  float* const workspace = dynamic_shared<float>();
  const TileTask task(t.own.rows, tile, p.size.M, width);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const int row0 = task.row, end = t.own.end(batch_head), which = t.seen_from(row0);
  float sum[8][width / 16] = {}, sum_last[8] = {};

  if (row0 < end) {
    const float* const vector = t.sums.vector(batch_head.index, which);
    for (int d0 = 0; d0 < p.D(); d0 += tile) {
      const auto rows = features(p, t.own.x, batch_head, row0, end, d0);
      TileOf weights;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const Pack4 four = four_of(rows, tile_row(i), tile_column());
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          weights[i][j] = four.element[j];
          if (d0 + tile_column() + j < p.D()) sum_last[i] += four.element[j] * vector[d0 + tile_column() + j];
        }
      }
      store_weights(workspace, weights);
      add_weighted_rows<width>(t.sums.rows(batch_head.index, which, d0, task.column), workspace, sum);
    }
    const int others = t.other.end(batch_head);
    if (p.mask.causal && row0 < others) {
      TileOf s;
      row_products(features(p, t.own.x, batch_head, row0, end), features(p, t.other.x, batch_head, row0, others),
                   workspace, s);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int o = row0 + tile_column() + j;
        const Factors factors = o < others ? t.other.factors(batch_head, o) : Factors{};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (o >= others || !t.sees(row0 + tile_row(i), o)) s[i][j] = 0;
          sum_last[i] += s[i][j] * factors.last;
          s[i][j] *= factors.of_y;
        }
      }
      store_weights(workspace, s);
      add_weighted_rows<width>(p.rows(t.other.y, batch_head, row0, others, p.M(), task.column), workspace, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = row0 + tile_row(i);
    const float d = half_warp_sum(sum_last[i]);
    if (row >= t.own.rows) continue;
    float factor = 0;
    if (row < end && denominators) factor = linear_denominator(d) == 0 ? 0.0f : 1 / d;
    if (row < end && !denominators) factor = t.own.factors(batch_head, row).of_y;
    if (factor == 0)
#pragma unroll
      for (int c = 0; c < width / 16; ++c) sum[i][c] = 0;  // even where a value is NaN
    write_row(sum[i], factor, to.at(batch_head.batch, row, batch_head.head) + task.column, p.M() - task.column,
              p.packs);
    if (denominators && task.column == 0 && tile_column() == 0)
      denominators[batch_head.index * t.own.rows + row] = row < end ? linear_denominator(d) : 0.0f;
  }
}

template <class T>
__global__ void __launch_bounds__(tile_threads, 3) differentiate(Meeting<T> t, HeadView<T> to) {
  const AttentionProblem<T>& p = t.p;
  float* const workspace = dynamic_shared<float>();
  const TileTask task(t.own.rows, tile, p.size.D, tile);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const int row0 = task.row, end = t.own.end(batch_head), which = t.seen_from(row0),
            column = task.column + tile_column();
  TileOf sum = {};

  if (row0 < end) {
    const auto own = p.rows(t.own.y, batch_head, row0, end, p.M());
    row_products(own, t.sums.rows(batch_head.index, which, task.column, 0), workspace, sum);
    Factors factors[8];
    const float* const vector = t.sums.vector(batch_head.index, which);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = row0 + tile_row(i);
      factors[i] = row < end ? t.own.factors(batch_head, row) : Factors{};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (column + j < p.D()) sum[i][j] = factors[i].of_y * sum[i][j] + factors[i].last * vector[column + j];
    }
    const int others = t.other.end(batch_head);
    if (p.mask.causal && row0 < others) {
      TileOf s;
      row_products(own, p.rows(t.other.y, batch_head, row0, others, p.M()), workspace, s);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int o = row0 + tile_column() + j;
        const Factors its = o < others ? t.other.factors(batch_head, o) : Factors{};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const bool seen = o < others && t.sees(row0 + tile_row(i), o);
          s[i][j] = seen ? factors[i].of_y * its.of_y * s[i][j] + factors[i].last * its.last : 0.0f;
        }
      }
      store_weights(workspace, s);
      add_weighted_rows<tile>(features(p, t.other.x, batch_head, row0, others, task.column), workspace, sum);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = row0 + tile_row(i);
    if (row >= t.own.rows) continue;
    const T* const x = t.own.x.at(batch_head.batch, row, batch_head.head);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row >= end) sum[i][j] = 0;
      if (row < end && column + j < p.D()) sum[i][j] *= linear_feature_slope(float(x[column + j]));
    }
    write_row(sum[i], 1.0f, to.at(batch_head.batch, row, batch_head.head) + task.column, p.D() - task.column, p.packs);
  }
}

// A warp a query.
template <class T>
__global__ void __launch_bounds__(32 * rows_per_block)
    query_factors(AttentionSize size, HeadView<const T> out, HeadView<const T> dout, const float* denominators,
                  Factors* factors) {
  for (int64_t row = first_row(); row < size.B * size.H * size.N; row += row_step()) {
    const int64_t batch_head = row / size.N;
    const T* const x = out.at(batch_head / size.H, row % size.N, batch_head % size.H);
    const T* const g = dout.at(batch_head / size.H, row % size.N, batch_head % size.H);
    float delta = 0;
    for (int64_t c = threadIdx.x % 32; c < size.M; c += 32) delta += float(x[c]) * float(g[c]);
    delta = warp_reduce(delta, Sum{});
    const float inverse = denominators[row] == 0 ? 0.0f : 1 / denominators[row];
    if (threadIdx.x % 32 == 0) factors[row] = {inverse, -delta * inverse};
  }
}

// A thread a key.
__global__ void __launch_bounds__(sum_threads) key_factors(AttentionSize size, Dropout dropout, Factors* factors) {
  const int64_t at = int64_t(blockIdx.x) * sum_threads + threadIdx.x;
  if (at >= size.B * size.H * size.S) return;
  const auto row = dropout.draw.row(at / size.S), key = uint32_t(at % size.S);
  const bool keep = Dropout::words(dropout.draw.key(), row, 0, key).w[key % 4] >= dropout.threshold();
  factors[at] = {keep ? dropout.scale() : 0.0f, 1};
}

// ----------------------------------------------------------------------------------------------------- the host's part

template <class T>
Side<T> key_side(Stream stream, const AttentionProblem<T>& p, Workspace& workspace) {
  const int64_t keys = p.size.B * p.size.H * p.size.S;
  Side<T> side{false, p.k, p.v, p.size.S};
  if (!p.dropout.active() || keys == 0) return side;
  Factors* const factors = workspace.take<Factors>(keys);
  launch(key_factors, {ceil_div(keys, sum_threads), sum_threads, 0, stream}, p.size, p.dropout, factors);
  side.given = factors;
  return side;
}

template <class T>
Sums sum_side(Stream stream, const AttentionProblem<T>& p, const Side<T>& side, Workspace& workspace) {
  const AttentionSize& size = p.size;
  const int64_t batch_heads = size.B * size.H, d_tiles = ceil_div(size.D, tile),
                m_tiles = TileTask::tile_parts(size.M, tile);
  const int64_t tiles = p.mask.causal ? ceil_div(std::max(size.N, size.S), tile) : ceil_div(side.rows, tile);
  const int64_t count = p.mask.causal
                            ? tiles
                            : std::clamp<int64_t>(enough_blocks / std::max<int64_t>(1, batch_heads * d_tiles * m_tiles),
                                                  1, std::max<int64_t>(1, tiles));
  Sums sums{nullptr, int(count), size.D, size.M, p.packs};
  sums.data = workspace.take<float>(batch_heads * count * sums.elements());
  if (batch_heads * sums.elements() * count == 0) return sums;
  launch(sum_rows<T>, {{batch_heads * count, d_tiles, m_tiles}, tile_threads, tile_bytes, stream}, p, side, int(tiles),
         sums);
  launch(combine_sums, {ceil_div(batch_heads * sums.elements(), sum_threads), sum_threads, 0, stream}, sums,
         batch_heads, p.mask.causal, side.queries);
  return sums;
}

// A block for every tile of rows and of columns.
template <class T>
Launch tiles(Stream stream, const AttentionProblem<T>& p, const Side<T>& own, int64_t columns, int width) {
  return {p.size.B * p.size.H * ceil_div(own.rows, tile) * TileTask::tile_parts(columns, width), tile_threads,
          tile_bytes, stream};
}

template <class T>
void run_attend(Stream stream, const Meeting<T>& t, HeadView<T> to, float* denominators) {
  if (t.p.size.B * t.p.size.H * t.own.rows == 0) return;
  const int64_t M = t.p.size.M;
  if (M <= 64)
    launch(attend<T, 64>, tiles(stream, t.p, t.own, M, 64), t, to, denominators);
  else
    launch(attend<T, 128>, tiles(stream, t.p, t.own, M, 128), t, to, denominators);
}

template <class T>
void run_differentiate(Stream stream, const Meeting<T>& t, HeadView<T> to) {
  if (t.p.size.B * t.p.size.H * t.own.rows > 0)
    launch(differentiate<T>, tiles(stream, t.p, t.own, t.p.size.D, tile), t, to);
}

}  // namespace

template <class T>
void linear_attention_forward(Stream stream, const AttentionOperands<T>& in, HeadView<T> out, Accum<T>* denominators) {
  Workspace workspace(Device::cuda);
  const auto p = attention_problem("linear_attention", in, out);
  const Side<T> queries{true, in.q, {}, in.size.N}, keys = key_side(stream, p, workspace);
  run_attend(stream, Meeting<T>{p, queries, keys, sum_side(stream, p, keys, workspace)}, out, denominators);
}

template <class T>
void linear_attention_backward(Stream stream, const AttentionOperands<T>& in, HeadView<const T> out,
                               const Accum<T>* denominators, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk,
                               HeadView<T> dv) {
  const AttentionSize& size = in.size;
  Workspace workspace(Device::cuda);
  const auto p = attention_problem("linear_attention", in, dout, dq, dk, dv);
  const int64_t rows = size.B * size.H * size.N;
  Factors* const factors = workspace.take<Factors>(rows);
  if (rows > 0)
    launch(query_factors<T>, {blocks(ceil_div(rows, rows_per_block)), 32 * rows_per_block, 0, stream}, size, out, dout,
           denominators, factors);
  const Side<T> queries{true, in.q, dout, size.N, factors}, keys = key_side(stream, p, workspace);
  run_differentiate(stream, Meeting<T>{p, queries, keys, sum_side(stream, p, keys, workspace)}, dq);
  const Meeting<T> from_keys{p, keys, queries, sum_side(stream, p, queries, workspace)};
  run_differentiate(stream, from_keys, dk);
  run_attend(stream, from_keys, dv, nullptr);
}

CAIRN_GPU_TYPES(linear_attention_forward)
CAIRN_GPU_TYPES(linear_attention_backward)

}  // namespace cairn::gpu
