#include "autograd/ops.h"

namespace cairn {

// dlogits = (softmax(logits) - one-hot(target)) / number of rows that count
Variable cross_entropy(const Variable& logits, const Tensor& targets) {
  const CrossEntropy kept = cross_entropy(logits.value(), targets);
  return record("cross_entropy", kept.loss, {logits},
                [logits = Saved(logits.value()), targets = Saved(targets), kept](const Tensor& g) -> Gradients {
                  return {cross_entropy_backward(logits(), targets(), kept, g)};
                });
}

}  // namespace cairn
