// Linear attention in chunks of queries and keys, by products of matrices. Forward and backward are one thing, said of
// two sides. Row r of a side has the features f_r = phi(x_r) [D] and the vector u_r [M + 1]:
//
//   keys      x = k, u_j = [z_j v_j, 1]
//   queries   x = q, u_i = [g_i, -delta_i] / d_i,  g = dout, delta_i = g_i . out_i
//
// and meets the rows of the other side that it sees in one of two ways:
//
//   [n_i, d_i]       = sum over keys of (f_i . f_j) u_j        dq_i = phi'(q_i) sum over keys of (u_i . u_j) f_j
//   [dv_j / z_j, .]  = sum over queries of (f_j . f_i) u_i     dk_j = phi'(k_j) sum over queries of (u_j . u_i) f_i
//
// All of them take the other side's rows summed up as a matrix, the sum of f u^T. If causal, that is done for the
// chunks before a query's (behind a key's), and its own chunk row by row.
#include "core/kernels/linear_attention.h"

#include <algorithm>

#include "core/cpu/attention_tiles.h"
#include "core/workspace.h"

namespace cairn::cpu {
namespace {

constexpr int64_t chunk = 128;

int64_t chunks(int64_t rows) { return (rows + chunk - 1) / chunk; }

// Row r's vector is [of_y y_r, last].
template <class T>
struct Factors {
  T of_y = 1, last = 1;
};

template <class T>
struct Side {
  bool queries;
  HeadView<const T> x, y;
  int64_t rows;
  const int32_t* lengths;             // [B], null: all rows count
  const Factors<T>* given = nullptr;  // [B, H, rows], null: 1 and 1

  Factors<T> factors(int64_t batch_head, int64_t row) const {
    return given ? given[batch_head * rows + row] : Factors<T>{};
  }
  // The end of the rows that count, within [begin, end of that chunk].
  int64_t end(int64_t batch, int64_t begin) const {
    return std::max(begin, std::min({begin + chunk, rows, lengths ? lengths[batch] : rows}));
  }
};

// One (batch element, head).
struct Place {
  int64_t batch_head, batch, head;
  Place(int64_t index, int64_t H) : batch_head(index), batch(index / H), head(index % H) {}
};

template <class T>
void load_features(const Side<T>& side, const Place& at, int64_t begin, int64_t end, int64_t D, T* to) {
  for (int64_t row = begin; row < end; ++row, to += D) {
    const T* x = side.x.at(at.batch, row, at.head);
    for (int64_t d = 0; d < D; ++d) to[d] = linear_feature(x[d]);
  }
}

template <class T>
void load_vectors(const Side<T>& side, const Place& at, int64_t begin, int64_t end, int64_t M, T* to) {
  for (int64_t row = begin; row < end; ++row, to += M + 1) {
    const T* y = side.y.at(at.batch, row, at.head);
    const Factors<T> f = side.factors(at.batch_head, row);
    for (int64_t m = 0; m < M; ++m) to[m] = f.of_y * y[m];
    to[M] = f.last;
  }
}

// Matrices [D, M + 1]: sums of f u^T. If causal, one for each chunk of the other side, else one a (batch element,
// head), behind which stand the parts that it was added up from.
template <class T>
struct Sums {
  T* data;
  bool causal;
  int64_t count, matrix;  // of one (batch element, head); elements of a matrix

