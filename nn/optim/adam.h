#pragma once
// Adam (Kingma & Ba, ICLR 2015) with decoupled weight decay (Loshchilov & Hutter, ICLR 2019). The same as PyTorch's
// torch.optim.AdamW.
#include <utility>

#include "nn/optim/optimizer.h"

namespace cairn {

class Adam : public Optimizer {
 public:
  // Weight decay: each step first scales the parameters by 1 - learning_rate * weight_decay.
  // Errors: as Optimizer; UsageError: a beta outside [0, 1), epsilon <= 0, weight_decay < 0, or one not finite.
  Adam(std::vector<Variable> parameters, double learning_rate, const AdamOptions& options = {});

 private:
  void update(const StepSettings& settings) override;
  AdamOptions options_;
};

// R-Adam (Liu et al., "On the variance of the adaptive learning rate and beyond", ICLR 2020): Adam that scales its step
// by how reliable the second moment is. The first steps leave the second moment out, so no warm-up is needed. The
// experiments of the clustered-attention paper train with it.
//
// The same as PyTorch's torch.optim.RAdam(decoupled_weight_decay=True): steps are rectified if rho_t > 5 (in Algorithm
// 2 > 4, in the authors' code >= 5), and bias-corrected momentum before. The denominator is sqrt(v) + epsilon; its bias
// correction is part of the step size.
class RAdam : public Adam {
 public:
  // Weight decay and errors: as Adam.
  RAdam(std::vector<Variable> parameters, double learning_rate, AdamOptions options = {})
      : Adam(std::move(parameters), learning_rate, rectified(options)) {}

 private:
  static AdamOptions rectified(AdamOptions options) {
    options.rectified = true;
    return options;
  }
};

}  // namespace cairn
