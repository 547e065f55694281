#pragma once
// Locality-sensitive hashing by random projections: vectors of similar direction often have similar hashes.
//   codes    the signs of the projections (Charikar 2002; the paper's section 3.2.2, step 1)
//   buckets  the index of the largest of the projections and their negatives (Andoni et al. 2015; Reformer, Kitaev et
//            al. 2020, section 2); vectors of opposite direction never share one
// On every device a projection is one chain of fused multiply-adds over d = 0 .. D-1 in float32, so the same q get the
// same hashes everywhere.
#include <cmath>

#include "core/dispatch.h"
#include "core/kernels/head_view.h"

namespace cairn {

// `bits` in 1..64.
struct HashSize {
  int64_t B = 0, H = 0, N = 0, D = 0;
  int bits = 0;
};

// The number of buckets of n queries: a b, at least `given`, or if that is 0, at least the number of chunks. A bucket
// is h_a b + h_b, for two hashes of a and b even numbers of values. Up to 64 buckets, h_b alone makes them, and a = 1.
struct BucketCount {
  int64_t given = 0, chunk = 32;

  CAIRN_HD int64_t operator()(int64_t n) const { return a(n) * b(n); }
  CAIRN_HD int64_t a(int64_t n) const {
    return wanted(n) <= 64 ? 1 : 2 * int64_t(std::ceil(std::sqrt(double(wanted(n))) / 2));
  }
  CAIRN_HD int64_t b(int64_t n) const {  // at most a, where a > 1
    const int64_t twice = 2 * a(n);
    return a(n) == 1 ? wanted(n) : (wanted(n) + twice - 1) / twice * 2;
  }
  // Columns of a rotation, for at most n queries: a grows with n, and b is at most 64 or a.
  CAIRN_HD int64_t columns(int64_t n) const {
    const int64_t one = wanted(n) < 64 ? wanted(n) : 64;
    return (one > a(n) ? one : a(n)) / 2;
  }

 private:
  // Even, at least 2.
  CAIRN_HD int64_t wanted(int64_t n) const {
    if (given > 0) return given;
    const int64_t chunks = n / chunk + (n % chunk > 0);
    return chunks > 2 ? chunks + chunks % 2 : 2;
  }
};

struct BucketSize {
  int64_t B = 0, H = 0, N = 0, D = 0;
  int64_t rounds = 1;
  int64_t columns = 1;  // of a rotation: at least count.columns(N)
  BucketCount count{};
  int64_t keys = 0;  // the buckets are counted for so many keys, or for `key_lengths` [B] of them
  const int32_t* key_lengths = nullptr;

  CAIRN_HD int64_t counted(int64_t batch) const {
    if (!key_lengths || key_lengths[batch] > keys) return keys;
    return key_lengths[batch] > 0 ? key_lengths[batch] : 0;
  }
};

// The largest of the numbers seen so far, in any order, and its index; of equal ones the lowest. NaNs are skipped; if
// all are NaN, the index is 0.
struct LargestProjection {
  float value = -INFINITY;
  int32_t index = 0;

  CAIRN_HD void see(float x, int32_t i) {
    if (x > value || (x == value && i < index)) value = x, index = i;
  }
};

CAIRN_KERNELS(
    // rotations [rounds, columns, D], normal for d < random, then 0. Element [round, column, d] is number (round,
    // column, d) of the draw, so it does not depend on how many rounds and columns there are. (The planes of hash_codes
    // are one round of them.)
    void random_rotations(Stream, int64_t rounds, int64_t columns, int64_t D, int64_t random, Draw, float* rotations);
    // planes [bits, D + 1]: row j is p_j, then the threshold t_j. Bit j of codes [B, H, N] is 1 where q . p_j > t_j; a
    // NaN gives 0.
    template <class T> void hash_codes(Stream, HashSize, HeadView<const T> q, const float* planes, uint64_t* codes);
    // buckets [B, H, rounds, N] of n valid queries (`lengths` [B]; null: N); -1 beyond n. A hash of 2 c values has
    // y_j = q . r_j for the first c columns r_j of its rotation: it is the argmax of (y_0 .. y_{c-1}, -y_0 ..
    // -y_{c-1}), the lowest index of equal ones. Rotations [rounds, 2, columns, D]: of h_b and of h_a.
    template <class T> void hash_buckets(Stream, BucketSize, HeadView<const T> q, const int32_t* lengths,
                                         const float* rotations, int32_t* buckets);)

}  // namespace cairn
