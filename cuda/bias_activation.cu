// A linear layer's bias and its activation: y = f(x + bias), and the gradient dx = f'(x + bias) dy, for x [rows, cols]
// in float32 or bfloat16 and bias [cols]. f is gelu (x Phi(x), exact) or relu. Arithmetic is that of core/functors.h in
// float32. The gradient computes x + bias again instead of saving it, so a training step saves only x and y, as it does
// without fusion. The gradient of the bias is the sum of dx over rows (reduce.cu).
//
// Launch. A thread takes packs of four elements (or single elements, if the columns are no multiple of four or an
// address is not aligned), a grid's stride apart. It updates its column in each step, so that the loop has no division.
// At most 4096 blocks of 256 threads.
// Traffic for n elements of e bytes: 2 e n forward and 3 e n backward, the floor. The bias comes from the cache. A
// separate kernel for the bias would take 2 e n more. Bound by memory, with Phi counted as 20 FLOPs and the density as
// 7.
#include "core/kernels/bias_activation.h"

#include <algorithm>

#include "core/functors.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int64_t max_blocks = 4096;

// Calls f(i, column) for the packs i of this thread. A row has `row` packs.
template <class F>
__device__ void each_pack(int64_t packs, int64_t row, F f) {
  const int64_t first = int64_t(blockIdx.x) * threads + threadIdx.x, step = int64_t(gridDim.x) * threads;
  const int64_t across = step % row;
  int64_t column = first % row;
  for (int64_t i = first; i < packs; i += step) {
    f(i, column);
    column += across;
    if (column >= row) column -= row;
  }
}

template <int width, Unary op, class T>
__global__ void __launch_bounds__(threads) bias_activate(int64_t packs, int64_t row, const T* x, const T* bias, T* y) {
  each_pack(packs, row, [=](int64_t i, int64_t column) {
    const Pack<T, width> in = pack<width>(x, i), shift = pack<width>(bias, column);
    Pack<T, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k) out.element[k] = T(apply<op>(float(in.element[k]) + float(shift.element[k])));
    pack<width>(y, i) = out;
  });
}

template <int width, Unary op, class T>
__global__ void __launch_bounds__(threads)
    bias_activate_gradient(int64_t packs, int64_t row, const T* x, const T* bias, const T* dy, T* dx) {
  each_pack(packs, row, [=](int64_t i, int64_t column) {
    const Pack<T, width> in = pack<width>(x, i), shift = pack<width>(bias, column), g = pack<width>(dy, i);
    Pack<T, width> out;
#pragma unroll
    for (int k = 0; k < width; ++k)
      out.element[k] = T(derivative<op>(float(in.element[k]) + float(shift.element[k])) * float(g.element[k]));
    pack<width>(dx, i) = out;
  });
}

// Calls run.operator()<width, f>(grid, packs, packs in a row) for the widest packs that rows and addresses allow.
template <class Run, class... T>
void choose_kernel(Activation activation, Rows size, Run run, const T*... addresses) {
  if (size.rows * size.cols == 0) return;
  const auto run_width = [&]<int width>() {
    const int64_t row = size.cols / width, packs = size.rows * row;
    const int64_t grid = std::min(max_blocks, ceil_div(packs, threads));
    choose(activation, [&]<Unary f>() { run.template operator()<width, f>(grid, packs, row); });
  };
  if (size.cols % 4 == 0 && holds_packs<4>(addresses...))
    run_width.template operator()<4>();
  else
    run_width.template operator()<1>();
}

}  // namespace

template <class T>
void bias_activation_forward(Stream stream, Activation activation, Rows size, const T* x, const T* bias, T* y) {
  const auto run = [=]<int width, Unary f>(int64_t grid, int64_t packs, int64_t row) {
    launch(bias_activate<width, f, T>, {grid, threads, 0, stream}, packs, row, x, bias, y);
  };
  choose_kernel(activation, size, run, x, bias, y);
}

template <class T>
void bias_activation_backward(Stream stream, Activation activation, Rows size, const T* x, const T* bias, const T* dy,
                              T* dx) {
  const auto run = [=]<int width, Unary f>(int64_t grid, int64_t packs, int64_t row) {
    launch(bias_activate_gradient<width, f, T>, {grid, threads, 0, stream}, packs, row, x, bias, dy, dx);
  };
  choose_kernel(activation, size, run, x, bias, dy, dx);
}

CAIRN_GPU_TYPES(bias_activation_forward)
CAIRN_GPU_TYPES(bias_activation_backward)

}  // namespace cairn::gpu
