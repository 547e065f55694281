#include "autograd/ops.h"

namespace cairn {

// dlogits = (softmax(logits) - one-hot(target)) / number of rows with a target
Variable cross_entropy(const Variable& logits, const Tensor& targets) {
  const CrossEntropy saved = cross_entropy(logits.value(), targets);
  return record("cross_entropy", saved.loss, {logits},
                [logits = SavedTensor(logits.value()), targets = SavedTensor(targets), saved](
                    const Tensor& g) -> Gradients { return {cross_entropy_backward(logits(), targets(), saved, g)}; });
}

}  // namespace cairn
