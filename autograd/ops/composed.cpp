// Functions that are composed of others.
#include "autograd/ops.h"

namespace cairn {

// f(x); bfloat16 is computed in float32, because intermediate results need more digits.
template <class F>
static Variable in_float32(const Variable& x, F f) {
  return x.dtype() == DType::bfloat16 ? cast(f(cast(x, DType::float32)), DType::bfloat16) : f(x);
}

Variable log_softmax(const Variable& x) {
  return in_float32(x, [](const Variable& rows) {
    const Variable shifted = rows - max(rows.detach(), {-1}, true);
    return shifted - log(sum(exp(shifted), {-1}, true));
  });
}

// Divides by the largest element first, so that no square overflows or underflows. It needs no gradient, because the
// result does not depend on the length of x.
Variable l2_normalize(const Variable& x) {
  if (x.elements() == 0) return x;
  return in_float32(x, [](const Variable& rows) {
    const Variable scaled = divide_or_zero(rows, max(abs(rows.detach()), {-1}, true));
    return scaled * rsqrt_or_zero(sum(square(scaled), {-1}, true));
  });
}

Variable mean_squared_error(const Variable& x, const Variable& target) { return mean(square(x - target)); }

}  // namespace cairn
