#include "nn/optim/optimizer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "autograd/tape.h"
#include "core/dispatch.h"
#include "core/ops/checks.h"
#include "core/trace.h"

namespace cairn {
namespace {

constexpr int64_t skipped_steps_allowed = 9;  // in a row

// A slice is short enough to keep a whole GPU busy with a small model. There are about as many slices at most, besides
// one for each parameter, so that the list stays small: the host sends it in every step.
constexpr int64_t shortest_slice = 4096, many_slices = 2048;

void check_learning_rate(double rate) { check_option("optimizer", "the learning rate", rate, 0, INFINITY); }

}  // namespace

void check_option(const char* optimizer, const char* option, double value, double low, double high) {
  check<UsageError>(value >= low && value < high, optimizer, ": expected ", option, " in [", low, ", ", high, "), got ",
                    value);
}

Optimizer::Optimizer(std::vector<Variable> parameters, Moments moments, double learning_rate)
    : parameters_(std::move(parameters)), learning_rate_(learning_rate) {
  check_learning_rate(learning_rate);
  check(!parameters_.empty(), "optimizer: there are no parameters");

  std::unordered_map<const Variable::State*, size_t> seen;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string name = concat("parameter ", i);
    check(parameters_[i].defined(), "optimizer: ", name, " was never given a value");
    expect("optimizer", {{"parameter 0", first_value(), nullptr}, {name.c_str(), parameters_[i], nullptr}});
    check(!parameters_[i].state().node, "optimizer: ", name, " is the result of an operation (", parameters_[i].shape(),
          ")");
    const auto [before, is_new] = seen.emplace(&parameters_[i].state(), i);
    check(is_new, "optimizer: ", name, " is the same variable as parameter ", before->second);
    parameters_[i].state().has_optimizer = true;
  }

  const auto zeros = [this] {
    std::vector<Tensor> tensors;
    for (const Variable& x : parameters_) tensors.push_back(Tensor::zeros(x.shape(), x.dtype(), x.device()));
    return tensors;
  };
  if (moments != Moments::none) first_ = zeros();
  if (moments == Moments::both) second_ = zeros();
  set_state({});
}

// Where slices begin depends on the parameters' lengths alone, and so does the order in which squares are added up.
template <class T>
DeviceArray<ParameterSlice<T>> Optimizer::slices() {
  int64_t total = 0;
  for (const Variable& parameter : parameters_) total += parameter.elements();
  int64_t length = shortest_slice;
  while (total / length > many_slices) length *= 2;

  std::vector<ParameterSlice<T>> list;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t n = parameters_[i].elements();
    const size_t first = list.size();
    list.resize(first + size_t((n + length - 1) / length));
    const Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    Variable::State& state = parameters_[i].state();
    // If layers use a rounded copy, the step writes the new one, so that they do not cast.
    const bool rounds = std::is_same_v<T, float> && state.rounded.defined();
    if (rounds) parameters_[i].rounded();  // a skipped step writes nothing, so the copy must be right before it
    T* const value = state.value.mutable_data<T>();
    bfloat16* const rounded = rounds ? state.rounded.mutable_data<bfloat16>() : nullptr;
    if (rounds) state.set_rounded();
    T* const moment1 = first_.empty() ? nullptr : first_[i].mutable_data<T>();
    T* const moment2 = second_.empty() ? nullptr : second_[i].mutable_data<T>();
    for (int64_t begin = 0; begin < n; begin += length) {
      const auto from = [begin](auto* x) { return x ? x + begin : x; };
      list[first + size_t(begin / length)] = {from(value),   from(gradient.data<T>()),   from(moment1), from(moment2),
                                              from(rounded), std::min(length, n - begin)};
    }
  }
  return {list, first_value().device()};
}
template DeviceArray<ParameterSlice<float>> Optimizer::slices();
template DeviceArray<ParameterSlice<double>> Optimizer::slices();
template DeviceArray<ParameterSlice<bfloat16>> Optimizer::slices();

void Optimizer::check_parameter(size_t i) const {
  const std::string name = concat("parameter ", i), its_gradient = concat("the gradient of ", name);
  expect("optimizer", {{"parameter 0", first_value(), nullptr},
                       optional({"its moment", first_.empty() ? Tensor() : first_[i], "*R"}),
                       {name.c_str(), parameters_[i].value(), "*R"},
                       optional({its_gradient.c_str(), parameters_[i].grad(), "*R"})});
}

// The first step finds what a model has not connected.
void Optimizer::check_every_leaf() const {
  if (const auto shape = leaf_without_optimizer())
    throw Error(concat("optimizer: a leaf of shape ", *shape,
                       " got a gradient, but no optimizer has it: does fields() of its module list it?"));
  for (size_t i = 0; i < parameters_.size(); ++i)
    check(parameters_[i].grad().defined(), "optimizer: parameter ", i, " of shape ", parameters_[i].shape(),
          " got no gradient: does the loss use it, or a tensor (value()) of something that depends on it?");
}

void Optimizer::step() {
  const trace::Span span("optimizer step", "module");
  bool any = false;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    check_parameter(i);
    any = any || parameters_[i].grad().defined();
  }
  check(any, "optimizer: no parameter has a gradient; call backward() before step()");
  if (is_first_step_) check_every_leaf();
  is_first_step_ = false;

  // (bfloat16 has float32's range.) If the square of a gradient overflowed, the second moment would be infinite, and
  // the parameter would never move again.
  const double range = first_value().dtype() == DType::float64 ? DBL_MAX : FLT_MAX;
  update({learning_rate_, max_gradient_norm_, second_.empty() ? range : std::sqrt(range)});
  if (first_value().device() == Device::cpu) check_diverged();
}

void Optimizer::clear_gradients() {
  for (Variable& parameter : parameters_) parameter.clear_grad();
}

void Optimizer::check_diverged(const OptimizerState& now) {
  check<DivergedError>(now.skipped_in_a_row <= skipped_steps_allowed,
                       "optimizer: diverged: the gradient or its square was not finite in ", now.skipped_in_a_row,
                       " steps in a row, after ", now.step,
                       " steps taken; lower the learning rate or clip the gradient; see CheckFinite");
}

void Optimizer::set_learning_rate(double rate) {
  check_learning_rate(rate);
  learning_rate_ = rate;
}

void Optimizer::set_max_gradient_norm(double norm) {
  check_option("optimizer", "max_gradient_norm", norm, 0, INFINITY);
  max_gradient_norm_ = norm;
}

void Optimizer::set_state(const OptimizerState& state) {
  check<DataError>(state.step >= 0 && state.skipped >= 0 && state.skipped_in_a_row >= 0,
                   "optimizer: a state with negative counts (", state.step, " steps, ", state.skipped, " and ",
                   state.skipped_in_a_row, " skipped)");
  state_ = DeviceArray(std::vector{state}, first_value().device());
}

std::vector<std::pair<std::string, Tensor>> Optimizer::moments() const {
  std::vector<std::pair<std::string, Tensor>> result;
  for (size_t i = 0; i < first_.size(); ++i) result.emplace_back(concat("first.", i), first_[i]);
  for (size_t i = 0; i < second_.size(); ++i) result.emplace_back(concat("second.", i), second_[i]);
  return result;
}

}  // namespace cairn
