#pragma once
// Which of many projections of a row is the largest, from numbers rounded to 16 bits: a processor with AVX512-VNNI
// multiplies twice as many of them at once as of 32 bits. The error of such a product is bounded, so rows that this
// leaves open are known: of normal ones about 2 in 100.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>
#ifdef __AVX512VNNI__
#include <immintrin.h>
#endif

#include "core/cpu/vector.h"

namespace cairn::cpu {

class RoundedProjections {
 public:
  static constexpr int rows = 8;  // at a time
#ifdef __AVX512VNNI__
  static constexpr bool fast = true;
#else
  static constexpr bool fast = false;  // right, but slower than the products in full
#endif

  // Of vectors [columns, D].
  RoundedProjections(const float* vectors, int64_t columns, int64_t D)
      : D_(D), pairs_(size_t((columns + tile - 1) / tile * tile * pairs(D))) {
    const float most = largest_magnitude(vectors, columns * D), scale = limit(D) / most;
    largest_sum_ = in_range(most) ? 0 : INFINITY;
    std::vector<int16_t> vector(size_t(rounded_size(D)));
    for (int64_t j = 0; j < columns && in_range(most); ++j) {
      largest_sum_ = std::max(largest_sum_, round_all(vectors + j * D, D, scale, vector.data()));
      for (int64_t d = 0; d < pairs(D); ++d)
        std::memcpy(&pairs_[size_t((j / tile * pairs(D) + d) * tile + j % tile)], &vector[size_t(2 * d)], 4);
    }
  }

  // int16s of a rounded row of D elements.
  static int64_t rounded_size(int64_t D) { return 2 * pairs(D); }
  // Rounds a row; returns the sum of |s x|, s being its scale. Infinity: it cannot be rounded, being zero, not finite,
  // or of numbers whose products are not normal ones of float32.
  template <class T>
  static float round(const T* x, int64_t D, int16_t* rounded) {
    const float most = largest_magnitude(x, D);
    return in_range(most) ? round_all(x, D, limit(D) / most, rounded) : INFINITY;
  }

  // Of 8 rounded rows and their sums, with y the products of the first c vectors: j if y_j is the largest of
  // y_0 .. y_{c-1}, -y_0 .. -y_{c-1}, c + j if -y_j is, and -1 if errors may hide which it is.
  //
  // Let s x = a + e and t r = b + f, where a and b are whole, up to limit(D), and |e|, |f| <= 1/2. Then
  //   s t x.r = a.b + e.b + s x.f,  |s t x.r - a.b| <= (sum |b| + sum |s x|) / 2,  sum |b| <= sum |t r| + D / 2
  // and a chain of D products that sum up to less than 2^31 has roundings of at most 2^7 D. The margin is for the
  // sums'.
  std::array<int32_t, rows> largest(const int16_t* rounded, const float* sums, int64_t c) const {
    Best best[rows] = {};
    for (int64_t first = 0; first < c; first += tile) multiply(rounded, first, c, best);
    std::array<int32_t, rows> index;
    for (int r = 0; r < rows; ++r)
      index[size_t(r)] = best[r].index(0.51 * (double(largest_sum_) + double(sums[r])) + 256.0 * double(D_));
    return index;
  }

 private:
  static constexpr int64_t tile = 2 * lanes;
  using Numbers __attribute__((vector_size(4 * lanes))) = int32_t;
  static constexpr Numbers lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

  // Of each of 16 lanes the largest |a.b|, where it is, and the second largest.
  struct Best {
    Numbers most, second, where;

    void see(const Numbers& product, int64_t first, int64_t c) {
      const Numbers column = lane + int32_t(first);
      Numbers size = product < 0 ? -product : product;
      size = column < int32_t(c) ? size : 0;
      add({size, Numbers{}, product < 0 ? column + int32_t(c) : column});
    }
    void add(const Best& other) {
      const Numbers less = most < other.most ? most : other.most;
      second = second > other.second ? second : other.second;
      second = second > less ? second : less;
      where = other.most > most ? other.where : where;
      most = other.most > most ? other.most : most;
    }
    int32_t index(double error) {
      add_lanes<8>(), add_lanes<4>(), add_lanes<2>(), add_lanes<1>();
      return most[0] - second[0] > 2 * error ? where[0] : -1;
    }

