// Chunks of sorted positions against themselves and the chunk before, a tile of gathered rows at a time. What a query
// has seen so far is the weighted mean in `out` and its logsumexp; each tile, of any round, is merged into that.
#include "core/kernels/bucket_attention.h"

#include <span>

#include "core/cpu/attention_tiles.h"
#include "core/scratch.h"

namespace cairn::cpu {
namespace {

constexpr int64_t most_queries = 64, most_keys = 128;  // of a tile

template <class T>
struct Problem {
  AttentionSize size;
  BucketRounds rounds;
  Heads<const T> q, k, v;
  Mask mask;
  Dropout dropout;
  PhiloxKey dropout_key{};

  Problem(const AttentionSize& size_, const BucketRounds& rounds_, Heads<const T> q_, Heads<const T> k_,
          Heads<const T> v_, const Mask& mask_, const Dropout& dropout_, Scratch& scratch)
      : size(size_), rounds(rounds_), q(q_), k(k_), v(v_), mask(mask_), dropout(dropout_) {
    if (dropout.active()) dropout_key = dropout.draw.key();
    if (!rounds.deduplicate) return;
    int32_t* const places = scratch.take<int32_t>(planes() * rounds.rounds * size.N);
    parallel_tasks(planes() * rounds.rounds, [&](int64_t row) {
      for (int64_t place = 0; place < size.N; ++place) places[row * size.N + rounds.order(row)[place]] = int32_t(place);
    });
    rounds.places = places;
  }

  int64_t planes() const { return size.B * size.H; }
  // Does the mask let query i see key j?
  bool visible(int64_t plane, int64_t i, int64_t j) const {
    const int64_t b = plane / size.H;
    return i < mask.queries(b, size.N) && j < mask.keys(b, size.N) && mask.visible(b, plane % size.H, i, j);
  }
  T factor(int64_t plane, int64_t i, int64_t j) const {
    return dropout.active() ? T(dropout.factor(dropout_key, uint32_t(plane), uint32_t(i), uint32_t(j))) : T(1);
  }

  // f(plane, i) for all queries.
  template <class F>
  void each_query(F&& f) const {
    parallel_for(planes() * size.N, 64, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) f(row / size.N, row % size.N);
    });
  }
};

// Some queries of a chunk with some of the keys that it attends to, gathered.
template <class T>
struct ChunkTile {
  const Problem<T>& p;
  int64_t plane, round;
  std::span<const int32_t> queries, keys;  // their positions
  T *q, *k, *v, *weights;                  // [queries, D], [keys, D], [keys, M], [queries, keys]
  T* next;                                 // room for results

  // Room for the tile, and for a gradient of each operand and of the weights.
  static int64_t room_for(const AttentionSize& size) {
    return 2 * (most_queries * (size.D + size.M) + most_keys * (size.D + size.M) + most_queries * most_keys);
  }

  ChunkTile(const Problem<T>& problem, int64_t plane_, int64_t round_, std::span<const int32_t> queries_,
            std::span<const int32_t> keys_)
      : p(problem), plane(plane_), round(round_), queries(queries_), keys(keys_) {
    thread_local std::vector<T> memory;
    next = room(memory, room_for(p.size));
    q = gathered(p.q, queries, p.size.D), k = gathered(p.k, keys, p.size.D), v = gathered(p.v, keys, p.size.M);
    weights = take(rows() * cols());
  }

  int64_t rows() const { return int64_t(queries.size()); }
  int64_t cols() const { return int64_t(keys.size()); }
  T* take(int64_t n) { return std::exchange(next, next + n); }
  template <class U>
  U* row(Heads<U> x, int32_t position) const {
    return x.at(plane / p.size.H, position, plane % p.size.H);
  }

  T* gathered(Heads<const T> x, std::span<const int32_t> positions, int64_t n) {
    T* const to = take(int64_t(positions.size()) * n);
    for (size_t i = 0; i < positions.size(); ++i) std::copy_n(row(x, positions[i]), n, to + int64_t(i) * n);
    return to;
  }
  void add(const T* rows_of, std::span<const int32_t> positions, int64_t n, Heads<T> to) const {
    for (size_t i = 0; i < positions.size(); ++i) add_scaled(row(to, positions[i]), n, T(1), rows_of + int64_t(i) * n);
  }