  T* at(int64_t batch_head, int64_t which) const { return data + (batch_head * count + which) * matrix; }
  const T* seen_from(int64_t batch_head, int64_t of_chunk) const { return at(batch_head, causal ? of_chunk : 0); }
};

template <class T>
Sums<T> sum_rows(const AttentionSize& size, bool causal, const Side<T>& side, Workspace& workspace) {
  const int64_t batch_heads = size.B * size.H, D = size.D, M = size.M;
  const int64_t all = causal ? chunks(std::max(size.N, size.S)) : std::max<int64_t>(1, chunks(side.rows));
  const int64_t count = causal ? all : parts_of(batch_heads, all);
  const Sums<T> sums{workspace.take<T>(batch_heads * count * D * (M + 1)), causal, count, D * (M + 1)};

  parallel_tasks(batch_heads * count, [&](int64_t task) {
    thread_local Scratch<T> feature_memory, vector_memory;
    T *features = feature_memory.take(chunk * D), *vectors = vector_memory.take(chunk * (M + 1));
    const Place at(task / count, size.H);
    const int64_t part = task % count;
    T* sum = sums.at(at.batch_head, part);
    std::fill_n(sum, sums.matrix, T(0));
    for (int64_t begin = part * all / count * chunk; begin < (part + 1) * all / count * chunk; begin += chunk) {
      const int64_t end = side.end(at.batch, begin);
      if (begin == end) break;
      load_features(side, at, begin, end, D, features);
      load_vectors(side, at, begin, end, M, vectors);
      gemm_tile(true, false, D, M + 1, end - begin, 1.0, features, D, vectors, M + 1, 1.0, sum, M + 1);
    }
  });

  // What each chunk sees whole is a running sum without its own; otherwise all parts are added to the first.
  constexpr int64_t piece = 1024;
  const int64_t pieces = (sums.matrix + piece - 1) / piece;
  parallel_tasks(batch_heads * pieces, [&](int64_t task) {
    const int64_t batch_head = task / pieces, first = task % pieces * piece, n = std::min(piece, sums.matrix - first);
    if (!causal) {
      for (int64_t part = 1; part < count; ++part)
        add_scaled(sums.at(batch_head, 0) + first, n, T(1), sums.at(batch_head, part) + first);
      return;
    }
    T running[piece] = {};
    for (int64_t i = 0; i < count; ++i) {
      T* sum = sums.at(batch_head, side.queries ? count - 1 - i : i) + first;
      for (int64_t e = 0; e < n; ++e) {
        const T own = sum[e];
        sum[e] = running[e];
        running[e] += own;
      }
    }
  });
  return sums;
}

enum class Result { vectors, features };

// For each row of `own` that counts, finish(batch_head, row, sum, where to write it) with the sum over the rows o of
// `other` that it sees of (f . f_o) u_o [M + 1], or of (u . u_o) f_o [D]; zeros for the other rows of `to`.
template <Result result, class T, class F>
void meet(const AttentionSize& size, const Side<T>& own, const Side<T>& other, const Sums<T>& sums, HeadView<T> to,
          F&& finish) {
  const int64_t blocks = chunks(own.rows), D = size.D, M = size.M;
  constexpr bool of_features = result == Result::features;
  const int64_t inner = of_features ? M + 1 : D, outer = of_features ? D : M + 1;  // columns multiplied, and of the sum
  const auto load = [&](bool features, const Side<T>& side, const Place& at, int64_t begin, int64_t end, T* rows) {
    features ? load_features(side, at, begin, end, D, rows) : load_vectors(side, at, begin, end, M, rows);
  };
  parallel_tasks(size.B * size.H * blocks, [&](int64_t task) {
    thread_local Scratch<T> memory;
    T* own_rows = memory.take(chunk * (2 * inner + 2 * outer + chunk));
    T *other_inner = own_rows + chunk * inner, *other_outer = other_inner + chunk * inner;
    T *sum = other_outer + chunk * outer, *weights = sum + chunk * outer;
    const Place at(task / blocks, size.H);
    const int64_t begin = task % blocks * chunk, end = own.end(at.batch, begin), rows = end - begin;
    zero_rows(to, at.batch, at.head, end, std::min(own.rows, begin + chunk), of_features ? D : M);
    if (rows == 0) return;

    load(!of_features, own, at, begin, end, own_rows);
    gemm_tile(false, of_features, rows, outer, inner, 1.0, own_rows, inner,
              sums.seen_from(at.batch_head, task % blocks), M + 1, 0.0, sum, outer);
    const int64_t others = sums.causal ? other.end(at.batch, begin) - begin : 0;
    if (others > 0) {
      load(!of_features, other, at, begin, begin + others, other_inner);
      load(of_features, other, at, begin, begin + others, other_outer);
      gemm_tile(false, true, rows, others, inner, 1.0, own_rows, inner, other_inner, inner, 0.0, weights, others);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < others; ++j)
          if (own.queries ? j > i : j < i) weights[i * others + j] = 0;
      gemm_tile(false, false, rows, outer, others, 1.0, weights, others, other_outer, outer, 1.0, sum, outer);
    }
    for (int64_t i = 0; i < rows; ++i)
      finish(at.batch_head, begin + i, sum + i * outer, to.at(at.batch, begin + i, at.head));
  });
}

// Values are dropped by key: all queries see the factor that dropout has for query 0.
template <class T>
Side<T> key_side(const AttentionOperands<T>& in, Workspace& workspace) {
  const AttentionSize& size = in.size;
  const Dropout& dropout = in.dropout;
  Side<T> side{false, in.k, in.v, size.S, in.mask.key_lengths};
  if (!dropout.active()) return side;
  Factors<T>* const factors = workspace.take<Factors<T>>(size.B * size.H * size.S);
  const PhiloxKey key = dropout.draw.key();
  parallel_tasks(size.B * size.H, [&](int64_t batch_head) {
    for (int64_t j = 0; j < size.S; j += 4) {
      T z[4];
      const int64_t end = std::min(size.S, j + 4);
      dropout_factors(dropout, key, batch_head, 0, j, end, z);
      for (int64_t l = j; l < end; ++l) factors[batch_head * size.S + l] = {z[l - j], 1};
    }
  });
  side.given = factors;
  return side;
}

}  // namespace

