// Attention of each chunk of sorted positions to itself and to the chunk before it. A task takes several neighboring
// chunks: it gathers the rows of a chunk once, for this chunk and for the next. `out` and `logsumexp` hold the
// attention to the keys seen so far; each further tile, of any round, is merged into them.
#include "core/kernels/bucket_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/cpu/attention_tiles.h"
#include "core/workspace.h"

namespace cairn::cpu {
namespace {

constexpr int64_t max_queries = 64, max_keys = 128;  // of a tile
constexpr int64_t task_rows = 256;  // of a task (a longer chunk is a task of its own): with gradients, they fit into L2

template <class T>
struct BucketProblem : AttentionOperands<T> {
  using AttentionOperands<T>::size, AttentionOperands<T>::mask, AttentionOperands<T>::dropout;
  BucketRounds rounds;
  PhiloxKey dropout_key{};

  BucketProblem(const AttentionOperands<T>& in, const BucketRounds& rounds_, Workspace& workspace)
      : AttentionOperands<T>(in), rounds(rounds_) {
    if (dropout.active()) dropout_key = dropout.draw.key();
    if (!rounds.deduplicate) return;
    int32_t* const places = workspace.take<int32_t>(batch_heads() * rounds.rounds * size.N);
    parallel_tasks(batch_heads() * rounds.rounds, [&](int64_t row) {
      for (int64_t place = 0; place < size.N; ++place) places[row * size.N + rounds.order(row)[place]] = int32_t(place);
    });
    rounds.places = places;
  }

  int64_t batch_heads() const { return size.B * size.H; }
  int64_t chunks_a_task() const { return std::max<int64_t>(1, task_rows / rounds.chunk); }
  int64_t tasks() const { return Chunks{size.N, chunks_a_task() * rounds.chunk}.count(); }
  // Does the mask let query i see key j?
  bool visible(int64_t batch_head, int64_t i, int64_t j) const {
    const int64_t b = batch_head / size.H;
    return i < mask.queries(b, size.N) && j < mask.keys(b, size.N) && mask.visible(b, batch_head % size.H, i, j);
  }
  T factor(int64_t batch_head, int64_t i, int64_t j) const {
    return dropout.active() ? T(dropout.factor(dropout_key, uint32_t(batch_head), uint32_t(i), uint32_t(j))) : T(1);
  }

  // Calls f(batch_head, round, task, pass) for all tasks. The passes of a round come one after the other, and so do the
  // rounds of a batch_head. Few batch_heads at a time: a round then finds in the caches what the round before has used.
  template <class F>
  void each_task(int64_t passes, F&& f) const {
    const int64_t tasks_a_head = tasks(), some = std::max<int64_t>(1, 64 / std::max<int64_t>(1, tasks_a_head));
    for (int64_t batch_head = 0; batch_head < batch_heads(); batch_head += some)
      for (int64_t round = 0; round < rounds.rounds; ++round)
        for (int64_t pass = 0; pass < passes; ++pass)
          parallel_tasks(std::min(some, batch_heads() - batch_head) * tasks_a_head,
                         [&](int64_t task) { f(batch_head + task / tasks_a_head, round, task % tasks_a_head, pass); });
  }
};

// The chunks of a task, gathered. Its keys are the chunk before the first one, then its queries: query i is key
// before + i.
template <class T>
struct Task {
  const BucketProblem<T>& p;
  int64_t batch_head, round, batch, head;
  Chunks chunks;
  int64_t first, end;                      // its chunks
  int64_t queries, before, keys;           // counts; keys = before + queries
  int32_t* position;                       // [keys]
  int32_t *label_of_key, *label_of_query;  // [keys], [queries]: equal where bucket and lengths let them meet
  T *q, *k, *v;                            // [queries, D], [keys, D], [keys, M]
  T *weights, *dweights;                   // of a tile
  T* next;                                 // the free rest of the scratch memory

