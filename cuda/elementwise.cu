// Functions of single elements, with broadcasting, and conversions between element types.
//
// Arithmetic is that of core/functors.h, in float32 for float32 and bfloat16, else in int32. Conversions go between all
// types.
//
// Launch.
//   map            a thread takes packs of elements, at most 16 bytes of each operand, a grid's stride apart. The grid
//                  has at most 4096 blocks of 256 threads. The remaining elements, or all elements where an address is
//                  not aligned, move one at a time.
//   map_strided    a thread takes single elements of the result, and finds those of the operands from its coordinates
//                  (strides.cuh).
//   count_up       a thread takes an element.
// Traffic of n results of e bytes: e n written and e n read for each operand, the floor. A broadcast operand comes from
// the cache. Bound by memory.
#include "core/kernels/elementwise.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/functors.h"
#include "cuda/common.cuh"
#include "cuda/strides.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int64_t max_blocks = 4096;

template <class... T>
constexpr int elements_a_pack = int(16 / std::max({sizeof(T)...}));

// y_i = f(x_i...). The first `packs` packs of y move as packs.
template <class F, class Y, class... X>
__global__ void __launch_bounds__(threads) map(F f, int64_t n, int64_t packs, Y* y, const X*... x) {
  constexpr int width = elements_a_pack<Y, X...>;
  const int64_t first = int64_t(blockIdx.x) * threads + threadIdx.x, step = int64_t(gridDim.x) * threads;
  for (int64_t i = first; i < packs; i += step) {
    const auto compute = [&](const Pack<X, width>... in) {
      Pack<Y, width> out;
#pragma unroll
      for (int k = 0; k < width; ++k) out.element[k] = f(in.element[k]...);
      return out;
    };
    pack<width>(y, i) = compute(pack<width>(x, i)...);
  }
  for (int64_t i = packs * width + first; i < n; i += step) y[i] = f(x[i]...);
}

template <class F, class Y, class... X>
void run_map(Stream stream, F f, int64_t n, Y* y, const X*... x) {
  if (n == 0) return;
  constexpr int width = elements_a_pack<Y, X...>;
  const int64_t packs = holds_packs<width>(y, x...) ? n / width : 0;
  const int64_t work = std::max(packs, n - packs * width);
  launch(map<F, Y, X...>, {std::min(max_blocks, ceil_div(work, threads)), threads, 0, stream}, f, n, packs, y, x...);
}

// y = f(x...) for operands with strides of their own.
template <class F, class Y, class... X>
__global__ void __launch_bounds__(threads) map_strided(F f, StridedLoop loop, Y* y, const X*... x) {
  const int64_t step = int64_t(gridDim.x) * threads;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < loop.n; i += step) {
    int64_t at[sizeof...(X)];
    loop.find(i, at);
    [&]<size_t... t>(std::index_sequence<t...>) { y[i] = f(x[at[t]]...); }
    (std::index_sequence_for<X...>{});
  }
}

template <class F, class Y, class... X>
void run_strided(Stream stream, F f, const Strides& strides, Y* y, const X*... x) {
  const int64_t n = elements(strides);
  if (n == 0) return;
  bool all_contiguous = strides.rank <= 1;
  for (size_t t = 0; t < sizeof...(X) && strides.rank == 1; ++t) all_contiguous &= strides.steps[t][0] == 1;
  if (all_contiguous) return run_map(stream, f, n, y, x...);
  launch(map_strided<F, Y, X...>, {std::min(4 * max_blocks, ceil_div(n, threads)), threads, 0, stream}, f,
         StridedLoop{strides}, y, x...);
}

__global__ void __launch_bounds__(threads) count_up(int64_t n, int32_t* y) {
  const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (i < n) y[i] = int32_t(i);
}

