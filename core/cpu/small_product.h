#pragma once
// Products of small matrices, whose right operand needs no packing: a few queries against the top keys of their cluster.
#include <cstdint>
#include <cstring>

namespace cairn::cpu {

// Sixteen numbers that the compiler keeps in vector registers.
template <class T>
struct Lanes {
  static constexpr int64_t count = 16;
  using Vector __attribute__((vector_size(16 * sizeof(T)))) = T;

  // By reference: how a vector is passed by value depends on what the processor has.
  static void load(Vector& v, const T* from) { std::memcpy(&v, from, sizeof v); }
  static void store(T* to, const Vector& v) { std::memcpy(to, &v, sizeof v); }
};

// A matrix of which element (i, j) is data[i * row + j * col].
template <class T>
struct Strided {
  const T* data;
  int64_t row, col;
  T operator()(int64_t i, int64_t j) const { return data[i * row + j * col]; }
};

namespace detail {

// `rows` rows and sixteen columns of C, kept in registers over the whole sum.
template <int rows, class T>
inline void product_block(int64_t k, Strided<T> a, const T* b, int64_t ldb, bool add, T* c, int64_t ldc) {
  typename Lanes<T>::Vector sum[rows] = {}, line;
  for (int i = 0; add && i < rows; ++i) Lanes<T>::load(sum[i], c + i * ldc);
  for (int64_t l = 0; l < k; ++l) {
    Lanes<T>::load(line, b + l * ldb);
    for (int i = 0; i < rows; ++i) sum[i] += a(i, l) * line;
  }
  for (int i = 0; i < rows; ++i) Lanes<T>::store(c + i * ldc, sum[i]);
}

}  // namespace detail

// C [m, n] = A [m, k] B [k, n], or += with `add`. B and C are row-major with rows ldb and ldc apart.
template <class T>
void small_product(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, int64_t ldb, bool add, T* c,
                   int64_t ldc) {
  constexpr int64_t width = Lanes<T>::count;
  int64_t j = 0;
  for (; j + width <= n; j += width) {
    int64_t i = 0;
    const auto rows_from = [&](int64_t row) { return Strided<T>{a.data + row * a.row, a.row, a.col}; };
    for (; i + 4 <= m; i += 4) detail::product_block<4>(k, rows_from(i), b + j, ldb, add, c + i * ldc + j, ldc);
    for (; i < m; ++i) detail::product_block<1>(k, rows_from(i), b + j, ldb, add, c + i * ldc + j, ldc);
  }
  for (int64_t i = 0; i < m && j < n; ++i)
    for (int64_t column = j; column < n; ++column) {
      T sum = add ? c[i * ldc + column] : T(0);
      for (int64_t l = 0; l < k; ++l) sum += a(i, l) * b[l * ldb + column];
      c[i * ldc + column] = sum;
    }
}

}  // namespace cairn::cpu