  Task(const BucketProblem<T>& problem, int64_t batch_head_, int64_t round_, int64_t index)
      : p(problem), batch_head(batch_head_), round(round_), batch(batch_head / p.size.H), head(batch_head % p.size.H) {
    const int64_t N = p.size.N, D = p.size.D, M = p.size.M;
    const int64_t row = p.rounds.row(batch_head, round), own_chunks = p.chunks_a_task();
    chunks = p.rounds.chunks(row);
    first = std::min(index * own_chunks, chunks.count()), end = std::min(first + own_chunks, chunks.count());
    const int64_t place = first * chunks.size;                                      // of the first query
    queries = std::max<int64_t>(0, std::min(end * chunks.size, chunks.n) - place);  // none beyond the last chunk
    const int64_t other = queries > 0 ? chunks.before(first) : first, place_before = other * chunks.size;
    before = other == first ? 0 : std::min(chunks.size, chunks.n - place_before);
    keys = before + queries;

    thread_local Scratch<int32_t> numbers;
    position = numbers.take(2 * keys + queries), label_of_key = position + keys, label_of_query = label_of_key + keys;
    std::copy_n(p.rounds.order(row) + place_before, before, position);
    std::copy_n(p.rounds.order(row) + place, queries, position + before);
    const int32_t* const labels = p.rounds.labels(row);
    const int64_t queries_seen = p.mask.queries(batch, N), keys_seen = p.mask.keys(batch, N);
    for (int64_t j = 0; j < keys; ++j) {
      const int32_t label = p.rounds.bucket_mask ? labels[position[j]] : 0;
      label_of_key[j] = position[j] < keys_seen ? label : -1;
      if (j >= before) label_of_query[j - before] = position[j] < queries_seen ? label : -2;
    }

    thread_local Scratch<T> memory;
    next = memory.take(2 * (queries + keys) * (D + M) + 2 * max_queries * tile_row(max_keys));
    q = gathered(p.q, position + before, queries, D);
    k = gathered(p.k, position, keys, D), v = gathered(p.v, position, keys, M);
    weights = take(max_queries * tile_row(max_keys)), dweights = take(max_queries * tile_row(max_keys));
  }

  const int32_t* query_position() const { return position + before; }
  T* take(int64_t n) { return std::exchange(next, next + n); }
  T* zeros(int64_t n) {
    std::fill_n(next, n, T(0));
    return take(n);
  }
  T* gathered(HeadView<const T> x, const int32_t* rows, int64_t count, int64_t n) {
    T* const to = take(count * n);
    gather_rows(x, batch, head, rows, count, n, to);
    return to;
  }
  void add(const T* from, const int32_t* rows, int64_t count, int64_t n, HeadView<T> to) const {
    each_row(to, batch, head, rows, count, n, [=](int64_t i, T* row) { add_scaled(row, n, T(1), from + i * n); });
  }

  // Calls f(tile) for all tiles of the task; a tile counts the task's queries and keys.
  template <class F>
  void each_tile(F&& f) const {
    for (int64_t c = first; c < end; ++c) {
      const int64_t begin = (c - first) * chunks.size, stop = std::min(begin + chunks.size, queries);
      const int64_t from = c == first ? 0 : before + begin - chunks.size;
      for (int64_t i = begin; i < stop; i += max_queries)
        for (int64_t j = from; j < before + stop; j += max_keys)
          f(Tile{batch, head, i, std::min(i + max_queries, stop), j, std::min(j + max_keys, before + stop)});
    }
  }