// ---- the functions of elements
template <Unary op>
struct Function {
  template <class T>
  __device__ T operator()(T x) const {
    return T(apply<op>(float(x)));
  }
};
template <Unary op>
struct Derivative {
  template <class T>
  __device__ T operator()(T x, T dy) const {
    return T(derivative<op>(float(x)) * float(dy));
  }
};
template <Binary op>
struct Operator {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return T(apply<op>(Accum<T>(a), Accum<T>(b)));
  }
};
template <Binary op, int operand>
struct PartialDerivative {
  template <class T>
  __device__ T operator()(T dy, T a, T b) const {
    return T(derivative<op, operand>(float(a), float(b)) * float(dy));
  }
};
template <Compare op>
struct Comparator {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return apply<op>(Accum<T>(a), Accum<T>(b));
  }
};
struct Choose {
  template <class T>
  __device__ T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};
template <class T>
struct Affine {
  Accum<T> factor, offset;
  __device__ T operator()(T x) const { return T(factor * Accum<T>(x) + offset); }
};
template <class T>
struct Same {
  T value;
  __device__ T operator()() const { return value; }
};
template <class To>
struct Convert {
  template <class From>
  __device__ To operator()(From x) const {
    return convert<To>(x);
  }
};

}  // namespace

template <class T>
void unary(Stream stream, Unary op, int64_t n, const T* x, T* y) {
  choose(op, [&]<Unary f>() { run_map(stream, Function<f>{}, n, y, x); });
}

template <class T>
void unary_backward(Stream stream, Unary op, int64_t n, const T* x, const T* dy, T* dx) {
  choose(op, [&]<Unary f>() { run_map(stream, Derivative<f>{}, n, dx, x, dy); });
}

template <class T>
void binary(Stream stream, Binary op, const Strides& strides, const T* a, const T* b, T* y) {
  choose(op, [&]<Binary f>() { run_strided(stream, Operator<f>{}, strides, y, a, b); });
}

template <class T>
void binary_backward(Stream stream, Binary op, int operand, const Strides& strides, const T* dy, const T* a, const T* b,
                     T* dx) {
  choose(op, [&]<Binary f>() {
    if (operand == 0)
      run_strided(stream, PartialDerivative<f, 0>{}, strides, dx, dy, a, b);
    else
      run_strided(stream, PartialDerivative<f, 1>{}, strides, dx, dy, a, b);
  });
}

template <class T>
void compare(Stream stream, Compare op, const Strides& strides, const T* a, const T* b, bool* y) {
  choose(op, [&]<Compare f>() { run_strided(stream, Comparator<f>{}, strides, y, a, b); });
}

template <class T>
void where(Stream stream, const Strides& strides, const bool* condition, const T* a, const T* b, T* y) {
  run_strided(stream, Choose{}, strides, y, condition, a, b);
}

template <class T>
void affine(Stream stream, int64_t n, double alpha, double beta, const T* x, T* y) {
  run_map(stream, Affine<T>{Accum<T>(alpha), Accum<T>(beta)}, n, y, x);
}

void arange(Stream stream, int64_t n, int32_t* y) {
  if (n > 0) launch(count_up, {ceil_div(n, threads), threads, 0, stream}, n, y);
}

void fill(Stream stream, int64_t n, double value, DType dtype, void* y) {
  visit(dtype, [&]<class T>(T) { run_map(stream, Same<T>{convert<T>(value)}, n, static_cast<T*>(y)); });
}

void cast(Stream stream, int64_t n, DType from, const void* x, DType to, void* y) {
  visit(from, [&]<class From>(From) {
    visit(to,
          [&]<class To>(To) { run_map(stream, Convert<To>{}, n, static_cast<To*>(y), static_cast<const From*>(x)); });
  });
}

CAIRN_GPU_TYPES(unary)
CAIRN_GPU_TYPES(unary_backward)
CAIRN_GPU_NUMBERS(binary)
CAIRN_GPU_TYPES(binary_backward)
CAIRN_GPU_NUMBERS(compare)
CAIRN_GPU_NUMBERS(where)
CAIRN_GPU_NUMBERS(affine)

}  // namespace cairn::gpu
