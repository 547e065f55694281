// Lesson 5: a product that is fast (apps/lessons/05_product.md). Each function computes C = A B for rows of A [m, k],
// B [k, n] and C [m, n], one behind the other. The check is at the end of this file.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/cpu/gemm.h"
#include "core/error.h"

#if defined(__AVX512F__)
constexpr int64_t width = 16, rows = 12;  // numbers in a vector register; rows of a block
#else
constexpr int64_t width = 8, rows = 5;
#endif
constexpr int64_t columns = 2 * width;                                     // of a block
using Vector __attribute__((vector_size(width * sizeof(float)))) = float;  // + and * work on all its numbers at once

inline Vector load(const float* from) {
  Vector result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
inline void store(const Vector& from, float* to) { std::memcpy(to, &from, sizeof from); }

// 1. Three loops. Which of them is the innermost?
void loops(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  // [lesson 5
  std::fill_n(c, m * n, 0.0f);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + l] * b[l * n + j];
  // lesson 5]
}

// 2. A block of `rows` by `columns` of C, which stays in registers over all k steps. The distances from a row to the
// next are lda, ldb and ldc.
void block(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc) {
  // [lesson 5
  Vector sum[rows][2] = {};
  for (int64_t l = 0; l < k; ++l) {
    const Vector left = load(b + l * ldb), right = load(b + l * ldb + width);
#pragma GCC unroll 16
    for (int64_t i = 0; i < rows; ++i) {
      sum[i][0] += a[i * lda + l] * left;
      sum[i][1] += a[i * lda + l] * right;
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    store(sum[i][0], c + i * ldc);
    store(sum[i][1], c + i * ldc + width);
  }
  // lesson 5]
}

// C in blocks. The last blocks overlap those before them, so that all are whole: m >= rows, n >= columns.
void blocks(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  // [lesson 5
  for (int64_t i = 0; i < m; i += rows)
    for (int64_t j = 0; j < n; j += columns) {
      const int64_t row = std::min(i, m - rows), column = std::min(j, n - columns);
      block(k, a + row * k, k, b + column, n, c + row * n + column, n);
    }
  // lesson 5]
}

// 3. The same, but each `columns` columns of B are first copied to a panel, in the order in which the block reads them.
void packed(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  // [lesson 5
  std::vector<float> panel(size_t(k * columns));
  for (int64_t j = 0; j < n; j += columns) {
    const int64_t column = std::min(j, n - columns);
    for (int64_t l = 0; l < k; ++l) std::copy_n(b + l * n + column, columns, panel.data() + l * columns);
    for (int64_t i = 0; i < m; i += rows) {
      const int64_t row = std::min(i, m - rows);
      block(k, a + row * k, k, panel.data(), columns, c + row * n + column, n);
    }
  }
  // lesson 5]
}

// ---- the check

void library(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  cairn::cpu::gemm_tile(false, false, m, n, k, 1.0, a, k, b, n, 0.0, c, n);
}

struct Product {
  const char* name;
  void (*compute)(int64_t, int64_t, int64_t, const float*, const float*, float*);
  int64_t m, n;  // the smallest it takes
};
constexpr Product products[] = {{"loops", loops, 1, 1},
                                {"blocks", blocks, rows, columns},
                                {"packed", packed, rows, columns},
                                {"the library, one thread", library, 1, 1}};

std::vector<float> numbers(int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) x[i] = float((i * i + 7 * i) % 19) / 8 - 1;
  return x;
}

void check(const Product& p, int64_t m, int64_t n, int64_t k) {
  // What lies beyond the matrices shows in the result if it is used, and is NaN if nothing is written there.
  const int64_t beyond = rows * std::max(n, k) + columns;
  std::vector<float> a = numbers(m * k), b = numbers(k * n), c(size_t(m * n + beyond), NAN), expected = c;
  for (auto* matrix : {&a, &b}) matrix->resize(matrix->size() + size_t(beyond), 1e6f);
  p.compute(m, n, k, a.data(), b.data(), c.data());
  library(m, n, k, a.data(), b.data(), expected.data());
  for (size_t i = 0; i < c.size(); ++i)
    if (const bool in_c = i < size_t(m * n); in_c ? !(std::abs(c[i] - expected[i]) < 1e-4f) : c[i] == c[i]) {
      throw cairn::Error(cairn::concat(p.name, ", m = ", m, ", n = ", n, ", k = ", k, ": c[", int64_t(i) / n, "][",
                                       int64_t(i) % n, "] is ", c[i], ", expected ", expected[i],
                                       in_c ? "" : " (beyond C)"));
    }
}

int main() try {
  for (const Product& p : products)
    for (const int64_t m : {p.m, p.m + 1, 2 * p.m, 2 * rows + 3})
      for (const int64_t n : {p.n, p.n + 1, 2 * p.n, 2 * columns + 7})
        for (const int64_t k : {1, 2, 7, 64}) check(p, m, n, k);
  for (const int64_t size : {256, 1024})
    for (const Product& p : products) {
      const std::vector<float> a = numbers(size * size), b = numbers(size * size);
      std::vector<float> c(a.size());
      double best = 1e9;
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto begin = std::chrono::steady_clock::now();
        p.compute(size, size, size, a.data(), b.data(), c.data());
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      }
      const double flops = 2 * double(size * size * size);
      std::printf("%4d x %d: %6.1f GFLOP/s  %s\n", int(size), int(size), 1e-9 * flops / best, p.name);
    }
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