  // weights = scale Q K^T, minus infinity where a key is not seen.
  void scores() const {
    gemm_tile(false, true, rows(), cols(), p.size.D, p.size.scale, q, p.size.D, k, p.size.D, 0.0, weights, cols());
    const int64_t sorted = p.rounds.row(plane, round);
    T* score = weights;
    for (int32_t i : queries)
      for (int32_t j : keys) {
        const bool seen = i != j && p.rounds.same_bucket(sorted, i, j) && p.visible(plane, i, j) &&
                          !(p.rounds.deduplicate && p.rounds.met_before(plane, round, i, j));
        if (!seen) *score = -std::numeric_limits<T>::infinity();
        ++score;
      }
  }
  // x [queries, keys] times the factors of dropout.
  void drop(T* x) const {
    if (!p.dropout.active()) return;
    for (int32_t i : queries)
      for (int32_t j : keys) *x++ *= p.factor(plane, i, j);
  }
};

// f(tile) for chunk c of a round, in the order of tiles.
template <class T, class F>
void each_tile(const Problem<T>& p, int64_t plane, int64_t round, int64_t c, F&& f) {
  const int64_t row = p.rounds.row(plane, round);
  const Chunks chunks = p.rounds.chunks(row);
  if (c >= chunks.count()) return;
  const auto members = [&](int64_t chunk) {
    const int64_t first = chunk * chunks.size;
    return std::span(p.rounds.order(row) + first, size_t(std::min(chunks.size, chunks.n - first)));
  };
  thread_local std::vector<int32_t> memory;
  memory.assign(members(c).begin(), members(c).end());
  if (const int64_t before = chunks.before(c); before != c)
    memory.insert(memory.end(), members(before).begin(), members(before).end());
  const std::span<const int32_t> queries = members(c), keys = memory;
  const auto piece = [](std::span<const int32_t> of, size_t first, size_t most) {
    return of.subspan(first, std::min(most, of.size() - first));
  };
  for (size_t i = 0; i < queries.size(); i += most_queries)
    for (size_t j = 0; j < keys.size(); j += most_keys)
      f(ChunkTile<T>(p, plane, round, piece(queries, i, most_queries), piece(keys, j, most_keys)));
}

template <class T>
void attend(ChunkTile<T> tile, Heads<T> out, Accum<T>* logsumexp) {
  const int64_t M = tile.p.size.M, rows = tile.rows(), cols = tile.cols();
  tile.scores();
  T sums[most_queries], most[most_queries];
  for (int64_t i = 0; i < rows; ++i) {
    T* row = tile.weights + i * cols;
    most[i] = maximum(row, cols);
    sums[i] = exponentials(row, cols, finite_shift(most[i]), row);
  }
  tile.drop(tile.weights);
  T* const values = tile.take(rows * M);
  gemm_tile(false, false, rows, M, cols, 1.0, tile.weights, cols, tile.v, M, 0.0, values, M);
  for (int64_t i = 0; i < rows; ++i) {
    if (sums[i] == 0) continue;  // sees none of these keys
    const int32_t query = tile.queries[size_t(i)];
    T* const to = tile.row(out, query);
    Accum<T>& kept = logsumexp[tile.plane * tile.p.size.N + query];
    const MergedKeys<T> merged(kept, finite_shift(most[i]) + std::log(sums[i]));
    kept = merged.logsumexp;
    scale(to, M, merged.old_factor);
    add_scaled(to, M, merged.new_factor / sums[i], values + i * M);
  }
}

template <class T>
void add_gradient(ChunkTile<T> tile, const Accum<T>* logsumexp, const T* delta, Heads<const T> dout, Heads<T> dq,
                  Heads<T> dk, Heads<T> dv) {
  const int64_t D = tile.p.size.D, M = tile.p.size.M, rows = tile.rows(), cols = tile.cols();
  const T* const g = tile.gathered(dout, tile.queries, M);
  T *const dscores = tile.take(rows * cols), *const of_queries = tile.take(rows * D);
  T *const of_keys = tile.take(cols * D), *const of_values = tile.take(cols * M);
  tile.scores();
  gemm_tile(false, true, rows, cols, M, 1.0, g, M, tile.v, M, 0.0, dscores, cols);
  tile.drop(dscores);
  for (int64_t i = 0; i < rows; ++i) {
    T *a = tile.weights + i * cols, *ds = dscores + i * cols;
    const int64_t row = tile.plane * tile.p.size.N + tile.queries[size_t(i)];
    const T shift = finite_shift(logsumexp[row]), mean = delta[row];
    for (int64_t j = 0; j < cols; ++j) {
      a[j] = exponential(a[j] - shift);
      ds[j] = T(tile.p.size.scale) * a[j] * (ds[j] - mean);
    }
  }
  tile.drop(tile.weights);
  gemm_tile(false, false, rows, D, cols, 1.0, dscores, cols, tile.k, D, 0.0, of_queries, D);
  gemm_tile(true, false, cols, D, rows, 1.0, dscores, cols, tile.q, D, 0.0, of_keys, D);
  gemm_tile(true, false, cols, M, rows, 1.0, tile.weights, cols, g, M, 0.0, of_values, M);
  tile.add(of_queries, tile.queries, D, dq);
  tile.add(of_keys, tile.keys, D, dk);
  tile.add(of_values, tile.keys, M, dv);
}

