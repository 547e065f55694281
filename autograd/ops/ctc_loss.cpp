#include "autograd/ops.h"

namespace cairn {

// dlogits_tk = dloss (softmax(logits)_tk - the share of alignments that emit label k at frame t)
Variable ctc_loss(const Variable& logits, const Tensor& targets, const Tensor& frames, const Tensor& target_lengths,
                  int blank) {
  const CtcLoss saved = ctc_loss(logits.value(), targets, frames, target_lengths, blank);
  return record("ctc_loss", saved.loss, {logits},
                [logits = SavedTensor(logits.value()), targets = SavedTensor(targets), frames = SavedTensor(frames),
                 lengths = SavedTensor(target_lengths), blank, saved](const Tensor& g) -> Gradients {
                  return {ctc_loss_backward(logits(), targets(), frames(), lengths(), blank, saved, g)};
                });
}

}  // namespace cairn
