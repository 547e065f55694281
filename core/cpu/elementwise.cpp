#include "core/kernels/elementwise.h"

#include <algorithm>

#include "core/functors.h"
#include "core/parallel.h"

namespace cairn::cpu {

static constexpr int64_t grain = 1 << 14;

template <class T>
void unary(Stream, Unary op, int64_t n, const T* x, T* y) {
  choose(op, [&]<Unary f>() {
    parallel_for(n, grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) y[i] = apply<f>(x[i]);
    });
  });
}

template <class T>
void unary_backward(Stream, Unary op, int64_t n, const T* x, const T* dy, T* dx) {
  choose(op, [&]<Unary f>() {
    parallel_for(n, grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx[i] = derivative<f>(x[i]) * dy[i];
    });
  });
}

// Calls f(y, a, b, n) for runs of n elements of the result along its innermost axis, shared between threads.
template <class F>
static void each_run(const Broadcast& shape, F&& f) {
  const int inner_axis = shape.rank - 1;
  const int64_t inner = shape.rank ? shape.sizes[inner_axis] : 1;
  int64_t outer = 1;
  for (int axis = 0; axis < inner_axis; ++axis) outer *= shape.sizes[axis];
  if (inner == 0 || outer == 0) return;
  if (outer == 1) {
    const int64_t step_a = shape.rank ? shape.stride_a[inner_axis] : 0;
    const int64_t step_b = shape.rank ? shape.stride_b[inner_axis] : 0;
    parallel_for(inner, grain,
                 [&](int64_t begin, int64_t end) { f(begin, begin * step_a, begin * step_b, end - begin); });
    return;
  }
  parallel_for(outer, std::max<int64_t>(1, grain / inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, from_a = 0, from_b = 0;
      for (int axis = inner_axis; axis-- > 0; rest /= shape.sizes[axis]) {
        from_a += rest % shape.sizes[axis] * shape.stride_a[axis];
        from_b += rest % shape.sizes[axis] * shape.stride_b[axis];
      }
      f(row * inner, from_a, from_b, inner);
    }
  });
}

// How far an operand moves along the innermost axis.
static int64_t inner_step(const Broadcast& shape, const int64_t* strides) {
  return shape.rank ? strides[shape.rank - 1] : 0;
}

template <class T>
void binary(Stream, Binary op, const Broadcast& shape, const T* a, const T* b, T* y) {
  const int64_t step_a = inner_step(shape, shape.stride_a), step_b = inner_step(shape, shape.stride_b);
  choose(op, [&]<Binary f>() {
    each_run(shape, [=](int64_t to, int64_t from_a, int64_t from_b, int64_t n) {
      const T *u = a + from_a, *v = b + from_b;
      T* out = y + to;
      if (step_a == 1 && step_b == 1)
        for (int64_t i = 0; i < n; ++i) out[i] = apply<f>(u[i], v[i]);
      else if (step_a == 1 && step_b == 0)
        for (int64_t i = 0; i < n; ++i) out[i] = apply<f>(u[i], *v);
      else
        for (int64_t i = 0; i < n; ++i) out[i] = apply<f>(u[i * step_a], v[i * step_b]);
    });
  });
}

template <class T>
void expand(Stream, const Broadcast& shape, const T* x, T* y) {
  const int64_t step = inner_step(shape, shape.stride_a);
  each_run(shape, [=](int64_t to, int64_t from, int64_t, int64_t n) {
    if (step == 1)
      std::copy_n(x + from, n, y + to);
    else
      std::fill_n(y + to, n, x[from]);
  });
}

template <class T>
void affine(Stream, int64_t n, double alpha, double beta, const T* x, T* y) {
  parallel_for(n, grain, [=, factor = T(alpha), offset = T(beta)](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = factor * x[i] + offset;
  });
}

template <class T>
void accumulate(Stream, int64_t n, double alpha, const T* x, T* y) {
  parallel_for(n, grain, [=, factor = T(alpha)](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] += factor * x[i];
  });
}

template <class T>
void fill(Stream, int64_t n, T value, T* y) {
  parallel_for(n, grain, [=](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
}

template <class From, class To>
void cast(Stream, int64_t n, const From* x, To* y) {
  parallel_for(n, grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = convert<To>(x[i]);
  });
}

CAIRN_CPU_TYPES(unary)
CAIRN_CPU_TYPES(unary_backward)
CAIRN_CPU_TYPES(binary)
CAIRN_CPU_TYPES(expand)
CAIRN_CPU_TYPES(affine)
CAIRN_CPU_TYPES(accumulate)

#define INSTANTIATE_CAST(From)                                 \
  template void fill(Stream, int64_t, From, From*);            \
  template void cast(Stream, int64_t, const From*, float*);    \
  template void cast(Stream, int64_t, const From*, double*);   \
  template void cast(Stream, int64_t, const From*, bfloat16*); \
  template void cast(Stream, int64_t, const From*, int32_t*);  \
  template void cast(Stream, int64_t, const From*, int64_t*);  \
  template void cast(Stream, int64_t, const From*, uint64_t*); \
  template void cast(Stream, int64_t, const From*, uint8_t*);  \
  template void cast(Stream, int64_t, const From*, bool*);
INSTANTIATE_CAST(float)
INSTANTIATE_CAST(double)
INSTANTIATE_CAST(bfloat16)
INSTANTIATE_CAST(int32_t)
INSTANTIATE_CAST(int64_t)
INSTANTIATE_CAST(uint64_t)
INSTANTIATE_CAST(uint8_t)
INSTANTIATE_CAST(bool)

}  // namespace cairn::cpu
