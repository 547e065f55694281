#include "core/kernels/hash_buckets.h"

#include <algorithm>

#include "core/cpu/projections.h"
#include "core/parallel.h"

namespace cairn::cpu {

// The largest of y_0 .. y_{c-1}, -y_0 .. -y_{c-1} and its index, as struct Largest finds it: that of the |y|, kept for
// each of 16 lanes, so that a step is a few vector operations.
class LargestOfBoth {
 public:
  // y_first .. y_{first + 63}; those from y_c on do not count.
  void see(const float* y, int32_t first, int32_t c) {
    for (int32_t j = first; j < std::min(first + Projections::width, c); j += lanes, y += lanes)
      for (int32_t l = 0; l < lanes; ++l) {
        const float x = j + l < c ? std::fabs(y[l]) : -1.0f;
        const int32_t at = j + l + (y[l] >= 0 ? 0 : c);
        const bool better = (x > value_[l]) | ((x == value_[l]) & (at < index_[l]));  // for a NaN it is false
        value_[l] = better ? x : value_[l];
        index_[l] = better ? at : index_[l];
      }
  }
  int32_t index() const {
    Largest best;
    for (int l = 0; l < lanes; ++l) best.see(value_[l], index_[l]);
    return best.index;
  }

 private:
  float value_[lanes] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};  // nothing, below any |y|
  int32_t index_[lanes] = {};
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
void hash_buckets(Stream, BucketSize size, Heads<const T> q, const int32_t* lengths, const float* rotations,
                  int32_t* buckets) {
  constexpr int64_t width = Projections::width, rows_a_task = 128;
  const int64_t H = size.H, N = size.N, D = size.D, tiles = (size.columns + width - 1) / width;
  std::vector<Projections> project(size_t(size.rounds * tiles), Projections(D));  // a round's columns in tiles of 64
  for (int64_t i = 0; i < size.rounds * size.columns; ++i) {
    const int64_t round = i / size.columns, column = i % size.columns;
    project[size_t(round * tiles + column / width)].set(int(column % width), rotations + i * D);
  }

  const int64_t tasks = (N + rows_a_task - 1) / rows_a_task;
  parallel_tasks(size.B * H * size.rounds * tasks, [&](int64_t task) {
    const int64_t row = task / tasks, plane = row / size.rounds, round = row % size.rounds, b = plane / H;
    const int64_t n = lengths ? std::clamp<int64_t>(lengths[b], 0, N) : N;
    const int64_t columns = std::min(size.count(n) / 2, size.columns);
    const int64_t first = task % tasks * rows_a_task, end = std::min(N, first + rows_a_task);
    int32_t* bucket = buckets + row * N;
    LargestOfBoth best[rows_a_task];
    for (int64_t c0 = 0; c0 < columns; c0 += width)
      project[size_t(round * tiles + c0 / width)].each(
          first, std::min(n, end), [&](int64_t i) { return q.at(b, i, plane % H); },
          [&](int64_t i, const float* product) { best[i - first].see(product, int32_t(c0), int32_t(columns)); });
    for (int64_t i = first; i < end; ++i) bucket[i] = i < n ? best[i - first].index() : -1;
  });
}

#define INSTANTIATE(T) \
  template void hash_buckets(Stream, BucketSize, Heads<const T>, const int32_t*, const float*, int32_t*);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace cairn::cpu
