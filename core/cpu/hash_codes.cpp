#include "core/kernels/hash_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// 64 vectors, stored as the columns of [D, 64]: a step of all 64 chains then reads consecutive memory. Vectors that are
// not set are zeros.
class Projections {
 public:
  static constexpr int width = 64;

  explicit Projections(int64_t D) : D_(D), columns_(size_t(std::max<int64_t>(1, D) * width)) {}
  // Vector j, of D elements.
  void set(int j, const float* vector) {
    for (int64_t d = 0; d < D_; ++d) columns_[size_t(d * width + j)] = vector[d];
  }
  // Calls f(row, products [width]) for rows [begin, end), with the products of the first `vectors` vectors; at(row)
  // points to a row's elements. Products are computed in tiles of 8 rows by 16 vectors: that many chains keep the
  // processor's multiply-adds busy.
  template <class At, class F>
  void each(int64_t begin, int64_t end, int64_t vectors, At&& at, F&& f) const {
    float product[rows][width] = {};
    for (int64_t first = begin; first < end; first += rows) {
      decltype(at(begin)) x[rows];
      for (int r = 0; r < rows; ++r) x[r] = at(std::min(first + r, end - 1));
      for (int r = 0; r < rows; ++r) fetch_row(at(std::min(first + rows + r, end - 1)), D_);
      for (int64_t column = 0; column < vectors; column += tile_columns)
        multiply_tile(x, columns_.data() + column, D_, product[0] + column);
      for (int r = 0; r < rows && first + r < end; ++r) f(first + r, product[r]);
    }
  }

 private:
  static constexpr int rows = 8, tile_columns = 16;

  // The products of one tile; their rows are `width` apart. Not inlined: alone in a function, all pointers stay in
  // registers.
  template <class X>
  [[gnu::noinline]] static void multiply_tile(const X* const (&x)[rows], const float* columns, int64_t D,
                                              float* products) {
    float sum[rows][tile_columns] = {};
    for (int64_t d = 0; d < D; ++d, columns += width) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const auto value = float(x[r][d]);
        for (int j = 0; j < tile_columns; ++j) sum[r][j] = std::fma(value, columns[j], sum[r][j]);
      }
    }
    for (int r = 0; r < rows; ++r) std::copy_n(sum[r], tile_columns, products + r * width);
  }

  int64_t D_;
  std::vector<float> columns_;
};

// The index of the largest of y_0 .. y_{c-1}, -y_0 .. -y_{c-1}, as LargestProjection finds it. It is the largest |y|,
// of 16 partial maxima, so that a step is a few vector operations. Comparisons use one integer: twice the bits
// of |y|, plus 2 if y >= 0, else plus 1, because of equal |y| the positive one has the lower index. A NaN is 0.
class LargestOfBothSigns {
 public:
  // Adds y_first .. y_{first + 63}, without those from y_c on.
  void see(const float* y, int32_t first, int32_t c) {
    uint32_t order[partials];
    int32_t column[partials];  // copies, because y might be these members
    std::copy_n(order_, partials, order), std::copy_n(column_, partials, column);
    for (int32_t j = 0; j < std::min<int32_t>(Projections::width, c - first); j += partials)
      for (int32_t l = 0; l < partials; ++l) {
        const float x = y[j + l];
        const uint32_t twice = std::bit_cast<uint32_t>(x) << 1, both = x >= 0 ? twice + 2 : x < 0 ? twice + 1 : 0;
        const uint32_t here = first + j + l < c ? both : 0;
        column[l] = here > order[l] ? first + j + l : column[l];
        order[l] = here > order[l] ? here : order[l];
      }
    std::copy_n(order, partials, order_), std::copy_n(column, partials, column_);
  }
  int32_t index(int32_t c) const {
    uint32_t maximum = 0;
    int32_t best = 0;
    for (int l = 0; l < partials; ++l) {
      if (order_[l] < maximum || (order_[l] == maximum && column_[l] >= best)) continue;
      maximum = order_[l], best = column_[l];
    }
    return maximum % 2 == 1 ? best + c : best;
  }

 private:
  uint32_t order_[partials] = {};
  int32_t column_[partials] = {};
};

}  // namespace

