#pragma once
// Adam (Kingma & Ba, ICLR 2015) with decoupled weight decay (Loshchilov & Hutter, ICLR 2019). The same as PyTorch's
// torch.optim.AdamW.
#include "nn/optim/optimizer.h"

namespace cairn {

class Adam : public Optimizer {
 public:
  // Weight decay: each step first scales the parameters by 1 - learning_rate * weight_decay.
  // Errors: as Optimizer; UsageError: a beta outside [0, 1), epsilon <= 0, weight_decay < 0, or one not finite.
  Adam(std::vector<Variable> parameters, double learning_rate, const AdamOptions& options = {});

 private:
  void update() override;
  AdamOptions options_;
};

}  // namespace cairn
