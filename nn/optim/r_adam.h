#pragma once
// R-Adam (Liu et al., "On the variance of the adaptive learning rate and beyond", ICLR 2020): Adam whose step is scaled
// by how far its second moment can be trusted, and that leaves it out in the first steps, where it cannot be. So no
// warm-up is needed. The experiments of the clustered-attention paper train with it.
//
// The same as PyTorch's torch.optim.RAdam(decoupled_weight_decay=True): rectified from rho_t > 5 on (Algorithm 2 has
// > 4, the authors' code >= 5); the denominator is sqrt(v) + epsilon, its bias correction stands in the step size; the
// steps before are bias-corrected momentum.
#include "nn/optim/optimizer.h"

namespace cairn {

class RAdam : public Optimizer {
 public:
  // Weight decay: each step first scales the parameters by 1 - learning_rate * weight_decay.
  // Errors: as Optimizer; UsageError: a beta outside [0, 1), epsilon <= 0, weight_decay < 0, or one not finite.
  RAdam(std::vector<Variable> parameters, double learning_rate, const AdamOptions& options = {});

 private:
  void update() override;
  AdamOptions options_;
};

}  // namespace cairn
