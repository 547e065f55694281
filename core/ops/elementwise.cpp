#include "core/kernels/elementwise.h"

#include "core/ops.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor compare(Compare op, const Tensor& a, const Tensor& b) {
  Tensor y(expect_broadcast(name(op), a, b, true), DType::boolean, a.device());
  const Strides strides = broadcast_strides(y.shape(), {a.shape(), b.shape()});
  CAIRN_RUN_NUMBERS(name(op), a, compare<T>(stream, op, strides, a.data<T>(), b.data<T>(), y.mutable_data<bool>()));
  return y;
}

Tensor arange(int64_t n, Device device) {
  Tensor y({n}, DType::int32, device);
  CAIRN_CALL("arange", y, arange(stream, n, y.mutable_data<int32_t>()));
  return y;
}

void accumulate(Tensor& y, const Tensor& x) {
  expect("accumulate", {{"y", y, "*R"}, {"x", x, "*R"}});
  const Strides strides = broadcast_strides(y.shape(), {y.shape(), x.shape()});
  CAIRN_RUN("accumulate", x, binary<T>(stream, Binary::add, strides, y.data<T>(), x.data<T>(), y.mutable_data<T>()));
}

}  // namespace cairn