template <class T>
void linear_attention_forward(Stream, const AttentionOperands<T>& in, HeadView<T> out, Accum<T>* denominators) {
  const AttentionSize& size = in.size;
  const int64_t N = size.N, M = size.M;
  Workspace workspace(Device::cpu);
  const Side<T> queries{true, in.q, {}, N, in.mask.query_lengths}, keys = key_side(in, workspace);
  const Sums<T> sums = sum_rows(size, in.mask.causal, keys, workspace);
  std::fill_n(denominators, size.B * size.H * N, T(0));
  meet<Result::vectors>(size, queries, keys, sums, out, [&](int64_t batch_head, int64_t i, const T* sum, T* to) {
    const T d = linear_denominator(sum[M]);
    denominators[batch_head * N + i] = d;
    for (int64_t m = 0; m < M; ++m) to[m] = d == 0 ? T(0) : sum[m] / d;
  });
}

template <class T>
void linear_attention_backward(Stream, const AttentionOperands<T>& in, HeadView<const T> out,
                               const Accum<T>* denominators, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk,
                               HeadView<T> dv) {
  const AttentionSize& size = in.size;
  Workspace workspace(Device::cpu);
  const int64_t H = size.H, N = size.N, D = size.D, M = size.M;
  Factors<T>* const factors = workspace.take<Factors<T>>(size.B * H * N);
  parallel_for(size.B * H * N, 256, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Place at(row / N, H);
      const T inverse = denominators[row] == 0 ? T(0) : 1 / denominators[row];
      const T delta = dot(out.at(at.batch, row % N, at.head), dout.at(at.batch, row % N, at.head), M);
      factors[row] = {inverse, -delta * inverse};
    }
  });
  const Side<T> queries{true, in.q, dout, N, in.mask.query_lengths, factors};
  const Side<T> keys = key_side(in, workspace);
  const auto times_slopes = [D](const T* x, const T* sum, T* to) {
    for (int64_t d = 0; d < D; ++d) to[d] = linear_feature_slope(x[d]) * sum[d];
  };
  const Sums<T> of_keys = sum_rows(size, in.mask.causal, keys, workspace);
  meet<Result::features>(size, queries, keys, of_keys, dq, [&](int64_t batch_head, int64_t i, const T* sum, T* to) {
    times_slopes(in.q.at(batch_head / H, i, batch_head % H), sum, to);
  });
  const Sums<T> of_queries = sum_rows(size, in.mask.causal, queries, workspace);
  meet<Result::features>(size, keys, queries, of_queries, dk, [&](int64_t batch_head, int64_t j, const T* sum, T* to) {
    times_slopes(in.k.at(batch_head / H, j, batch_head % H), sum, to);
  });
  meet<Result::vectors>(size, keys, queries, of_queries, dv, [&](int64_t batch_head, int64_t j, const T* sum, T* to) {
    const T z = keys.factors(batch_head, j).of_y;
    for (int64_t m = 0; m < M; ++m) to[m] = z * sum[m];
  });
}

CAIRN_CPU_TYPES(linear_attention_forward)
CAIRN_CPU_TYPES(linear_attention_backward)

}  // namespace cairn::cpu
