#include "core/kernels/hash_buckets.h"

#include <algorithm>
#include <bit>

#include "core/cpu/projections.h"
#include "core/parallel.h"

namespace cairn::cpu {

// The index of the largest of y_0 .. y_{c-1}, -y_0 .. -y_{c-1}, as LargestProjection finds it. It is the largest |y|;
// 16 lanes each keep their own, so that a step is a few vector operations. Comparisons use one integer: twice the bits
// of |y|, plus 2 if y >= 0, else plus 1, because of equal |y| the positive one has the lower index. A NaN is 0.
class LargestOfBothSigns {
 public:
  // Adds y_first .. y_{first + 63}, without those from y_c on.
  void see(const float* y, int32_t first, int32_t c) {
    uint32_t order[lanes];
    int32_t column[lanes];  // copies, because y might be these members
    std::copy_n(order_, lanes, order), std::copy_n(column_, lanes, column);
    for (int32_t j = 0; j < Projections::width; j += lanes)
      for (int32_t l = 0; l < lanes; ++l) {
        const float x = y[j + l];
        const uint32_t twice = std::bit_cast<uint32_t>(x) << 1, both = x >= 0 ? twice + 2 : x < 0 ? twice + 1 : 0;
        const uint32_t here = first + j + l < c ? both : 0;
        column[l] = here > order[l] ? first + j + l : column[l];
        order[l] = here > order[l] ? here : order[l];
      }
    std::copy_n(order, lanes, order_), std::copy_n(column, lanes, column_);
  }
  int32_t index(int32_t c) const {
    uint32_t maximum = 0;
    int32_t best = 0;
    for (int l = 0; l < lanes; ++l) {
      if (order_[l] < maximum || (order_[l] == maximum && column_[l] >= best)) continue;
      maximum = order_[l], best = column_[l];
    }
    return maximum % 2 == 1 ? best + c : best;
  }

 private:
  uint32_t order_[lanes] = {};
  int32_t column_[lanes] = {};
};

void random_rotations(Stream, int64_t rounds, int64_t columns, int64_t D, Draw draw, float* rotations) {
  const PhiloxKey key = draw.key();
  parallel_for(rounds * columns, 64, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t d = 0; d < D; ++d)
        rotations[i * D + d] = normal(key, uint32_t(i % columns), uint32_t(d), uint32_t(i / columns));
  });
}

template <class T>
void hash_buckets(Stream, BucketSize size, HeadView<const T> q, const int32_t* lengths, const float* rotations,
                  int32_t* buckets) {
  constexpr int64_t width = Projections::width, rows_a_task = 128;
  const int64_t H = size.H, N = size.N, D = size.D, max_columns = std::min(size.count(N) / 2, size.columns);
  const int64_t tiles =
      D > 0 ? (max_columns + width - 1) / width : 0;  // of columns; none if D = 0, when all products are 0
  const int64_t tasks = (N + rows_a_task - 1) / rows_a_task;
  if (size.B * H * N == 0) return;
  std::vector<Projections> project(static_cast<size_t>(size.rounds * tiles), Projections(D));
  for (int64_t round = 0; round < size.rounds; ++round)
    for (int64_t j = 0; j < std::min(max_columns, tiles * width); ++j)
      project[size_t(round * tiles + j / width)].set(int(j % width), rotations + (round * size.columns + j) * D);

  // The heads of the same positions follow each other, because they share cache lines.
  parallel_tasks(size.B * tasks * H, [&](int64_t task) {
    const int64_t h = task % H, b = task / H / tasks, first = task / H % tasks * rows_a_task;
    const int64_t n = lengths ? std::clamp<int64_t>(lengths[b], 0, N) : N;
    const int64_t columns = std::min(size.count(n) / 2, max_columns);
    const int64_t rows = std::min(rows_a_task, N - first), queries = std::clamp<int64_t>(n - first, 0, rows);
    for (int64_t round = 0; round < size.rounds; ++round) {
      int32_t* const bucket = buckets + ((b * H + h) * size.rounds + round) * N + first;
      std::fill_n(bucket, rows, -1);
      LargestOfBothSigns best[rows_a_task];
      for (int64_t c0 = 0; c0 < std::min(columns, tiles * width); c0 += width)
        project[size_t(round * tiles + c0 / width)].each(
            0, queries, [&](int64_t i) { return q.at(b, first + i, h); },
            [&](int64_t i, const float* product) { best[i].see(product, int32_t(c0), int32_t(columns)); });
      for (int64_t i = 0; i < queries; ++i) bucket[i] = best[i].index(int32_t(columns));
    }
  });
}

CAIRN_CPU_TYPES(hash_buckets)

}  // namespace cairn::cpu
