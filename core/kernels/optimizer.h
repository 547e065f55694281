#pragma once
// Optimizer steps over all parameters at once, given as a list of slices. The optimizer's state is in device memory, so
// skipping a step does not wait for the host.
#include <cmath>
#include <cstdint>
#include <span>

#include "core/dispatch.h"
#include "core/host_device.h"

namespace cairn {

// n elements of a parameter: values, gradient, the optimizer's two moments (null if unused), and a bfloat16 copy of the
// new values (null if no layer uses one). The host cuts parameters into slices of similar length; kernels take any
// length. If the gradient is null, all stay as they are.
template <class T>
struct ParameterSlice {
  T* value = nullptr;
  const T* gradient = nullptr;
  T* first = nullptr;
  T* second = nullptr;
  bfloat16* rounded = nullptr;
  int64_t n = 0;
};

// On the device. `step` counts the steps taken; `skip` is 1 if this step is skipped.
struct OptimizerState {
  int64_t step = 0;
  double gradient_norm = 0;   // over all parameters, before clipping
  double gradient_scale = 1;  // min(1, max_norm / norm)
  int64_t skip = 0;
  int64_t skipped = 0;           // steps skipped in all
  int64_t skipped_in_a_row = 0;  // the latest ones
};

// Of one step. Norms beyond max_norm are clipped to it (0: none are); a step whose clipped norm is NaN or above
// `largest` is skipped.
struct StepSettings {
  double learning_rate = 0, max_norm = 0, largest = 0;
};

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool rectified = false;  // R-Adam; the class RAdam sets it
};
struct SgdOptions {
  double momentum = 0, weight_decay = 0;
};

// ---- the arithmetic: the coefficients that all elements of a step share are computed once, in double; the update of
// an element is then a few operations in T.

// Updates the state for a gradient of this norm: the scale that clips it, skip or advance.
CAIRN_HD inline void prepare_state(double norm, const StepSettings& settings, OptimizerState& state) {
  state.gradient_norm = norm;
  state.gradient_scale = settings.max_norm > 0 && norm > settings.max_norm ? settings.max_norm / norm : 1;
  state.skip = !(norm * state.gradient_scale <= settings.largest);
  if (state.skip) {
    ++state.skipped;
    ++state.skipped_in_a_row;
  } else {
    ++state.step;
    state.skipped_in_a_row = 0;
  }
}

// Adam and R-Adam: m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  x = decay x - step_size m /
// (root_scale sqrt(v) + epsilon), for the clipped gradient g. If not `adaptive`, the denominator is 1.
//
// Adam divides both moments by the sum of their weights after t steps, 1 - beta^t.
// R-Adam: rho_t is the number of gradients that v effectively averages over. Above 5, the variance of the adaptive step
// is finite, and the step is rectified for it (Liu et al. 2020, equation 4 and Algorithm 2); below, v is not used. The
// bias correction is in the step size; sqrt(v) + epsilon has none.
template <class T>
struct AdamStep {
  T gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, decay, step_size, root_scale, epsilon;
  bool adaptive;

  CAIRN_HD AdamStep(const AdamOptions& o, double learning_rate, const OptimizerState& state)
      : gradient_scale(T(state.gradient_scale)),
        beta1(T(o.beta1)),
        one_minus_beta1(T(1 - o.beta1)),
        beta2(T(o.beta2)),
        one_minus_beta2(T(1 - o.beta2)),
        decay(T(1 - learning_rate * o.weight_decay)),
        epsilon(T(o.epsilon)) {
    const double t = double(state.step), power2 = std::pow(o.beta2, t);
    const double correction1 = 1 - std::pow(o.beta1, t), correction2 = 1 - power2;
    const double maximum = 2 / (1 - o.beta2) - 1, rho = maximum - 2 * t * power2 / correction2;
    double size = learning_rate / correction1;
    adaptive = !o.rectified || rho > 5;
    if (o.rectified && adaptive) {
      const double rectification = std::sqrt((rho - 4) * (rho - 2) * maximum / ((maximum - 4) * (maximum - 2) * rho));
      size = size * rectification * std::sqrt(correction2);
    }
    step_size = T(size);
    root_scale = T(o.rectified ? 1 : 1 / std::sqrt(correction2));
  }
  // Updates one element.
  CAIRN_HD void update(T gradient, T& x, T& first, T& second) const {
    const T g = gradient_scale * gradient;
    first = beta1 * first + one_minus_beta1 * g;
    second = beta2 * second + one_minus_beta2 * g * g;
    const T move = step_size * first;
    x = decay * x - (adaptive ? move / (root_scale * std::sqrt(second) + epsilon) : move);
  }
};

// m = momentum m + g + weight_decay x,  x -= learning_rate m, for the clipped gradient g.
template <class T>
struct SgdStep {
  T gradient_scale, momentum, weight_decay, learning_rate;

  CAIRN_HD SgdStep(const SgdOptions& o, double rate, const OptimizerState& state)
      : gradient_scale(T(state.gradient_scale)),
        momentum(T(o.momentum)),
        weight_decay(T(o.weight_decay)),
        learning_rate(T(rate)) {}
  CAIRN_HD void update(T gradient, T& x, T& first, T& /*second*/) const {
    first = momentum * first + gradient_scale * gradient + weight_decay * x;
    x -= learning_rate * first;
  }
};

CAIRN_KERNELS(
    // A step first computes the gradient's norm and the scale that clips it. Then it sets `skip` and does nothing, or
    // `step` advances.
    //
    // Adam (Kingma & Ba 2015), or R-Adam (Liu et al. 2020, Algorithm 2; rectified where rho_t > 5, as in PyTorch), with
    // decoupled weight decay (Loshchilov & Hutter 2019).
    template <class T>
    void adam_step(Stream, std::span<const ParameterSlice<T>>, AdamOptions, StepSettings, OptimizerState*);
    // SGD with momentum: m = momentum m + g + weight_decay x; x -= lr m. m is `first`, null if momentum is 0.
    template <class T>
    void sgd_step(Stream, std::span<const ParameterSlice<T>>, SgdOptions, StepSettings, OptimizerState*);)

}  // namespace cairn