  // weights = scale Q K^T, minus infinity where the query does not see the key.
  void scores(const Tile& t) const {
    constexpr T none = -std::numeric_limits<T>::infinity();
    const int64_t D = p.size.D;
    gemm_tile(false, true, t.rows(), t.cols(), D, p.size.scale, q + t.q0 * D, D, k + t.k0 * D, D, 0.0, weights,
              t.row());
    const bool deduplicate = p.rounds.deduplicate && round > 0;
    const int32_t *label = label_of_key + t.k0, *key = position + t.k0;
    for (int64_t i = t.q0; i < t.q1; ++i) {
      T* const score = weights + (i - t.q0) * t.row();
      const int32_t own = label_of_query[i], query = query_position()[i];
      for (int64_t j = 0; j < t.cols(); ++j) {
        const bool seen = (label[j] == own) & (key[j] != query);
        score[j] = seen ? score[j] : none;
      }
      if (!deduplicate && !p.mask.elementwise()) continue;
      for (int64_t j = 0; j < t.cols(); ++j)
        if (score[j] != none && (!p.mask.visible(batch, head, query, key[j]) ||
                                 (deduplicate && p.rounds.met_before(batch_head, round, query, key[j]))))
          score[j] = none;
    }
  }
  // Multiplies x, a tile, with the factors of dropout.
  void drop(const Tile& t, T* x) const {
    if (!p.dropout.active()) return;
    for (int64_t i = t.q0; i < t.q1; ++i)
      for (int64_t j = t.k0; j < t.k1; ++j)
        x[(i - t.q0) * t.row() + j - t.k0] *= p.factor(batch_head, query_position()[i], position[j]);
  }
};

template <class T>
void attend(Task<T> task, HeadView<T> out, Accum<T>* logsumexp) {
  const int64_t M = task.p.size.M;
  T* const values = task.take(std::min(max_queries, task.queries) * M);
  task.each_tile([&](const Tile& t) {
    task.scores(t);
    T sums[max_queries], running_max[max_queries];
    for (int64_t i = 0; i < t.rows(); ++i) {
      T* row = task.weights + i * t.row();
      running_max[i] = maximum(row, t.cols());
      sums[i] = exponentials(row, t.cols(), finite_shift(running_max[i]), row);
    }
    task.drop(t, task.weights);
    gemm_tile(false, false, t.rows(), M, t.cols(), 1.0, task.weights, t.row(), task.v + t.k0 * M, M, 0.0, values, M);
    const int32_t* const queries = task.query_position() + t.q0;
    each_row(out, task.batch, task.head, queries, t.rows(), M, [&](int64_t i, T* to) {
      if (sums[i] == 0) return;  // sees none of these keys
      Accum<T>& kept = logsumexp[task.batch_head * task.p.size.N + queries[i]];
      const MergedKeys<T> merged(kept, finite_shift(running_max[i]) + std::log(sums[i]));
      if (std::exchange(kept, merged.logsumexp) == -std::numeric_limits<T>::infinity())
        std::fill_n(to, M, T(0));  // the first keys that it sees: nothing is written before
      else
        scale(to, M, merged.old_factor);
      add_scaled(to, M, merged.new_factor / sums[i], values + i * M);
    });
  });
}

template <class T>
void add_gradient(Task<T> task, const Accum<T>* logsumexp, const T* delta, HeadView<const T> dout, HeadView<T> dq,
                  HeadView<T> dk, HeadView<T> dv) {
  const int64_t N = task.p.size.N, D = task.p.size.D, M = task.p.size.M;
  const T* const g = task.gathered(dout, task.query_position(), task.queries, M);
  T *const of_queries = task.zeros(task.queries * D), *const of_keys = task.zeros(task.keys * D);
  T* const of_values = task.zeros(task.keys * M);
  T *const weights = task.weights, *const dscores = task.dweights;
  task.each_tile([&](const Tile& t) {
    const int64_t rows = t.rows(), cols = t.cols();
    const T *const q_rows = task.q + t.q0 * D, *const g_rows = g + t.q0 * M;
    task.scores(t);
    gemm_tile(false, true, rows, cols, M, 1.0, g_rows, M, task.v + t.k0 * M, M, 0.0, dscores, t.row());
    task.drop(t, dscores);
    for (int64_t i = 0; i < rows; ++i) {
      T *a = weights + i * t.row(), *ds = dscores + i * t.row();
      const int64_t row = task.batch_head * N + task.query_position()[t.q0 + i];
      const T shift = finite_shift(logsumexp[row]), row_delta = delta[row];
      for (int64_t j = 0; j < cols; ++j) {
        a[j] = exponential(a[j] - shift);
        ds[j] = T(task.p.size.scale) * a[j] * (ds[j] - row_delta);
      }
    }
    task.drop(t, weights);
    gemm_tile(false, false, rows, D, cols, 1.0, dscores, t.row(), task.k + t.k0 * D, D, 1.0, of_queries + t.q0 * D, D);
    gemm_tile(true, false, cols, D, rows, 1.0, dscores, t.row(), q_rows, D, 1.0, of_keys + t.k0 * D, D);
    gemm_tile(true, false, cols, M, rows, 1.0, weights, t.row(), g_rows, M, 1.0, of_values + t.k0 * M, M);
  });
  task.add(of_queries, task.query_position(), task.queries, D, dq);
  task.add(of_keys, task.position, task.keys, D, dk);
  task.add(of_values, task.position, task.keys, M, dv);
}

// The backward pass of a task: 0 for even tasks, 1 for odd ones. No two tasks of a pass share a key. Task 0 wraps to
// the last one; if both are even, it has pass 2 for itself.
int64_t pass_of(int64_t task, int64_t count) { return task == 0 && count > 1 && count % 2 == 1 ? 2 : task % 2; }

}  // namespace

template <class T>
void bucket_attention_forward(Stream, const AttentionOperands<T>& in, BucketRounds rounds, HeadView<T> out,
                              Accum<T>* logsumexp) {
  Workspace workspace(Device::cpu);
  const BucketProblem<T> p(in, rounds, workspace);
  const int64_t N = in.size.N, M = in.size.M;
  constexpr T none = -std::numeric_limits<T>::infinity();
  std::fill_n(logsumexp, p.batch_heads() * N, none);
  p.each_task(1, [&](int64_t batch_head, int64_t round, int64_t task, int64_t) {
    attend(Task<T>(p, batch_head, round, task), out, logsumexp);
  });
  // A query that sees no other key sees itself.
  each_query(in.size, [&](int64_t row, int64_t b, int64_t i, int64_t h) {
    if (logsumexp[row] != none) return;
    std::fill_n(out.at(b, i, h), M, T(0));
    if (p.visible(row / N, i, i)) add_scaled(out.at(b, i, h), M, p.factor(row / N, i, i), in.v.at(b, i, h));
  });
}

template <class T>
void bucket_attention_backward(Stream, const AttentionOperands<T>& in, BucketRounds rounds, HeadView<const T> out,
                               const Accum<T>* logsumexp, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk,
                               HeadView<T> dv) {
  Workspace workspace(Device::cpu);
  const BucketProblem<T> p(in, rounds, workspace);
  const int64_t N = in.size.N, D = in.size.D, M = in.size.M;
  T* const delta = workspace.take<T>(p.batch_heads() * N);  // the sum over keys of A dA is g . out, dropout or not
  each_query(in.size, [&](int64_t row, int64_t b, int64_t i, int64_t h) {
    delta[row] = dot(out.at(b, i, h), dout.at(b, i, h), M);
    std::fill_n(dq.at(b, i, h), D, T(0));
    std::fill_n(dk.at(b, i, h), D, T(0));
    std::fill_n(dv.at(b, i, h), M, T(0));
    if (logsumexp[row] == -std::numeric_limits<T>::infinity() && p.visible(row / N, i, i))  // out_i = z v_i
      add_scaled(dv.at(b, i, h), M, p.factor(row / N, i, i), dout.at(b, i, h));
  });
  p.each_task(3, [&](int64_t batch_head, int64_t round, int64_t task, int64_t pass) {
    const Chunks all = rounds.chunks(rounds.row(batch_head, round));
    if (pass == pass_of(task, Chunks{all.n, p.chunks_a_task() * all.size}.count()))
      add_gradient(Task<T>(p, batch_head, round, task), logsumexp, delta, dout, dq, dk, dv);
  });
}

CAIRN_CPU_TYPES(bucket_attention_forward)
CAIRN_CPU_TYPES(bucket_attention_backward)

}  // namespace cairn::cpu
