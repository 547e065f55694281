#pragma once
// Optimizer steps over all parameters at once, given as a list of `count` slices. The optimizer's state is in device
// memory, so skipping a step does not wait for the host.
#include <cstdint>

#include "core/dispatch.h"

namespace cairn {

// n elements of a parameter: values, gradient and the optimizer's two moments (null if unused). The host cuts
// parameters into slices of similar length; kernels take any length. If the gradient is null, values and moments stay
// as they are.
template <class T>
struct ParameterSlice {
  T* value = nullptr;
  const T* gradient = nullptr;
  T* first = nullptr;
  T* second = nullptr;
  int64_t n = 0;
};

// On the device. `step` counts the steps taken; `skip` is 1 if the gradient is not finite.
struct OptimizerState {
  int64_t step = 0;
  double learning_rate = 0;
  double gradient_norm = 0;   // over all parameters, before clipping
  double gradient_scale = 1;  // min(1, max_norm / norm)
  int64_t skip = 0;
  int64_t skipped = 0;           // steps skipped in all
  int64_t skipped_in_a_row = 0;  // the latest ones
};

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool rectified = false;  // R-Adam; the class RAdam sets it
};
struct SgdOptions {
  double momentum = 0, weight_decay = 0;
};

CAIRN_KERNELS(
    // Before a step: computes the gradient's norm and the scale that clips it to max_norm (0: no clipping). If the norm
    // is not finite, sets `skip`; else `step` advances.
    template <class T>
    void prepare_step(Stream, int64_t count, const ParameterSlice<T>*, double max_norm, OptimizerState*);
    // The steps below do nothing if `skip` is set. Their arithmetic is in optimizer_step.h.
    //
    // Adam (Kingma & Ba 2015), or R-Adam (Liu et al. 2020, Algorithm 2; rectified where rho_t > 5, as in PyTorch), with
    // decoupled weight decay (Loshchilov & Hutter 2019).
    template <class T>
    void adam_step(Stream, int64_t count, const ParameterSlice<T>*, AdamOptions, const OptimizerState*);
    // SGD with momentum: m = momentum m + g + weight_decay x; x -= lr m. m is `first`, null if momentum is 0.
    template <class T>
    void sgd_step(Stream, int64_t count, const ParameterSlice<T>*, SgdOptions, const OptimizerState*);)

}  // namespace cairn
