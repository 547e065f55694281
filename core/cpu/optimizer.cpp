#include "core/kernels/optimizer.h"

#include <cmath>
#include <vector>

#include "core/cpu/vector.h"
#include "core/kernels/optimizer_step.h"
#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// Updates all elements of slices that have a gradient. A moment that is null counts as 0.
template <class Step, class T, class Options>
void take_step(int64_t count, const ParameterSlice<T>* slices, const Options& options, const OptimizerState& state) {
  if (state.skip) return;
  parallel_tasks(count, [=, all = Step(options, state)](int64_t task) {
    const Step step = all;  // in registers
    const ParameterSlice<T> p = slices[task];
    for (int64_t i = 0; p.gradient && i < p.n; ++i) {
      T none = 0;
      step.update(p.gradient[i], p.value[i], p.first ? p.first[i] : none, p.second ? p.second[i] : none);
    }
  });
}

}  // namespace

template <class T>
void prepare_step(Stream, int64_t count, const ParameterSlice<T>* slices, double max_norm, OptimizerState* state) {
  std::vector<double> squares(static_cast<size_t>(count));
  parallel_tasks(count, [&](int64_t task) {
    const T* const gradient = slices[task].gradient;
    if (gradient)
      squares[size_t(task)] =
          sum_of<double>(slices[task].n, [=](int64_t i) { return double(gradient[i]) * double(gradient[i]); });
  });
  double sum = 0;
  for (double square : squares) sum += square;

  prepare_state(std::sqrt(sum), max_norm, *state);
}

template <class T>
void adam_step(Stream, int64_t count, const ParameterSlice<T>* slices, AdamOptions options,
               const OptimizerState* state) {
  take_step<AdamStep<T>>(count, slices, options, *state);
}

template <class T>
void sgd_step(Stream, int64_t count, const ParameterSlice<T>* slices, SgdOptions options, const OptimizerState* state) {
  take_step<SgdStep<T>>(count, slices, options, *state);
}

CAIRN_CPU_TYPES(prepare_step)
CAIRN_CPU_TYPES(adam_step)
CAIRN_CPU_TYPES(sgd_step)

}  // namespace cairn::cpu
