#include "autograd/ops.h"

namespace cairn {

// y = x / |x|;  dx = (dy - y (y . dy)) / |x|
Variable l2_normalize(const Variable& x) {
  return record("l2_normalize", l2_normalize(x.value()), {x},
                [x = SavedTensor(x.value())](const Tensor& g) -> Gradients { return {l2_normalize_backward(x(), g)}; });
}

}  // namespace cairn