   private:
    // Lane l meets lane l + distance.
    template <int distance>
    void add_lanes() {
      [this]<int... l>(std::integer_sequence<int, l...>) {
        add({__builtin_shufflevector(most, most, (l + distance) % lanes...),
             __builtin_shufflevector(second, second, (l + distance) % lanes...),
             __builtin_shufflevector(where, where, (l + distance) % lanes...)});
      }
      (std::make_integer_sequence<int, lanes>());
    }
  };

  static int64_t pairs(int64_t D) { return (D + 1) / 2; }
  // Of 16 bits, and D of its squares fit into 32.
  static float limit(int64_t D) { return float(std::floor(std::min(32767.0, std::sqrt(2147483647.0 / double(D))))); }
  static bool in_range(float x) { return x >= 1e-15f && x <= 1e15f; }

  // The largest |x|; NaN if there is one.
  template <class T>
  static float largest_magnitude(const T* x, int64_t n) {
    uint32_t most[lanes] = {};  // as bits, which are ordered like the numbers, and those of a NaN are the largest
    const auto see = [&](int l, int64_t i) {
      most[l] = std::max(most[l], std::bit_cast<uint32_t>(std::abs(float(x[i]))));
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int l = 0; l < lanes; ++l) see(l, i + l);
    for (; i < n; ++i) see(0, i);
    for (int width = lanes / 2; width; width /= 2)
      for (int l = 0; l < width; ++l) most[l] = std::max(most[l], most[l + width]);
    return std::bit_cast<float>(most[0]);
  }
  // Rounds scale x; returns the sum of |scale x|.
  template <class T>
  static float round_all(const T* x, int64_t D, float scale, int16_t* rounded) {
    constexpr float whole = 12582912;  // 1.5 * 2^23: what is added to it is rounded, and stands in the lowest bits
    for (int64_t d = 0; d < D; ++d) rounded[d] = int16_t(std::bit_cast<uint32_t>(std::fma(float(x[d]), scale, whole)));
    return scale * sum_of<float>(D, [=](int64_t d) { return std::abs(float(x[d])); });
  }

  // sum += x_0 columns_0 + x_1 columns_1, pairs of 16-bit numbers.
  static void add_products(Numbers& sum, int32_t x, const Numbers& columns) {
#ifdef __AVX512VNNI__
    sum = Numbers(_mm512_dpwssd_epi32(__m512i(sum), _mm512_set1_epi32(x), __m512i(columns)));
#else
    sum += (columns << 16 >> 16) * int32_t(int16_t(x)) + (columns >> 16) * (x >> 16);
#endif
  }
  [[gnu::noinline]] void multiply(const int16_t* rounded, int64_t first, int64_t c, Best (&best)[rows]) const {
    const int64_t pairs_a_row = pairs(D_);
    const int32_t* column = pairs_.data() + first * pairs_a_row;
    Numbers sum[rows][2] = {};
    for (int64_t d = 0; d < pairs_a_row; ++d, column += tile) {
      Numbers left, right;
      std::memcpy(&left, column, sizeof left), std::memcpy(&right, column + lanes, sizeof right);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        int32_t x;
        std::memcpy(&x, rounded + 2 * (r * pairs_a_row + d), sizeof x);
        add_products(sum[r][0], x, left);
        add_products(sum[r][1], x, right);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
      for (int half = 0; half < 2; ++half) best[r].see(sum[r][half], first + half * lanes, c);
  }

  int64_t D_;
  std::vector<int32_t> pairs_;  // [tiles, pairs(D), 32], two rounded numbers each; zeros beyond the last vector
  float largest_sum_ = 0;       // over the vectors, of |t r|; infinity: they cannot be rounded
};

}  // namespace cairn::cpu
