#pragma once
// What all optimizers share. A training step is
//
//   RAdam optimizer(parameters, 1e-3, {.weight_decay = 0.01});  // once
//   optimizer.set_max_gradient_norm(1);
//   ...
//   optimizer.clear_gradients();
//   backward(loss);
//   optimizer.set_learning_rate(schedule.learning_rate(step));
//   optimizer.step();
//
// The step count, the moments and whether to skip the step lie in the memory of the parameters' device. One kernel
// updates all parameters.
//
// Gradients are clipped by their norm over all parameters. A step whose gradient is not finite is skipped: parameters,
// moments and the count stay as they are. There is one count for all parameters. A step does not change a parameter
// without a gradient, nor its moments.
//
// Adding an optimizer: its update and its kernel (core/kernels/optimizer.h, core/cpu/optimizer.cpp, cuda/optimizer.cu),
// and a file here like sgd.cpp.
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "core/device_array.h"
#include "core/kernels/optimizer.h"

namespace cairn {

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Changes the parameters by their gradients. On the CPU it ends with check_diverged(); on CUDA it does not wait for
  // the device, so call check_diverged() wherever the loss is read.
  // Errors: no parameter has a gradient; a gradient's or a parameter's dtype, device or shape is no longer right. In
  // the first step also: a leaf has a gradient but no optimizer, because fields() of its module lacks it; a parameter
  // has no gradient, because the loss does not use it, or uses what depends on it as a Tensor. (Give an optimizer only
  // what you train, and clear the gradients of other leaves.)
  void step();
  // Forgets the gradients of all parameters.
  void clear_gradients();
  // Error (DivergedError): the last ten steps, or more, were skipped. Without an argument, waits for the device.
  void check_diverged() const { check_diverged(state()); }
  static void check_diverged(const OptimizerState& state);

  double learning_rate() const { return learning_rate_; }
  // For the steps from now on. Error (UsageError): negative or not finite.
  void set_learning_rate(double rate);

  // Gradients with a larger norm are scaled down to it. 0, the default: never.
  double max_gradient_norm() const { return max_gradient_norm_; }
  // Error (UsageError): negative or not finite.
  void set_max_gradient_norm(double norm);

  // The counts and the norm of the last gradient. Waits for the device.
  OptimizerState state() const { return state_.to_vector().front(); }
  // Continues from what state() gave. Error (DataError): negative counts.
  void set_state(const OptimizerState& state);
  // The moments by name: "first.3" is the first moment of parameter 3. They share the optimizer's memory, so a
  // checkpoint is restored by copying into them.
  std::vector<std::pair<std::string, Tensor>> moments() const;

  const std::vector<Variable>& parameters() const { return parameters_; }

 protected:
  enum class Moments { none, first, both };
  // Errors: no parameters; one that is not floating, differs from the first in dtype or device, is listed twice or is
  // the result of an operation; a learning rate that is negative or not finite (UsageError).
  Optimizer(std::vector<Variable> parameters, Moments moments, double learning_rate);

  // A step by the optimizer's own kernel, with the arguments below.
  virtual void update(const StepSettings& settings) = 0;

  // CAIRN_RUN takes the dtype and the device from it.
  const Tensor& first_value() const { return parameters_.front().value(); }
  // Where parameters, gradients and moments are; T is the parameters' type. Every step makes a new list, because every
  // backward pass makes new gradients.
  template <class T>
  DeviceArray<ParameterSlice<T>> slices();
  OptimizerState* device_state() { return state_.data(); }

 private:
  // Error: its value or gradient is no longer of the right dtype, device or shape.
  void check_parameter(size_t i) const;
  void check_every_leaf() const;

  std::vector<Variable> parameters_;
  std::vector<Tensor> first_, second_;  // one a parameter, or none
  DeviceArray<OptimizerState> state_;   // one
  double learning_rate_, max_gradient_norm_ = 0;
  bool is_first_step_ = true;
};

// Error (UsageError): `value` is outside [low, high). The message names the optimizer and the option.
void check_option(const char* optimizer, const char* option, double value, double low, double high);

}  // namespace cairn
