// Optimizer steps over all parameters at once; the arithmetic of an element is that of core/kernels/optimizer_step.h in
// float32, for values, gradients and moments in float32 or bfloat16.
//
// The host does not know how long the parameters are: the list lies in the memory of the device. So the grid is fixed,
// and the parameters, cut into pieces of 4096 elements, are dealt out to its blocks in turn, one piece each.
//
// Launch.
//   add_squares   512 blocks of 256 threads: the sum of squares of a block's pieces, in float64
//   finish        one block of 512 threads: the norm, and what it does to the state. All sums have one order.
//   take_step     512 blocks of 256 threads. A block's first thread works out what is the same for all elements; then
//                 a thread updates 16 bytes at a time, or an element where an address is not aligned.
// Traffic for n elements of e bytes: prepare_step e n; Adam and R-Adam 7 e n (four numbers read, three written), SGD 5
// e n, or 3 e n without momentum: the floor. A block reads the list, 40 bytes a parameter, from the cache. Bound by
// memory.
//
// cost add_squares: 4*P bytes, 2*P FLOPs
// cost take_step: 28*P bytes, 12*P FLOPs
#include "core/kernels/optimizer.h"

#include <cmath>
#include <new>

#include "core/kernels/optimizer_step.h"
#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int threads = 256;
constexpr int grid = 512;
constexpr int64_t piece = 4096;

// f(parameter, begin, end) for the pieces that are this block's. Parameters without a gradient have none.
template <class T, class F>
__device__ void each_piece(int64_t count, const Parameter<T>* parameters, F f) {
  int64_t turn = blockIdx.x;  // the block's next piece, counted from the first of this parameter
  for (int64_t i = 0; i < count; ++i) {
    const Parameter<T> p = parameters[i];
    const int64_t n = p.gradient ? p.n : 0;
    for (; turn < ceil_div(n, piece); turn += grid) f(p, turn * piece, min(n, (turn + 1) * piece));
    turn -= ceil_div(n, piece);
  }
}

// partial [grid]
template <class T>
__global__ void __launch_bounds__(threads) add_squares(int64_t count, const Parameter<T>* parameters, double* partial) {
  double sum = 0;
  bool any = false;
  each_piece(count, parameters, [&](const Parameter<T>& p, int64_t begin, int64_t end) {
    any = true;
    for (int64_t i = begin + threadIdx.x; i < end; i += threads) {
      const double g = double(float(p.gradient[i]));
      sum += g * g;
    }
  });
  if (any) sum = block_reduce(sum, 0.0, Sum{});
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(grid) finish(const double* partial, double max_norm, OptimizerState* state) {
  const double sum = block_reduce(partial[threadIdx.x], 0.0, Sum{});
  if (threadIdx.x == 0) prepare_state(std::sqrt(sum), max_norm, *state);
}

// ---- the optimizers: what a step does to all elements alike, and to one
struct RAdamRule {
  AdamOptions options;
  using Step = AdamStep<float>;
  __device__ Step coefficients(const OptimizerState& state) const { return r_adam_coefficients<float>(options, state); }
  __device__ static void update(const Step& step, float g, float& x, float& first, float& second) {
    adam_update(step, g, x, first, second);
  }
};
struct AdamRule : RAdamRule {
  __device__ Step coefficients(const OptimizerState& state) const { return adam_coefficients<float>(options, state); }
};
struct SgdRule {
  SgdOptions options;
  using Step = SgdStep<float>;
  __device__ Step coefficients(const OptimizerState& state) const { return Step(options, state); }
  __device__ static void update(const Step& step, float g, float& x, float& first, float&) {
    sgd_update(step, g, x, first);
  }
};

// Updates elements i of all arrays of a parameter, which are T or packs of it. A moment that is null counts as 0.
template <class Rule, class T, int width>
__device__ void update(const typename Rule::Step& step, const Parameter<T>& p, int64_t i) {
  using Word = Pack<T, width>;
  Word x = pack<width>(p.value, i);
  Word first = p.first ? pack<width>(p.first, i) : Word{}, second = p.second ? pack<width>(p.second, i) : Word{};
  const Word g = pack<width>(p.gradient, i);
#pragma unroll
  for (int k = 0; k < width; ++k) {
    float value = float(x.element[k]), m = float(first.element[k]), v = float(second.element[k]);
    Rule::update(step, float(g.element[k]), value, m, v);
    x.element[k] = T(value), first.element[k] = T(m), second.element[k] = T(v);
  }
  pack<width>(p.value, i) = x;
  if (p.first) pack<width>(p.first, i) = first;
  if (p.second) pack<width>(p.second, i) = second;
}

template <class T, class Rule>
__global__ void __launch_bounds__(threads)
    take_step(int64_t count, const Parameter<T>* parameters, Rule rule, const OptimizerState* state) {
  using Step = typename Rule::Step;
  __shared__ __align__(16) unsigned char memory[sizeof(Step)];  // a Step has no default constructor
  if (state->skip) return;
  if (threadIdx.x == 0) new (memory) Step(rule.coefficients(*state));
  __syncthreads();
  const Step step = *std::launder(reinterpret_cast<const Step*>(memory));

  constexpr int width = 16 / sizeof(T);
  each_piece(count, parameters, [&](const Parameter<T>& p, int64_t begin, int64_t end) {
    if (holds_packs<width>(p.value, p.gradient, p.first, p.second)) {
      for (int64_t i = begin / width + threadIdx.x; i < end / width; i += threads) update<Rule, T, width>(step, p, i);
      begin = end / width * width;
    }
    for (int64_t i = begin + threadIdx.x; i < end; i += threads) update<Rule, T, 1>(step, p, i);
  });
}

}  // namespace

template <class T>
void prepare_step(Stream stream, int64_t count, const Parameter<T>* parameters, double max_norm,
                  OptimizerState* state) {
  Workspace workspace(Device::cuda);
  double* const partial = workspace.take<double>(grid);
  launch(add_squares<T>, {grid, threads, 0, stream}, count, parameters, partial);
  launch(finish, {1, grid, 0, stream}, partial, max_norm, state);
}

template <class T>
void r_adam_step(Stream stream, int64_t count, const Parameter<T>* parameters, AdamOptions options,
                 const OptimizerState* state) {
  launch(take_step<T, RAdamRule>, {grid, threads, 0, stream}, count, parameters, RAdamRule{options}, state);
}

template <class T>
void adam_step(Stream stream, int64_t count, const Parameter<T>* parameters, AdamOptions options,
               const OptimizerState* state) {
  launch(take_step<T, AdamRule>, {grid, threads, 0, stream}, count, parameters, AdamRule{{options}}, state);
}

template <class T>
void sgd_step(Stream stream, int64_t count, const Parameter<T>* parameters, SgdOptions options,
              const OptimizerState* state) {
  launch(take_step<T, SgdRule>, {grid, threads, 0, stream}, count, parameters, SgdRule{options}, state);
}

#define INSTANTIATE(T)                                                                                 \
  template void prepare_step(Stream, int64_t, const Parameter<T>*, double, OptimizerState*);           \
  template void r_adam_step(Stream, int64_t, const Parameter<T>*, AdamOptions, const OptimizerState*); \
  template void adam_step(Stream, int64_t, const Parameter<T>*, AdamOptions, const OptimizerState*);   \
  template void sgd_step(Stream, int64_t, const Parameter<T>*, SgdOptions, const OptimizerState*);
INSTANTIATE(float)
INSTANTIATE(bfloat16)

}  // namespace cairn::gpu
