#include "core/kernels/optimizer.h"

#include <cmath>
#include <vector>

#include "core/cpu/vector.h"
#include "core/kernels/optimizer_step.h"
#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// A stretch of one parameter: a thread's task. Where stretches begin depends on the parameters alone.
struct Piece {
  int64_t parameter, begin, end;
};

template <class T>
std::vector<Piece> pieces_of(int64_t count, const Parameter<T>* parameters) {
  constexpr int64_t length = 1 << 14;
  std::vector<Piece> pieces;
  for (int64_t p = 0; p < count; ++p) {
    if (!parameters[p].gradient) continue;
    for (int64_t begin = 0; begin < parameters[p].n; begin += length)
      pieces.push_back({p, begin, std::min(parameters[p].n, begin + length)});
  }
  return pieces;
}

// f(parameter, i) for every element i of every parameter that has a gradient.
template <class T, class F>
void for_each_element(int64_t count, const Parameter<T>* parameters, F&& f) {
  const std::vector<Piece> pieces = pieces_of(count, parameters);
  parallel_tasks(int64_t(pieces.size()), [&](int64_t task) {
    const Piece& piece = pieces[size_t(task)];
    const Parameter<T> parameter = parameters[piece.parameter];
    for (int64_t i = piece.begin; i < piece.end; ++i) f(parameter, i);
  });
}

}  // namespace

template <class T>
void prepare_step(Stream, int64_t count, const Parameter<T>* parameters, double max_norm, OptimizerState* state) {
  const std::vector<Piece> pieces = pieces_of(count, parameters);
  std::vector<double> squares(pieces.size());
  parallel_tasks(int64_t(pieces.size()), [&](int64_t task) {
    const Piece& piece = pieces[size_t(task)];
    const T* gradient = parameters[piece.parameter].gradient + piece.begin;
    squares[size_t(task)] =
        sum_of<double>(piece.end - piece.begin, [=](int64_t i) { return double(gradient[i]) * double(gradient[i]); });
  });
  double sum = 0;
  for (double square : squares) sum += square;

  prepare_state(std::sqrt(sum), max_norm, *state);
}

template <class T>
void r_adam_step(Stream, int64_t count, const Parameter<T>* parameters, AdamOptions options,
                 const OptimizerState* state) {
  if (state->skip) return;
  for_each_element(count, parameters, [step = r_adam_coefficients<T>(options, *state)](const auto& p, int64_t i) {
    adam_update(step, p.gradient[i], p.value[i], p.first[i], p.second[i]);
  });
}

template <class T>
void adam_step(Stream, int64_t count, const Parameter<T>* parameters, AdamOptions options,
               const OptimizerState* state) {
  if (state->skip) return;
  for_each_element(count, parameters, [step = adam_coefficients<T>(options, *state)](const auto& p, int64_t i) {
    adam_update(step, p.gradient[i], p.value[i], p.first[i], p.second[i]);
  });
}

template <class T>
void sgd_step(Stream, int64_t count, const Parameter<T>* parameters, SgdOptions options, const OptimizerState* state) {
  if (state->skip) return;
  for_each_element(count, parameters, [step = SgdStep<T>(options, *state)](const auto& p, int64_t i) {
    T none = 0;
    sgd_update(step, p.gradient[i], p.value[i], p.first ? p.first[i] : none);
  });
}

#define INSTANTIATE(T)                                                                                 \
  template void prepare_step(Stream, int64_t, const Parameter<T>*, double, OptimizerState*);           \
  template void r_adam_step(Stream, int64_t, const Parameter<T>*, AdamOptions, const OptimizerState*); \
  template void adam_step(Stream, int64_t, const Parameter<T>*, AdamOptions, const OptimizerState*);   \
  template void sgd_step(Stream, int64_t, const Parameter<T>*, SgdOptions, const OptimizerState*);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace cairn::cpu
