#pragma once
// Locality-sensitive hashing into buckets by the largest of random projections and their opposites (Andoni et al. 2015;
// Reformer, Kitaev et al. 2020, section 2): vectors of similar direction share a bucket, opposite ones never do.
#include <cmath>

#include "core/dispatch.h"
#include "core/kernels/head_view.h"

namespace cairn {

// How many buckets there are: `given`, or, where that is 0, as many as chunks, rounded up to an even number.
struct BucketCount {
  int64_t given = 0, chunk = 32;

  // For n queries; even, at least 2.
  CAIRN_HD int64_t operator()(int64_t n) const {
    if (given > 0) return given;
    const int64_t chunks = n / chunk + (n % chunk > 0);
    return chunks > 2 ? chunks + chunks % 2 : 2;
  }
};

struct BucketSize {
  int64_t B = 0, H = 0, N = 0, D = 0;
  int64_t rounds = 1;
  int64_t columns = 1;  // that a rotation has: at least half of count(N)
  BucketCount count{};
};

// The largest of numbers that are seen in any order; equal ones by the lowest index. NaNs are passed over; index 0 if
// that leaves none.
struct LargestProjection {
  float value = -INFINITY;
  int32_t index = 0;

  CAIRN_HD void see(float x, int32_t i) {
    if (x > value || (x == value && i < index)) value = x, index = i;
  }
};

CAIRN_KERNELS(
    // rotations [rounds, columns, D], normal. Number (round, column, d) of the draw stands at [round, column, d], so
    // the rotations do not depend on the number of rounds or of columns.
    void random_rotations(Stream, int64_t rounds, int64_t columns, int64_t D, Draw, float* rotations);
    // buckets [B, H, rounds, N]: of n valid queries (`lengths` [B], null: N), with y = q . r_j for the first
    // c = count(n) / 2 columns of a round's rotation, the argmax of (y_0 .. y_{c-1}, -y_0 .. -y_{c-1}), ties: lowest;
    // -1 beyond n. The product is one chain of fused multiply-adds over d = 0 .. D-1 in float32 on every device: the
    // same q get the same buckets everywhere.
    template <class T> void hash_buckets(Stream, BucketSize, HeadView<const T> q, const int32_t* lengths,
                                         const float* rotations, int32_t* buckets);)

}  // namespace cairn
