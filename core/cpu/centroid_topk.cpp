// Centroid attention, split into its top keys and the rest, in one pass over tiles of scores. A running maximum and sum
// of exponentials hold the softmax so far. The sum over values leaves out the keys that are among the top so far; when
// a later key displaces one of them, that one is added. The gradient is attention_gradient of attention_tiles.h, with
// another gradient of the weights.
#include "core/kernels/centroid_topk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "core/cpu/attention_tiles.h"
#include "core/workspace.h"

namespace cairn::cpu {
namespace {

// A key that no longer is among the largest.
template <class T>
struct Displaced {
  int64_t row;
  int32_t key;
  T score;
};

// The k largest scores of a row so far, largest first. Equal scores stay in the order of arrival, which is by rising
// index.
template <class T>
class TopKeyList {
 public:
  TopKeyList(int64_t row, T* scores, int32_t* keys, int64_t k) : row_(row), scores_(scores), keys_(keys), k_(k) {}

  int64_t count() const { return count_; }
  // Only a score above this enters the list. A score equal to the last one loses, because its index is higher.
  T threshold() const { return count_ < k_ ? floor_ : scores_[k_ - 1]; }

  // Offers n scores; adds to `displaced` the keys before first_key that they displace.
  void offer(const T* scores, int64_t n, int64_t first_key, std::vector<Displaced<T>>& displaced) {
    constexpr int64_t step = 32;
    if (count_ == 0) floor_ = lower_bound(scores, n);
    for (int64_t j = 0; j < n; j += step) {
      const T minimum = threshold();
      uint32_t above = 0;  // a bit for each score
      if (j + step <= n)
        for (int64_t l = 0; l < step; ++l) above |= uint32_t(scores[j + l] > minimum) << l;
      else
        for (int64_t l = 0; j + l < n; ++l) above |= uint32_t(scores[j + l] > minimum) << l;
      for (; above; above &= above - 1) {
        const int64_t l = j + std::countr_zero(above);
        if (!(scores[l] > threshold())) continue;
        if (count_ == k_ && keys_[k_ - 1] < first_key) displaced.push_back({row_, keys_[k_ - 1], scores_[k_ - 1]});
        insert(scores[l], int32_t(first_key + l));
      }
    }
  }

 private:
  // A number that at least k of n scores exceed: below it, scores need no insertion. The scores are split into 2 k
  // groups or more; the k-th largest group maximum is a lower bound for the k-th largest score. Minus infinity where
  // this gains nothing.
  T lower_bound(const T* scores, int64_t n) const {
    constexpr int64_t max_groups = 256, step = 16;
    constexpr T none = -std::numeric_limits<T>::infinity();
    const int64_t groups = (2 * k_ + step - 1) / step * step;
    if (groups > max_groups || n < 2 * groups) return none;
    T largest[max_groups];
    std::fill_n(largest, groups, none);
    for (int64_t j = 0; j + groups <= n; j += groups)
      for (int64_t l = 0; l < groups; ++l) largest[l] = scores[j + l] > largest[l] ? scores[j + l] : largest[l];
    std::nth_element(largest, largest + k_ - 1, largest + groups, std::greater<T>());
    return std::nextafter(largest[k_ - 1], none);
  }

  void insert(T score, int32_t key) {
    int64_t place = 0;
    for (int64_t i = 0; i < count_; ++i) place += scores_[i] >= score;
    count_ = std::min(count_ + 1, k_);
    std::copy_backward(scores_ + place, scores_ + count_ - 1, scores_ + count_);
    std::copy_backward(keys_ + place, keys_ + count_ - 1, keys_ + count_);
    scores_[place] = score;
    keys_[place] = key;
  }

