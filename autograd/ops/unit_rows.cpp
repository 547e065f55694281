#include "autograd/ops.h"

namespace cairn {

// y = x / |x|;  dx = (dy - y (y . dy)) / |x|
Variable unit_rows(const Variable& x) {
  return record("unit_rows", unit_rows(x.value()), {x},
                [x = Saved(x.value())](const Tensor& g) -> Gradients { return {unit_rows_backward(x(), g)}; });
}

}  // namespace cairn
