#include "core/ops/checks.h"

#include <cstdint>
#include <initializer_list>

namespace cairn {

DType sums_of(const Tensor& x) { return x.dtype() == DType::bfloat16 ? DType::float32 : x.dtype(); }

void check_operands(const char* operation, std::initializer_list<NamedTensor> operands) {
  const NamedTensor& first = *operands.begin();
  for (const auto& [name_, tensor] : operands) {
    check(tensor.defined(), operation, ": ", name_, " was never given a value");
    check(is_floating(tensor.dtype()), operation, ": ", name_, " must be floating, got ", name(tensor.dtype()));
    check(tensor.dtype() == first.tensor.dtype(), operation, ": ", name_, " is ", name(tensor.dtype()), ", ",
          first.name, " is ", name(first.tensor.dtype()));
    check(tensor.device() == first.tensor.device(), operation, ": ", name_, " is on ", name(tensor.device()), ", ",
          first.name, " on ", name(first.tensor.device()));
  }
}

void check_shape(const char* operation, const char* argument, const Tensor& tensor, const Shape& expected) {
  check(tensor.shape() == expected, operation, ": expected ", argument, " of shape ", expected, ", got ",
        tensor.shape());
}

void check_tensor(const char* operation, const char* argument, const Tensor& tensor, DType dtype, Device device) {
  check(tensor.defined(), operation, ": ", argument, " was never given a value");
  check(tensor.dtype() == dtype, operation, ": expected ", argument, " to be ", name(dtype), ", got ",
        name(tensor.dtype()));
  check(tensor.device() == device, operation, ": ", argument, " is on ", name(tensor.device()), ", expected ",
        name(device));
}

void check_tensor(const char* operation, const char* argument, const Tensor& tensor, DType dtype, Device device,
                  const Shape& shape) {
  check_tensor(operation, argument, tensor, dtype, device);
  check_shape(operation, argument, tensor, shape);
}

void check_indices(const char* operation, const char* what, const Tensor& index, int64_t lowest, int64_t n) {
  if (index.device() != Device::cpu) return;
  const int32_t* values = index.data<int32_t>();
  for (int64_t i = 0; i < index.elements(); ++i)
    check(values[i] >= lowest && values[i] < n, operation, ": ", what, " ", values[i], " at position ", i,
          " is outside [", lowest, ", ", n, ")");
}

Tensor like(const Tensor& x) { return Tensor(x.shape(), x.dtype(), x.device()); }

Rows rows_of(const char* operation, const Tensor& x) {
  check(x.defined(), operation, ": x was never given a value");
  check(x.rank() > 0, operation, ": expected at least one axis, got a scalar");
  const int64_t cols = x.size(-1);
  return {cols ? x.elements() / cols : x.shape().without(-1).elements(), cols};
}

Rows filled_rows_of(const char* operation, const Tensor& x) {
  const Rows size = rows_of(operation, x);
  return {size.cols ? size.rows : 0, size.cols};
}

Shape appended(Shape shape, int64_t size) {
  shape.push_back(size);
  return shape;
}

}  // namespace cairn