void random_rotations(Stream, int64_t rounds, int64_t columns, int64_t D, int64_t random, Draw draw, float* rotations) {
  const PhiloxKey key = draw.key();
  parallel_for(rounds * columns, 64, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t d = 0; d < D; ++d)
        rotations[i * D + d] =
            d < random ? normal(key, uint32_t(i % columns), uint32_t(d), uint32_t(i / columns)) : 0.0f;
  });
}

template <class T>
void hash_codes(Stream, HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  const int64_t D = size.D;
  Projections project(D);
  float threshold[Projections::width] = {};
  for (int j = 0; j < size.bits; ++j) {
    project.set(j, planes + j * (D + 1));
    threshold[j] = planes[j * (D + 1) + D];
  }
  const uint64_t used = size.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << size.bits) - 1;

  parallel_for(size.B * size.H * size.N, 128, [&](int64_t begin, int64_t end) {
    const auto query = [&](int64_t row) {
      const int64_t batch_head = row / size.N;
      return q.at(batch_head / size.H, row % size.N, batch_head % size.H);
    };
    project.each(begin, end, size.bits, query, [&](int64_t row, const float* product) {
      // In halves, because vectors shift 32-bit elements faster than 64-bit ones.
      uint32_t low = 0, high = 0;
      for (uint32_t j = 0; j < 32; ++j) low |= uint32_t(product[j] > threshold[j]) << j;
      for (uint32_t j = 0; j < 32; ++j) high |= uint32_t(product[32 + j] > threshold[32 + j]) << j;
      codes[row] = (uint64_t(high) << 32 | low) & used;
    });
  });
}

template <class T>
void hash_buckets(Stream, BucketSize size, HeadView<const T> q, const int32_t* lengths, const float* rotations,
                  int32_t* buckets) {
  constexpr int64_t width = Projections::width, rows_a_task = 128;
  const int64_t H = size.H, N = size.N, D = size.D;
  const int64_t tiles =
      D > 0 ? (size.columns + width - 1) / width : 0;  // of columns; none if D = 0, when all products are 0
  const int64_t tasks = (N + rows_a_task - 1) / rows_a_task;
  if (size.B * H * N == 0) return;
  std::vector<Projections> project(static_cast<size_t>(size.rounds * 2 * tiles), Projections(D));
  for (int64_t hash = 0; hash < size.rounds * 2; ++hash)
    for (int64_t j = 0; j < std::min(size.columns, tiles * width); ++j)
      project[size_t(hash * tiles + j / width)].set(int(j % width), rotations + (hash * size.columns + j) * D);

  // The heads of the same positions follow each other, because they share cache lines.
  parallel_tasks(size.B * tasks * H, [&](int64_t task) {
    const int64_t h = task % H, b = task / H / tasks, first = task / H % tasks * rows_a_task;
    const int64_t n = lengths ? std::clamp<int64_t>(lengths[b], 0, N) : N;
    const int64_t rows = std::min(rows_a_task, N - first), queries = std::clamp<int64_t>(n - first, 0, rows);
    const int64_t values[] = {size.count.b(size.counted(b)), size.count.a(size.counted(b))};
    for (int64_t round = 0; round < size.rounds; ++round) {
      int32_t* const bucket = buckets + ((b * H + h) * size.rounds + round) * N + first;
      std::fill_n(bucket, queries, 0);
      std::fill_n(bucket + queries, rows - queries, -1);
      for (int64_t hash = 0; hash < 2 && values[hash] > 1; ++hash) {
        const int64_t columns = std::min(values[hash] / 2, size.columns);
        LargestOfBothSigns best[rows_a_task];
        for (int64_t c0 = 0; c0 < std::min(columns, tiles * width); c0 += width)
          project[size_t((2 * round + hash) * tiles + c0 / width)].each(
              0, queries, std::min(width, columns - c0), [&](int64_t i) { return q.at(b, first + i, h); },
              [&](int64_t i, const float* product) { best[i].see(product, int32_t(c0), int32_t(columns)); });
        for (int64_t i = 0; i < queries; ++i)
          bucket[i] += int32_t(hash == 0 ? 1 : values[0]) * best[i].index(int32_t(columns));
      }
    }
  });
}

CAIRN_CPU_TYPES(hash_codes)
CAIRN_CPU_TYPES(hash_buckets)

}  // namespace cairn::cpu
