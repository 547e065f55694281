#include "core/kernels/optimizer.h"

#include <cmath>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {
namespace {

template <class T>
double norm(std::span<const ParameterSlice<T>> slices) {
  std::vector<double> squares(slices.size());
  parallel_tasks(int64_t(slices.size()), [&](int64_t task) {
    const T* const gradient = slices[size_t(task)].gradient;
    if (gradient)
      squares[size_t(task)] =
          sum_of<double>(slices[size_t(task)].n, [=](int64_t i) { return double(gradient[i]) * double(gradient[i]); });
  });
  double sum = 0;
  for (double square : squares) sum += square;
  return std::sqrt(sum);
}

// update(step, slice, i) updates element i.
template <class Step, class T, class Options, class F>
void take_step(std::span<const ParameterSlice<T>> slices, const Options& options, const StepSettings& settings,
               OptimizerState& state, F&& update) {
  prepare_state(norm(slices), settings, state);
  if (state.skip) return;
  const Step step(options, settings.learning_rate, state);
  parallel_tasks(int64_t(slices.size()), [&, step](int64_t task) {
    const ParameterSlice<T> slice = slices[size_t(task)];
    for (int64_t i = 0; slice.gradient && i < slice.n; ++i) update(step, slice, i);
    for (int64_t i = 0; slice.rounded && i < slice.n; ++i) slice.rounded[i] = bfloat16(float(slice.value[i]));
  });
}

}  // namespace

template <class T>
void adam_step(Stream, std::span<const ParameterSlice<T>> slices, AdamOptions options, StepSettings settings,
               OptimizerState* state) {
  take_step<AdamStep<T>>(slices, options, settings, *state, [](const auto& step, const auto& p, int64_t i) {
    step.update(p.gradient[i], p.value[i], p.first[i], p.second[i]);
  });
}

template <class T>
void sgd_step(Stream, std::span<const ParameterSlice<T>> slices, SgdOptions options, StepSettings settings,
              OptimizerState* state) {
  take_step<SgdStep<T>>(slices, options, settings, *state, [](const auto& step, const auto& p, int64_t i) {
    T none = 0;
    step.update(p.gradient[i], p.value[i], p.first ? p.first[i] : none, none);
  });
}

CAIRN_CPU_TYPES(adam_step)
CAIRN_CPU_TYPES(sgd_step)

}  // namespace cairn::cpu
