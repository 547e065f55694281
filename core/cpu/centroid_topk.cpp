// Centroid attention, split into its top keys and the rest. Two passes over tiles of scores: the first finds logsumexp
// and the top keys, the second sums the rest. Where all keys fit in one tile its scores are computed once. The gradient
// is attention_gradient of attention_tiles.h, with another gradient of the weights.
#include "core/kernels/centroid_topk.h"

#include "core/cpu/attention_tiles.h"

namespace cairn::cpu {
namespace {

// The k largest scores seen so far, largest first, equal ones in the order of arrival (by rising index).
template <class T>
class Largest {
 public:
  Largest(T* scores, int32_t* keys, int64_t k) : scores_(scores), keys_(keys), k_(k) {}

  int64_t count() const { return count_; }
  // Whatever is not above this cannot enter. A later score equal to the last one kept loses, as its index is higher.
  T threshold() const { return count_ < k_ ? -std::numeric_limits<T>::infinity() : scores_[k_ - 1]; }

  void offer(const T* scores, int64_t n, int64_t first_key) {
    constexpr int64_t step = 16;
    for (int64_t j = 0; j < n; j += step) {
      const int64_t end = std::min(n, j + step);
      if (!(maximum(scores + j, end - j) > threshold())) continue;
      for (int64_t l = j; l < end; ++l)
        if (scores[l] > threshold()) insert(scores[l], int32_t(first_key + l));
    }
  }

 private:
  void insert(T score, int32_t key) {
    int64_t place = count_ < k_ ? count_++ : k_ - 1;
    for (; place > 0 && scores_[place - 1] < score; --place) {
      scores_[place] = scores_[place - 1];
      keys_[place] = keys_[place - 1];
    }
    scores_[place] = score;
    keys_[place] = key;
  }