  int64_t row_;
  T* scores_;
  int32_t* keys_;
  int64_t k_, count_ = 0;
  T floor_ = -std::numeric_limits<T>::infinity();
};

// Keeps the scores of the given keys that lie in a tile.
template <class T>
void keep_given(const int32_t* keys, int64_t k, const Tile& t, const T* row, T* scores) {
  for (int64_t l = 0; l < k; ++l)
    if (keys[l] >= t.k0 && keys[l] < t.k1) scores[l] = row[keys[l] - t.k0];
}

// Adds to `rest` the displaced keys: weight times value. The weights are relative to exp(running_max).
template <class T>
void add_displaced(const AttentionOperands<T>& in, const PhiloxKey& dropout_key, const Tile& t,
                   const std::vector<Displaced<T>>& displaced, const T* running_max, HeadView<T> rest) {
  const auto batch_head = uint32_t(t.batch * in.size.H + t.head);
  for (const auto& [i, key, score] : displaced) {
    T weight = exponential(score - finite_shift(running_max[i]));
    if (in.dropout.active()) weight *= T(in.dropout.factor(dropout_key, batch_head, uint32_t(t.q0 + i), uint32_t(key)));
    add_scaled(rest.at(t.batch, t.q0 + i, t.head), in.size.M, weight, in.v.at(t.batch, key, t.head));
  }
}

}  // namespace

template <class T>
void centroid_topk_forward(Stream, const AttentionOperands<T>& in, int64_t k, bool choose, int32_t* topk,
                           Accum<T>* logsumexp, T* mass, HeadView<T> rest) {
  const AttentionSize& size = in.size;
  const Mask& mask = in.mask;
  const Dropout& dropout = in.dropout;
  constexpr int64_t tile_queries = 64;
  const int64_t tile_keys = tile_size(mask).keys;
  const int64_t H = size.H, N = size.N, M = size.M, query_tiles = (N + tile_queries - 1) / tile_queries;
  const PhiloxKey dropout_key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  constexpr T none = -std::numeric_limits<T>::infinity();

  parallel_tasks(size.B * H * query_tiles, [&](int64_t task) {
    thread_local Scratch<T> score_memory, factor_memory, largest_memory;
    const int64_t batch_head = task / query_tiles, b = batch_head / H, h = batch_head % H;
    const int64_t q0 = task % query_tiles * tile_queries, end = std::min(N, q0 + tile_queries);
    const int64_t q1 = std::clamp(mask.queries(b, h, N), q0, end), last = end_of_keys(mask, size, b, h, q1);
    T* scores = score_memory.take(tile_queries * tile_row(tile_keys));
    T* factor = factor_memory.take(tile_keys);
    T* largest_scores = largest_memory.take(tile_queries * k);
    T running_max[tile_queries], sum[tile_queries];
    std::fill_n(running_max, tile_queries, none);
    std::fill_n(sum, tile_queries, T(0));
    if (choose)
      std::fill_n(topk + (batch_head * N + q0) * k, (end - q0) * k, -1);
    else
      std::fill_n(largest_scores, (end - q0) * k, none);  // of masked keys, if they are given as top keys
    std::vector<TopKeyList<T>> largest;
    for (int64_t i = q0; i < end; ++i)
      largest.emplace_back(i - q0, largest_scores + (i - q0) * k, topk + (batch_head * N + i) * k, k);
    std::vector<Displaced<T>> displaced;

    for (int64_t k0 = 0; k0 < last && q1 > q0; k0 += tile_keys) {
      const Tile t{b, h, q0, q1, k0, std::min(last, k0 + tile_keys)};
      score_tile(in, t, scores);
      displaced.clear();
      for (int64_t i = 0; i < t.rows(); ++i) {
        T* row = scores + i * t.row();
        int32_t* chosen = topk + (batch_head * N + q0 + i) * k;
        const T before = running_max[i];
        running_max[i] = std::max(before, maximum(row, t.cols()));
        if (choose)
          largest[size_t(i)].offer(row, t.cols(), k0, displaced);
        else
          keep_given(chosen, k, t, row, largest_scores + i * k);
        const T shift = finite_shift(running_max[i]), correction = exponential(before - shift);
        // [eq. 4]
        sum[i] = sum[i] * correction + exponentials(row, t.cols(), shift, row);
        if (!rest) continue;
        if (k0 > 0 && correction != 1) scale(rest.at(b, q0 + i, h), M, correction);
        for (int64_t l = 0; l < k; ++l)
          if (chosen[l] >= k0 && chosen[l] < t.k1) row[chosen[l] - k0] = 0;
        if (dropout.active()) {
          dropout_factors(dropout, dropout_key, batch_head, q0 + i, k0, t.k1, factor);
          for (int64_t j = 0; j < t.cols(); ++j) row[j] *= factor[j];
        }
      }
      if (!rest) continue;
      // [eq. 10] [eq. 17] The other keys keep the weights of the centroid.
      gemm_tile(false, false, t.rows(), M, t.cols(), 1.0, scores, t.row(), in.v.at(b, k0, h), in.v.row_stride,
                k0 > 0 ? 1.0 : 0.0, rest.at(b, q0, h), rest.row_stride);
      add_displaced(in, dropout_key, t, displaced, running_max, rest);
    }

    for (int64_t i = q0; i < end; ++i) {
      const int64_t row = batch_head * N + i;
      const T total = sum[i - q0];
      logsumexp[row] = total == 0 ? none : running_max[i - q0] + std::log(total);
      const T shift = finite_shift(logsumexp[row]);
      const T* top_scores = largest_scores + (i - q0) * k;
      int32_t* chosen = topk + row * k;
      if (choose) std::sort(chosen, chosen + largest[size_t(i - q0)].count());
      const int64_t count = i < q1 && last > 0 ? std::find(chosen, chosen + k, -1) - chosen : 0;
      // [eq. 9]
      mass[row] = sum_of<T>(count, [=](int64_t l) { return exponential(top_scores[l] - shift); });
      if (rest && i < q1 && last > 0) scale(rest.at(b, i, h), M, total == 0 ? T(0) : 1 / total);
    }
    if (rest) zero_rows(rest, b, h, last == 0 ? q0 : q1, end, M);
  });
}

template <class T>
void centroid_topk_backward(Stream, const AttentionOperands<T>& in, int64_t k, const int32_t* topk,
                            const Accum<T>* logsumexp, const T* mass, HeadView<const T> rest, const T* dmass,
                            HeadView<const T> drest, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = in.size;
  Workspace workspace(Device::cpu);
  // [lesson 9
  // [grad. 9] delta, the sum over keys of A dA: m dm from the top keys, rest . drest from the others.
  T* delta = workspace.take<T>(size.B * size.H * size.N);
  each_query(size, [&](int64_t row, int64_t b, int64_t i, int64_t h) {
    delta[row] = mass[row] * dmass[row] + dot(rest.at(b, i, h), drest.at(b, i, h), size.M);
  });
  attention_gradient(in, TopKeys<T>{k, topk, dmass}, logsumexp, delta, drest, dq, dk, dv, true);
  // lesson 9]
}

CAIRN_CPU_TYPES(centroid_topk_forward)
CAIRN_CPU_TYPES(centroid_topk_backward)

}  // namespace cairn::cpu
