// Functions of single elements, with broadcasting, and conversions between element types.
//
// Arithmetic is that of core/functors.h in float32; T is float32 or bfloat16. Conversions go between all types.
//
// Launch.
//   map            a thread takes packs of four elements (two where they have 8 bytes), a grid's stride apart, and the
//                  grid is at most 4096 blocks of 256 threads. What is left over, and all of it where an address is not
//                  aligned, goes one element at a time.
//   map_broadcast  a thread takes single elements of the result and finds those of the operands from its coordinates.
//                  Axes along which both operands move alike have been merged, and indices have 32 bits where they fit.
// Traffic of n results of e bytes: e n written and e n read for each operand, once, which is the floor; an operand that
// is stretched comes from the cache. Bound by memory.
#include "core/kernels/elementwise.h"

#include <algorithm>

#include "core/functors.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int64_t max_blocks = 4096;

template <class... T>
constexpr int elements_a_pack = int(std::min(size_t{4}, 16 / std::max({sizeof(T)...})));

// y_i = f(x_i...). The first `packs` packs of y are done as such.
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

// y = f(a, b) for operands that move along the axes by their own strides.
template <class Index, class F, class T>
__global__ void __launch_bounds__(threads)
    map_broadcast(F f, Broadcast shape, int64_t n, const T* a, const T* b, T* y) {
  const int64_t step = int64_t(gridDim.x) * threads;
  for (int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x; i < n; i += step) {
    Index rest = Index(i);
    int64_t from_a = 0, from_b = 0;
    for (int axis = shape.rank - 1; axis >= 0; --axis) {
      const Index size = Index(shape.sizes[axis]);
      const Index at = axis == 0 ? rest : Index(rest % size);
      from_a += int64_t(at) * shape.stride_a[axis];
      from_b += int64_t(at) * shape.stride_b[axis];
      if (axis > 0) rest /= size;
    }
    y[i] = f(a[from_a], b[from_b]);
  }
}

// The same broadcast over the fewest axes: those of one element go, neighbors along which both operands move as along
// one axis become one.
Broadcast merged(const Broadcast& shape) {
  Broadcast result;
  for (int axis = 0; axis < shape.rank; ++axis) {
    const int64_t size = shape.sizes[axis], a = shape.stride_a[axis], b = shape.stride_b[axis];
    if (size == 1) continue;
    const int last = result.rank - 1;
    if (result.rank > 0 && result.stride_a[last] == size * a && result.stride_b[last] == size * b) {
      result.sizes[last] *= size;
      result.stride_a[last] = a;
      result.stride_b[last] = b;
    } else {
      result.sizes[result.rank] = size;
      result.stride_a[result.rank] = a;
      result.stride_b[result.rank++] = b;
    }
  }
  return result;
}

template <class F, class T>
void run_broadcast(Stream stream, F f, const Broadcast& given, const T* a, const T* b, T* y) {
  int64_t n = 1;
  for (int axis = 0; axis < given.rank; ++axis) n *= given.sizes[axis];
  if (n == 0) return;
  const Broadcast shape = merged(given);
  if (shape.rank == 0 || (shape.rank == 1 && shape.stride_a[0] == 1 && shape.stride_b[0] == 1))
    return run_map(stream, f, n, y, a, b);
  const auto kernel = n <= 0x7fffffff ? map_broadcast<uint32_t, F, T> : map_broadcast<int64_t, F, T>;
  launch(kernel, {std::min(4 * max_blocks, ceil_div(n, threads)), threads, 0, stream}, f, shape, n, a, b, y);
}

// ---- what is done to the elements
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
    return T(apply<op>(float(a), float(b)));
  }
};
struct First {
  template <class T>
  __device__ T operator()(T a, T) const {
    return a;
  }
};
struct Affine {
  float factor, offset;
  template <class T>
  __device__ T operator()(T x) const {
    return T(factor * float(x) + offset);
  }
};
template <class T>
struct Same {
  T value;
  __device__ T operator()() const { return value; }
};
struct AddScaled {
  float factor;
  template <class T>
  __device__ T operator()(T y, T x) const {
    return T(float(y) + factor * float(x));
  }
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
void binary(Stream stream, Binary op, const Broadcast& shape, const T* a, const T* b, T* y) {
  choose(op, [&]<Binary f>() { run_broadcast(stream, Operator<f>{}, shape, a, b, y); });
}

template <class T>
void expand(Stream stream, const Broadcast& shape, const T* x, T* y) {
  run_broadcast(stream, First{}, shape, x, x, y);
}

template <class T>
void affine(Stream stream, int64_t n, double alpha, double beta, const T* x, T* y) {
  run_map(stream, Affine{float(alpha), float(beta)}, n, y, x);
}

template <class T>
void accumulate(Stream stream, int64_t n, double alpha, const T* x, T* y) {
  run_map(stream, AddScaled{float(alpha)}, n, y, static_cast<const T*>(y), x);
}

template <class T>
void fill(Stream stream, int64_t n, T value, T* y) {
  run_map(stream, Same<T>{value}, n, y);
}

template <class From, class To>
void cast(Stream stream, int64_t n, const From* x, To* y) {
  run_map(stream, Convert<To>{}, n, y, x);
}

CAIRN_GPU_TYPES(unary)
CAIRN_GPU_TYPES(unary_backward)
CAIRN_GPU_TYPES(binary)
CAIRN_GPU_TYPES(expand)
CAIRN_GPU_TYPES(affine)
CAIRN_GPU_TYPES(accumulate)

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

}  // namespace cairn::gpu
