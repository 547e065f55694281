#pragma once
// Attention of sorted positions in chunks (Reformer, Kitaev et al. 2020, section 2): the positions of a (batch element,
// head, round) are sorted by their bucket. Each chunk of them attends to itself and to the chunk before it.
#include <cmath>

#include "core/dispatch.h"
#include "core/kernels/group.h"
#include "core/kernels/head_view.h"

namespace cairn {

// n sorted places in chunks of `size`; the last chunk may be shorter.
struct Chunks {
  int64_t n = 0, size = 1;

  CAIRN_HD int64_t count() const { return (n + size - 1) / size; }
  // The chunk that `chunk` attends to besides itself: for the first one the last. For a lone chunk it is itself.
  CAIRN_HD int64_t before(int64_t chunk) const { return chunk > 0 ? chunk - 1 : count() - 1; }
  // Does the query at this place attend to the chunk of the key at that place?
  CAIRN_HD bool meet(int64_t query, int64_t key) const {
    const int64_t chunk = query / size, other = key / size;
    return query < n && key < n && (other == chunk || other == before(chunk));
  }
};

struct BucketOptions {
  int64_t chunk = 32;
  bool bucket_mask = true;   // keys of other buckets are not visible
  bool deduplicate = false;  // a key counts only in the first round in which the query sees it
};

// Rounds of sorting. Row batch_head * rounds + round of the groups belongs to (batch element, head) `batch_head`.
struct BucketRounds : BucketOptions {
  GroupView groups;  // labels and permutation [B, H, rounds, N], offsets [B, H, rounds, buckets + 1]
  int64_t N = 0, buckets = 0, rounds = 1;
  const int32_t* places = nullptr;  // the inverse of each permutation, for `deduplicate`; kernels make it

  CAIRN_HD int64_t row(int64_t batch_head, int64_t round) const { return batch_head * rounds + round; }
  CAIRN_HD const int32_t* labels(int64_t row) const { return groups.labels + row * N; }
  CAIRN_HD const int32_t* order(int64_t row) const { return groups.permutation + row * N; }
  CAIRN_HD Chunks chunks(int64_t row) const { return {groups.offsets[row * (buckets + 1) + buckets], chunk}; }
  CAIRN_HD bool same_bucket(int64_t row, int64_t i, int64_t j) const {
    return !bucket_mask || labels(row)[i] == labels(row)[j];
  }
  // Did query i see key j of this batch_head in an earlier round?
  CAIRN_HD bool met_before(int64_t batch_head, int64_t round, int64_t i, int64_t j) const {
    for (int64_t earlier = 0; earlier < round; ++earlier) {
      const int64_t r = row(batch_head, earlier);
      const int32_t* place = places + r * N;
      if (chunks(r).meet(place[i], place[j]) && same_bucket(r, i, j)) return true;
    }
    return false;
  }
};

// Merges the attention to two sets of keys: the logsumexp of their union, and the factor of each set's output.
template <class T>
struct MergedKeys {
  T logsumexp, old_factor, new_factor;

  CAIRN_HD MergedKeys(T old_keys, T new_keys) {
    const T running_max = old_keys > new_keys ? old_keys : new_keys,
            shift = running_max == -T(INFINITY) ? T(0) : running_max;
    const T a = std::exp(old_keys - shift), b = std::exp(new_keys - shift), sum = a + b;
    old_factor = sum == 0 ? T(0) : a / sum;
    new_factor = sum == 0 ? T(0) : b / sum;
    logsumexp = sum == 0 ? -T(INFINITY) : shift + std::log(sum);
  }
};

CAIRN_KERNELS(
    // out_i = sum over (round, key) pairs of softmax(scale q_i . k_j) v_j. The keys j of a round are those that the
    // mask, the chunk and the bucket let i see, without i itself. A key of several rounds counts once for each. If i
    // sees no key in any round, out_i = v_i if the mask lets i see i, else 0. Dropout by (query, key), the same in all
    // rounds. logsumexp [B, H, N] of these scores; minus infinity if there are none. Requires size.S = size.N. A
    // position without a bucket (label -1) sees no key, and no query sees it.
    template <class T> void bucket_attention_forward(Stream, const AttentionOperands<T>&, BucketRounds, HeadView<T> out,
                                                     Accum<T>* logsumexp);
    // Writes all of dq, dk, dv.
    template <class T>
    void bucket_attention_backward(Stream, const AttentionOperands<T>&, BucketRounds, HeadView<const T> out,
                                   const Accum<T>* logsumexp, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk,
                                   HeadView<T> dv);)

}  // namespace cairn