// Chunks of one turn have no keys in common: the even ones, the odd ones, and, where that is even like the last one, to
// which it wraps, the first.
int64_t turn(int64_t chunk, int64_t count) { return chunk == 0 && count > 1 && count % 2 == 1 ? 2 : chunk % 2; }

}  // namespace

template <class T>
void bucket_attention_forward(Stream, AttentionSize size, BucketRounds rounds, Heads<const T> q, Heads<const T> k,
                              Heads<const T> v, Mask mask, Dropout dropout, Heads<T> out, Accum<T>* logsumexp) {
  Scratch scratch(Device::cpu);
  const Problem<T> p(size, rounds, q, k, v, mask, dropout, scratch);
  const int64_t H = size.H, N = size.N, M = size.M, chunks = (N + rounds.chunk - 1) / rounds.chunk;
  constexpr T none = -std::numeric_limits<T>::infinity();
  p.each_query([&](int64_t plane, int64_t i) {
    std::fill_n(out.at(plane / H, i, plane % H), M, T(0));
    logsumexp[plane * N + i] = none;
  });
  // A query is in one chunk of a round; so rounds come one after the other.
  for (int64_t round = rounds.first; round < rounds.end; ++round)
    parallel_tasks(p.planes() * chunks, [&](int64_t task) {
      each_tile(p, task / chunks, round, task % chunks,
                [&](const ChunkTile<T>& tile) { attend(tile, out, logsumexp); });
    });
  // Whoever saw no other key sees itself.
  p.each_query([&](int64_t plane, int64_t i) {
    const int64_t b = plane / H, h = plane % H;
    if (logsumexp[plane * N + i] == none && p.visible(plane, i, i))
      add_scaled(out.at(b, i, h), M, p.factor(plane, i, i), v.at(b, i, h));
  });
}

template <class T>
void bucket_attention_backward(Stream, AttentionSize size, BucketRounds rounds, Heads<const T> q, Heads<const T> k,
                               Heads<const T> v, Mask mask, Dropout dropout, Heads<const T> out,
                               const Accum<T>* logsumexp, Heads<const T> dout, Heads<T> dq, Heads<T> dk, Heads<T> dv) {
  Scratch scratch(Device::cpu);
  const Problem<T> p(size, rounds, q, k, v, mask, dropout, scratch);
  const int64_t H = size.H, N = size.N, D = size.D, M = size.M, chunks = (N + rounds.chunk - 1) / rounds.chunk;
  T* const delta = scratch.take<T>(p.planes() * N);  // the sum over keys of A dA is g . out, dropout or not
  p.each_query([&](int64_t plane, int64_t i) {
    const int64_t b = plane / H, h = plane % H, row = plane * N + i;
    delta[row] = dot(out.at(b, i, h), dout.at(b, i, h), M);
    std::fill_n(dq.at(b, i, h), D, T(0));
    std::fill_n(dk.at(b, i, h), D, T(0));
    std::fill_n(dv.at(b, i, h), M, T(0));
    if (logsumexp[row] == -std::numeric_limits<T>::infinity() && p.visible(plane, i, i))  // out_i = z v_i
      add_scaled(dv.at(b, i, h), M, p.factor(plane, i, i), dout.at(b, i, h));
  });
  for (int64_t round = rounds.first; round < rounds.end; ++round)
    for (int64_t now = 0; now < 3; ++now)
      parallel_tasks(p.planes() * chunks, [&](int64_t task) {
        const int64_t plane = task / chunks, c = task % chunks;
        if (turn(c, rounds.chunks(rounds.row(plane, round)).count()) != now) return;
        each_tile(p, plane, round, c,
                  [&](const ChunkTile<T>& tile) { add_gradient(tile, logsumexp, delta, dout, dq, dk, dv); });
      });
}

#define INSTANTIATE(T)                                                                                         \
  template void bucket_attention_forward(Stream, AttentionSize, BucketRounds, Heads<const T>, Heads<const T>,  \
                                         Heads<const T>, Mask, Dropout, Heads<T>, Accum<T>*);                  \
  template void bucket_attention_backward(Stream, AttentionSize, BucketRounds, Heads<const T>, Heads<const T>, \
                                          Heads<const T>, Mask, Dropout, Heads<const T>, const Accum<T>*,      \
                                          Heads<const T>, Heads<T>, Heads<T>, Heads<T>);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace cairn::cpu
