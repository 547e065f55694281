#include "core/kernels/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "core/cpu/strides.h"
#include "core/functors.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void unary(Stream, Unary op, int64_t n, const T* x, T* y) {
  choose(op, [&]<Unary f>() {
    parallel_for(n, elements_a_task, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = apply<f>(x[i]);
    });
  });
}

template <class T>
void unary_backward(Stream, Unary op, int64_t n, const T* x, const T* dy, T* dx) {
  choose(op, [&]<Unary f>() {
    parallel_for(n, elements_a_task, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx[i] = derivative<f>(x[i]) * dy[i];
    });
  });
}

// Elements of a tensor that are `step` apart; step 0 repeats one element.
template <class T>
struct Strided {
  const T* x;
  int64_t step;
};

// y_i = f(a_i, more_i...). y may be an operand, but no element depends on an earlier one.
template <class F, class Y, class A, class... More>
static void map_inner_loop(F f, int64_t n, Y* y, Strided<A> a, Strided<More>... more) {
  if (a.step == 1 && ((more.step == 1) && ...))
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = f(a.x[i], more.x[i]...);
  else if (a.step == 1 && ((more.step == 0) && ...))
    for (int64_t i = 0; i < n; ++i) y[i] = f(a.x[i], *more.x...);
  else
    for (int64_t i = 0; i < n; ++i) y[i] = f(a.x[i * a.step], more.x[i * more.step]...);
}

// y = f(x...). Each x has its strides; y is contiguous.
template <class F, class Y, class... X>
static void map(const Strides& strides, F f, Y* y, const X*... x) {
  each_inner_loop(strides, [&](int64_t first, const Strides::Steps& at, int64_t n) {
    [&]<size_t... t>(std::index_sequence<t...>) {
      map_inner_loop(f, n, y + first, Strided<X>{x + at[t], inner_step(strides, int(t))}...);
    }
    (std::index_sequence_for<X...>{});
  });
}

template <class T>
void binary(Stream, Binary op, const Strides& strides, const T* a, const T* b, T* y) {
  choose(op, [&]<Binary f>() {
    map(
        strides, [](T u, T v) { return apply<f>(u, v); }, y, a, b);
  });
}

template <class T>
void binary_backward(Stream, Binary op, int operand, const Strides& strides, const T* dy, const T* a, const T* b,
                     T* dx) {
  choose(op, [&]<Binary f>() {
    if (operand == 0)
      map(
          strides, [](T g, T u, T v) { return derivative<f, 0>(u, v) * g; }, dx, dy, a, b);
    else
      map(
          strides, [](T g, T u, T v) { return derivative<f, 1>(u, v) * g; }, dx, dy, a, b);
  });
}

template <class T>
void compare(Stream, Compare op, const Strides& strides, const T* a, const T* b, bool* y) {
  choose(op, [&]<Compare f>() {
    map(
        strides, [](T u, T v) { return apply<f>(u, v); }, y, a, b);
  });
}

template <class T>
void where(Stream, const Strides& strides, const bool* condition, const T* a, const T* b, T* y) {
  map(
      strides, [](bool chosen, T u, T v) { return chosen ? u : v; }, y, condition, a, b);
}

template <class T>
void affine(Stream, int64_t n, double alpha, double beta, const T* x, T* y) {
  parallel_for(n, elements_a_task, [=, factor = T(alpha), offset = T(beta)](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = factor * x[i] + offset;
  });
}

void arange(Stream, int64_t n, int32_t* y) { std::iota(y, y + n, 0); }

void fill(Stream, int64_t n, double value, DType dtype, void* y) {
  visit(dtype, [&]<class T>(T) {
    parallel_for(n, elements_a_task, [y = static_cast<T*>(y), element = convert<T>(value)](int64_t begin, int64_t end) {
      std::fill(y + begin, y + end, element);
    });
  });
}

void cast(Stream, int64_t n, DType from, const void* x, DType to, void* y) {
  visit(from, [&]<class From>(From) {
    visit(to, [&]<class To>(To) {
      parallel_for(n, elements_a_task,
                   [x = static_cast<const From*>(x), y = static_cast<To*>(y)](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) y[i] = convert<To>(x[i]);
                   });
    });
  });
}

CAIRN_CPU_TYPES(unary)
CAIRN_CPU_TYPES(unary_backward)
CAIRN_CPU_NUMBERS(binary)
CAIRN_CPU_TYPES(binary_backward)
CAIRN_CPU_NUMBERS(compare)
CAIRN_CPU_NUMBERS(where)
CAIRN_CPU_NUMBERS(affine)

}  // namespace cairn::cpu
