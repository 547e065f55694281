#include "autograd/ops.h"

namespace cairn {

// dx = y (dy - sum over the row of y dy)
Variable softmax(const Variable& x) {
  const Tensor y = softmax(x.value());
  return record("softmax", y, {x},
                [y = SavedTensor(y)](const Tensor& g) -> Gradients { return {softmax_backward(y(), g)}; });
}

}  // namespace cairn
