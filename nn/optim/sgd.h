#pragma once
// Stochastic gradient descent with momentum: m = momentum m + gradient + weight_decay x; x -= learning_rate m. The same
// as PyTorch's torch.optim.SGD without dampening.
#include "nn/optim/optimizer.h"

namespace cairn {

class Sgd : public Optimizer {
 public:
  // Momentum 0 keeps no moments. Weight decay is added to the gradient (and so to m) after clipping.
  // Errors: as Optimizer; UsageError: momentum outside [0, 1), weight_decay < 0, or one not finite.
  Sgd(std::vector<Variable> parameters, double learning_rate, const SgdOptions& options = {});

 private:
  void update(const StepSettings& settings) override;
  SgdOptions options_;
};

}  // namespace cairn
