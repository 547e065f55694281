#include "core/kernels/argmax.h"

#include <algorithm>
#include <cstdint>

#include "core/dispatch.h"
#include "core/ops.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor argmax(const Tensor& x, const Tensor& lengths) {
  const Sizes s = expect("argmax", {{"x", x, "*R C"}, optional(of_type(DType::int32, "lengths", lengths, "B"))});
  RowsOfPositions size{s['R'], s['C']};
  check(size.cols > 0 && size.cols <= INT32_MAX, "argmax: ", size.cols, " columns in ", x.shape(), ", expected 1 to ",
        INT32_MAX);
  if (lengths.defined()) {
    check(x.rank() >= 3 && x.size(0) == s['B'], "argmax: expected x of shape [B, ..., N, C] for lengths ",
          lengths.shape(), ", got ", x.shape());
    size.positions = x.size(-2);
    size.batch = size.rows / std::max<int64_t>(1, s['B']);
    check_values("argmax", "lengths", lengths, 0, size.positions);
  }
  Tensor columns(x.shape().without(-1), DType::int32, x.device());
  CAIRN_RUN("argmax", x,
            argmax<T>(stream, size, x.data<T>(), lengths.defined() ? lengths.data<int32_t>() : nullptr,
                      columns.mutable_data<int32_t>()));
  return columns;
}

}  // namespace cairn