  T* scores_;
  int32_t* keys_;
  int64_t k_, count_ = 0;
};

// The scores of given keys that lie within a tile.
template <class T>
void keep_given(const int32_t* keys, int64_t k, const Tile& t, const T* row, T* scores) {
  for (int64_t l = 0; l < k; ++l)
    if (keys[l] >= t.k0 && keys[l] < t.k1) scores[l] = row[keys[l] - t.k0];
}

}  // namespace

template <class T>
void centroid_topk_forward(Stream, AttentionSize size, int64_t k, bool choose, Heads<const T> q, Heads<const T> keys,
                           Heads<const T> v, Mask mask, Dropout dropout, int32_t* topk, Accum<T>* logsumexp, T* mass,
                           Heads<T> rest) {
  constexpr int64_t rows_a_block = 64;
  const int64_t H = size.H, N = size.N, M = size.M, blocks = (N + rows_a_block - 1) / rows_a_block;
  const PhiloxKey dropout_key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  constexpr T none = -std::numeric_limits<T>::infinity();

  parallel_tasks(size.B * H * blocks, [&](int64_t task) {
    thread_local std::vector<T> score_memory, factor_memory, largest_memory;
    const int64_t plane = task / blocks, b = plane / H, h = plane % H;
    const int64_t q0 = task % blocks * rows_a_block, end = std::min(N, q0 + rows_a_block);
    const int64_t q1 = std::clamp(mask.queries(b, N), q0, end), last = last_key(mask, size, b, q1);
    T* scores = room(score_memory, rows_a_block * tile_keys);
    T* factor = room(factor_memory, tile_keys);
    T* largest_scores = room(largest_memory, rows_a_block * k);
    T most[rows_a_block], sum[rows_a_block];
    std::fill_n(most, rows_a_block, none);
    std::fill_n(sum, rows_a_block, T(0));
    if (choose)
      std::fill_n(topk + (plane * N + q0) * k, (end - q0) * k, -1);
    else
      std::fill_n(largest_scores, (end - q0) * k, none);  // of given keys that are masked
    std::vector<Largest<T>> largest;
    for (int64_t i = q0; i < end; ++i)
      largest.emplace_back(largest_scores + (i - q0) * k, topk + (plane * N + i) * k, k);

    for (int64_t k0 = 0; k0 < last && q1 > q0; k0 += tile_keys) {
      const Tile t{b, h, q0, q1, k0, std::min(last, k0 + tile_keys)};
      score_tile(size, q, keys, mask, t, scores);
      for (int64_t i = 0; i < t.rows(); ++i) {
        const T* row = scores + i * t.cols();
        const T before = most[i];
        most[i] = std::max(before, maximum(row, t.cols()));
        const T shift = finite_shift(most[i]);
        sum[i] = sum[i] * exponential(before - shift) +
                 sum_of<T>(t.cols(), [=](int64_t j) { return exponential(row[j] - shift); });
        if (choose)
          largest[size_t(i)].offer(row, t.cols(), k0);
        else
          keep_given(topk + (plane * N + q0 + i) * k, k, t, row, largest_scores + i * k);
      }
    }
    for (int64_t i = q0; i < end; ++i) {
      const int64_t row = plane * N + i;
      const T total = sum[i - q0];
      logsumexp[row] = total == 0 ? none : most[i - q0] + std::log(total);
      const T shift = finite_shift(logsumexp[row]);
      const T* top_scores = largest_scores + (i - q0) * k;
      int32_t* chosen = topk + row * k;
      if (choose) std::sort(chosen, chosen + largest[size_t(i - q0)].count());
      const int64_t count = i < q1 && last > 0 ? std::find(chosen, chosen + k, -1) - chosen : 0;
      mass[row] = sum_of<T>(count, [=](int64_t l) { return exponential(top_scores[l] - shift); });
    }

    if (!rest) return;
    zero_rows(rest, b, h, last == 0 ? q0 : q1, end, M);
    for (int64_t k0 = 0; k0 < last && q1 > q0; k0 += tile_keys) {
      const Tile t{b, h, q0, q1, k0, std::min(last, k0 + tile_keys)};
      if (last > tile_keys) score_tile(size, q, keys, mask, t, scores);
      for (int64_t i = q0; i < q1; ++i) {
        const int64_t row = plane * N + i;
        T* a = scores + (i - q0) * t.cols();
        exponentials(a, t.cols(), finite_shift(logsumexp[row]), a);
        TopKeys<T>{k, topk}.each(row, t, [&](int64_t j) { a[j] = 0; });
        if (dropout.active()) {
          dropout_factors(dropout, dropout_key, plane, i, k0, t.k1, factor);
          for (int64_t j = 0; j < t.cols(); ++j) a[j] *= factor[j];
        }
      }
      gemm_tile(false, false, t.rows(), M, t.cols(), 1.0, scores, t.cols(), v.at(b, k0, h), v.row_stride,
                k0 > 0 ? 1.0 : 0.0, rest.at(b, q0, h), rest.row_stride);
    }
  });
}

template <class T>
void centroid_topk_backward(Stream, AttentionSize size, int64_t k, Heads<const T> q, Heads<const T> keys,
                            Heads<const T> v, Mask mask, Dropout dropout, const int32_t* topk,
                            const Accum<T>* logsumexp, const T* mass, Heads<const T> rest, const T* dmass,
                            Heads<const T> drest, Scratch& scratch, Heads<T> dq, Heads<T> dk, Heads<T> dv) {
  // The sum over keys of A dA: m dm from the top keys, rest . drest from the others.
  T* delta = scratch.take<T>(size.B * size.H * size.N);
  parallel_for(size.B * size.H * size.N, 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t plane = row / size.N, b = plane / size.H, h = plane % size.H, i = row % size.N;
      delta[row] = mass[row] * dmass[row] + dot(rest.at(b, i, h), drest.at(b, i, h), size.M);
    }
  });
  attention_gradient(size, q, keys, v, mask, dropout, TopKeys<T>{k, topk, dmass}, logsumexp, delta, drest, scratch, dq,
                     dk, dv);
}

#define INSTANTIATE(T)                                                                                                 \
  template void centroid_topk_forward(Stream, AttentionSize, int64_t, bool, Heads<const T>, Heads<const T>,            \
                                      Heads<const T>, Mask, Dropout, int32_t*, Accum<T>*, T*, Heads<T>);               \
  template void centroid_topk_backward(Stream, AttentionSize, int64_t, Heads<const T>, Heads<const T>, Heads<const T>, \
                                       Mask, Dropout, const int32_t*, const Accum<T>*, const T*, Heads<const T>,       \
                                       const T*, Heads<const T>, Scratch&, Heads<T>, Heads<T>, Heads<T>);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace cairn::cpu
