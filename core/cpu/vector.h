#pragma once
// Loops over one row of numbers that several kernels share. Sums have 16 partial sums in a fixed order, so that the
// compiler can use vectors although it must not reorder sums. Their last steps are unrolled, to stay in registers.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/functors.h"

namespace cairn::cpu {

// Rows of a task: enough work for a thread.
inline int64_t rows_a_task(int64_t cols) { return std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(1, cols)); }

inline constexpr int partials = 16;  // of a sum, or a maximum

// The sum of partial sums, in a fixed order.
template <class T>
inline T sum_of_partials(T (&partial)[partials]) {
#pragma GCC unroll 4
  for (int width = partials / 2; width; width /= 2)
    for (int l = 0; l < width; ++l) partial[l] += partial[l + width];
  return partial[0];
}

// sum over i of f(i), i in [0, n).
template <class T, class F>
inline T sum_of(int64_t n, F&& f) {
  T partial[partials] = {};
  int64_t i = 0;
  for (; i + partials <= n; i += partials)
    for (int l = 0; l < partials; ++l) partial[l] += f(i + l);
  for (int l = 0; i + l < n; ++l) partial[l] += f(i + l);
  return sum_of_partials(partial);
}

template <class T>
inline T dot(const T* a, const T* b, int64_t n) {
  return sum_of<T>(n, [=](int64_t i) { return a[i] * b[i]; });
}

// The largest of n numbers; minus infinity for none. NaNs are skipped. GCC would not use vectors by itself.
template <class T>
inline T maximum(const T* x, int64_t n) {
  using Vector __attribute__((vector_size(partials * sizeof(T)))) = T;
  Vector partial = Vector{} - std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (Vector next; i + partials <= n; i += partials) {
    std::memcpy(&next, x + i, sizeof next);
    partial = next > partial ? next : partial;
  }
  for (int l = 0; i + l < n; ++l) partial[l] = x[i + l] > partial[l] ? x[i + l] : partial[l];
#pragma GCC unroll 4
  for (int width = partials / 2; width; width /= 2)
    for (int l = 0; l < width; ++l) partial[l] = partial[l + width] > partial[l] ? partial[l + width] : partial[l];
  return partial[0];
}

// The number that is subtracted from scores before their exponentials: their maximum, or 0 where all are masked (minus
// infinity). So masked scores give 0, never NaN.
template <class T>
inline T finite_shift(T maximum) {
  return maximum == -std::numeric_limits<T>::infinity() ? T(0) : maximum;
}

// y = e^(x - shift); returns the sum. No x is above shift + 88. x may be y. Long rows take four vectors at a time,
// because each step of an exponential waits for the one before.
template <class T>
inline T exponentials(const T* x, int64_t n, T shift, T* y) {
  constexpr int group = 4 * partials;
  T partial[partials] = {}, value[group];
  int64_t i = 0;
  for (; i + group <= n; i += group) {
    for (int l = 0; l < group; ++l) value[l] = exponential_of_score(x[i + l] - shift);
    for (int l = 0; l < group; ++l) y[i + l] = value[l];
    for (int first = 0; first < group; first += partials)
      for (int l = 0; l < partials; ++l) partial[l] += value[first + l];
  }
  for (; i + partials <= n; i += partials)
    for (int l = 0; l < partials; ++l) partial[l] += y[i + l] = exponential_of_score(x[i + l] - shift);
  for (int l = 0; i + l < n; ++l) partial[l] += y[i + l] = exponential_of_score(x[i + l] - shift);
  return sum_of_partials(partial);
}

// log of the sum of e^x. All minus infinity, or none, gives minus infinity.
template <class T>
inline T log_sum_exp(const T* x, int64_t n) {
  const T shift = finite_shift(maximum(x, n));
  return shift + std::log(sum_of<T>(n, [=](int64_t i) { return exponential(x[i] - shift); }));
}

template <class T>
inline void scale(T* x, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// y += alpha x.
template <class T>
inline void add_scaled(T* y, int64_t n, T alpha, const T* x) {
  for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}

// Prefetches a row of n elements, for writing unless it is const: if rows are far apart or in no order, the processor
// cannot foresee the next one.
template <class T>
inline void fetch_row(T* row, int64_t n) {
  for (int64_t j = 0; j < n; j += 64 / int64_t(sizeof(T))) __builtin_prefetch(row + j, std::is_const_v<T> ? 0 : 1);
}

// Calls f(i, at(i)) for i = 0 .. count-1, where at(i) points to n elements. Prefetches the rows ahead.
template <class At, class F>
inline void each_fetched_row(int64_t count, int64_t n, At&& at, F&& f) {
  constexpr int64_t ahead = 8;
  const auto fetch = [&](int64_t i) { fetch_row(at(i), n); };
  for (int64_t i = 0; i < std::min(ahead, count); ++i) fetch(i);
  for (int64_t i = 0; i < count; ++i) {
    if (i + ahead < count) fetch(i + ahead);
    f(i, at(i));
  }
}

}  // namespace cairn::cpu
