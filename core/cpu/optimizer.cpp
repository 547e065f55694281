#include "core/kernels/optimizer.h"

#include <cmath>
#include <vector>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// Calls f(slice, i) for every element i of every slice that has a gradient.
template <class T, class F>
void for_each_element(int64_t count, const ParameterSlice<T>* slices, F&& f) {
  parallel_tasks(count, [&](int64_t task) {
    const ParameterSlice<T> slice = slices[task];
    for (int64_t i = 0; slice.gradient && i < slice.n; ++i) f(slice, i);
  });
}

}  // namespace

template <class T>
void prepare_step(Stream, int64_t count, const ParameterSlice<T>* slices, NormLimits limits, OptimizerState* state) {
  std::vector<double> squares(static_cast<size_t>(count));
  parallel_tasks(count, [&](int64_t task) {
    const T* const gradient = slices[task].gradient;
    if (gradient)
      squares[size_t(task)] =
          sum_of<double>(slices[task].n, [=](int64_t i) { return double(gradient[i]) * double(gradient[i]); });
  });
  double sum = 0;
  for (double square : squares) sum += square;

  prepare_state(std::sqrt(sum), limits, *state);
}

template <class T>
void adam_step(Stream, int64_t count, const ParameterSlice<T>* slices, AdamOptions options,
               const OptimizerState* state) {
  if (state->skip) return;
  for_each_element(count, slices, [step = AdamStep<T>(options, *state)](const auto& p, int64_t i) {
    step.update(p.gradient[i], p.value[i], p.first[i], p.second[i]);
  });
}

template <class T>
void sgd_step(Stream, int64_t count, const ParameterSlice<T>* slices, SgdOptions options, const OptimizerState* state) {
  if (state->skip) return;
  for_each_element(count, slices, [step = SgdStep<T>(options, *state)](const auto& p, int64_t i) {
    T none = 0;
    step.update(p.gradient[i], p.value[i], p.first ? p.first[i] : none, none);
  });
}

CAIRN_CPU_TYPES(prepare_step)
CAIRN_CPU_TYPES(adam_step)
CAIRN_CPU_TYPES(sgd_step)

}  // namespace cairn::cpu
