// Optimizer steps over all parameters at once; the arithmetic of an element is that of core/kernels/optimizer.h in
// float32, for values, gradients and moments in float32 or bfloat16.
//
// The parameters come as a list of slices in the memory of the device, which the host has cut to similar lengths.
// Blocks take slices in turn. So a block finds its work with one load, however many parameters there are.
//
// Launch.
//   add_squares   up to 512 blocks of 256 threads: the sum of squares of a block's slices, in float64
//   finish        one block of 512 threads: the norm, and what it does to the state. All sums have one order.
//   take_step     up to 512 blocks of 256 threads. A block's first thread works out what is the same for all elements;
//                 then a thread updates 16 bytes at a time, or an element where an address is not aligned.
// Traffic for n elements of e bytes: the squares e n; the step of Adam and R-Adam 7 e n (four numbers read, three
// written), SGD 5 e n, or 3 e n without momentum: the floor. 48 bytes of the list a slice. A rounded copy: 2 n more.
// Bound by memory.
#include "core/kernels/optimizer.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int most_blocks = 512;

// f(slice) for the slices of this block that have a gradient.
template <class T, class F>
__device__ void each_slice(int64_t count, const ParameterSlice<T>* slices, F f) {
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x)
    if (const ParameterSlice<T> slice = slices[i]; slice.gradient) f(slice);
}

template <bool packs, class T>
__device__ double add_chunks(const ParameterSlice<T>& p, double sum) {
  each_chunk<threads>(p.n, [&](int64_t c) {
    for (const float g : load_chunk<packs>(p.gradient, p.n, c).element) sum += double(g) * double(g);
  });
  return sum;
}

// partial [blocks]
template <class T>
__global__ void __launch_bounds__(threads)
    add_squares(int64_t count, const ParameterSlice<T>* slices, double* partial) {
  double sum = 0;
  each_slice(count, slices, [&](const ParameterSlice<T>& p) {
    sum = rows_hold_packs(p.n, p.gradient) ? add_chunks<true>(p, sum) : add_chunks<false>(p, sum);
  });
  sum = block_reduce(sum, 0.0, Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(most_blocks)
    finish(int64_t blocks, const double* partial, StepSettings settings, OptimizerState* state) {
  const double sum = block_reduce(threadIdx.x < blocks ? partial[threadIdx.x] : 0.0, 0.0, Sum{});
  if (threadIdx.x == 0) prepare_state(std::sqrt(sum), settings, *state);
}

// Updates elements i of all arrays of a slice, or a pack of them. A moment that is null counts as 0.
template <int width, class Step, class T>
__device__ void update(const Step& step, const ParameterSlice<T>& p, int64_t i) {
  using Word = Pack<T, width>;
  Word x = pack<width>(p.value, i);
  Word first = p.first ? pack<width>(p.first, i) : Word{}, second = p.second ? pack<width>(p.second, i) : Word{};
  const Word g = pack<width>(p.gradient, i);
  Pack<bfloat16, width> rounded;
#pragma unroll
  for (int k = 0; k < width; ++k) {
    float value = float(x.element[k]), m = float(first.element[k]), v = float(second.element[k]);
    step.update(float(g.element[k]), value, m, v);
    x.element[k] = T(value), rounded.element[k] = bfloat16(value), first.element[k] = T(m), second.element[k] = T(v);
  }
  pack<width>(p.value, i) = x;
  if (p.first) pack<width>(p.first, i) = first;
  if (p.second) pack<width>(p.second, i) = second;
  if (p.rounded) pack<width>(p.rounded, i) = rounded;
}

template <class Step, class T, class Options>
__global__ void __launch_bounds__(threads) take_step(int64_t count, const ParameterSlice<T>* slices, Options options,
                                                     double learning_rate, const OptimizerState* state) {
  __shared__ __align__(16) unsigned char memory[sizeof(Step)];  // a Step has no default constructor
  if (state->skip) return;
  if (threadIdx.x == 0) new (memory) Step(options, learning_rate, *state);
  __syncthreads();
  const Step step = *std::launder(reinterpret_cast<const Step*>(memory));

  constexpr int width = 16 / sizeof(T);
  each_slice(count, slices, [&](const ParameterSlice<T>& p) {
    int64_t begin = 0;
    if (holds_packs<width>(p.value, p.gradient, p.first, p.second, p.rounded)) {
      for (int64_t i = threadIdx.x; i < p.n / width; i += threads) update<width>(step, p, i);
      begin = p.n / width * width;
    }
    for (int64_t i = begin + threadIdx.x; i < p.n; i += threads) update<1>(step, p, i);
  });
}

template <class Step, class T, class Options>
void run_step(Stream stream, std::span<const ParameterSlice<T>> slices, const Options& options,
              const StepSettings& settings, OptimizerState* state) {
  const auto count = int64_t(slices.size()), blocks = std::clamp<int64_t>(count, 1, most_blocks);
  Workspace workspace(Device::cuda);
  double* const partial = workspace.take<double>(blocks);
  launch(add_squares<T>, {blocks, threads, 0, stream}, count, slices.data(), partial);
  launch(finish, {1, most_blocks, 0, stream}, blocks, partial, settings, state);
  launch(take_step<Step, T, Options>, {blocks, threads, 0, stream}, count, slices.data(), options,
         settings.learning_rate, state);
}

}  // namespace

template <class T>
void adam_step(Stream stream, std::span<const ParameterSlice<T>> slices, AdamOptions options, StepSettings settings,
               OptimizerState* state) {
  run_step<AdamStep<float>>(stream, slices, options, settings, state);
}

template <class T>
void sgd_step(Stream stream, std::span<const ParameterSlice<T>> slices, SgdOptions options, StepSettings settings,
              OptimizerState* state) {
  run_step<SgdStep<float>>(stream, slices, options, settings, state);
}

CAIRN_GPU_TYPES(adam_step)
CAIRN_GPU_TYPES(sgd_step)

}  // namespace cairn::gpu
