#include "core/tensor.h"

#include <cstring>

#include "core/dispatch.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/memory.h"

namespace cairn {

Tensor::Tensor(Shape shape, DType dtype, Device device)
    : elements_(shape.elements()), shape_(shape), dtype_(dtype), device_(device) {
  size_t bytes = 0;
  check(!__builtin_mul_overflow(size_t(elements_), size_of(dtype), &bytes), "tensor: too many bytes in ", shape);
  storage_ = std::make_shared<Storage>(bytes, device);
}

Tensor Tensor::full(Shape shape, double value, DType dtype, Device device) {
  Tensor result(shape, dtype, device);
  if (device == Device::cuda)
    CAIRN_ON_CUDA("", gpu::fill(current_stream(device), result.elements(), value, dtype, result.mutable_raw()));
  else
    cpu::fill({}, result.elements(), value, dtype, result.mutable_raw());
  return result;
}

const void* Tensor::raw() const {
  check(defined(), "tensor: this tensor was never given a value");
  return static_cast<const char*>(storage_->data()) + offset_ * int64_t(size_of(dtype_));
}

void* Tensor::mutable_raw() {
  check(defined(), "tensor: this tensor was never given a value");
  storage_->changed();
  return static_cast<char*>(storage_->data()) + offset_ * int64_t(size_of(dtype_));
}

void Tensor::expect_dtype(DType dtype) const {
  check(dtype_ == dtype, "tensor: expected ", name(dtype), ", got ", name(dtype_), " of shape ", shape_);
}

Tensor Tensor::reshape(const Shape& shape) const {
  check(shape.elements() == elements_, "reshape: ", shape_, " has ", elements_, " elements, ", shape, " has ",
        shape.elements());
  Tensor result = *this;
  result.shape_ = shape;
  return result;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> sizes) const {
  int64_t rest = elements_;
  for (const int64_t size : sizes)
    if (size > 0) rest /= size;
  Shape shape;
  bool one_given = false;
  for (const int64_t size : sizes) {
    check(size != -1 || !one_given, "reshape: two sizes of -1");
    one_given = one_given || size == -1;
    shape.push_back(size == -1 ? rest : size);
  }
  return reshape(shape);
}

Tensor Tensor::slice(int64_t begin, int64_t end) const {
  check(rank() > 0, "slice: a scalar has no rows");
  check(0 <= begin && begin <= end && end <= size(0), "slice: rows ", begin, " to ", end, " of ", shape_);
  Tensor result = *this;
  result.shape_ = shape_.with(0, end - begin);
  result.elements_ = result.shape_.elements();
  if (size(0) > 0) result.offset_ += elements_ / size(0) * begin;
  return result;
}

void Tensor::copy_from(const Tensor& source) {
  check(source.shape_ == shape_ && source.dtype_ == dtype_, "copy_from: expected ", name(dtype_), " of shape ", shape_,
        ", got ", name(source.dtype_), " of shape ", source.shape_);
  const void* from = source.raw();
  void* to = mutable_raw();
  if (bytes() == 0) return;
  if (device_ == Device::cpu && source.device_ == Device::cpu)
    std::memmove(to, from, bytes());
  else
    CAIRN_ON_CUDA("", gpu::copy(current_stream(Device::cuda), to, device_, from, source.device_, bytes()));
}

Tensor Tensor::clone() const {
  Tensor result(shape_, dtype_, device_);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor result(shape_, dtype_, device);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::cast(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor result(shape_, dtype, device_);
  if (device_ == Device::cuda)
    CAIRN_ON_CUDA("cast", gpu::cast(current_stream(device_), elements_, dtype_, raw(), dtype, result.mutable_raw()));
  else
    cpu::cast({}, elements_, dtype_, raw(), dtype, result.mutable_raw());
  return result;
}

int64_t Tensor::position_of(std::initializer_list<int64_t> index) const {
  check(int64_t(index.size()) == rank(), "at: ", index.size(), " indices for the shape ", shape_);
  int64_t position = 0;
  int axis = 0;
  for (const int64_t i : index) {
    check(i >= 0 && i < size(axis), "at: index ", i, " of axis ", axis, " is out of range for ", shape_);
    position = position * size(axis++) + i;
  }
  return position;
}

double Tensor::item() const {
  check(elements_ == 1, "item: expected one element, got a tensor of shape ", shape_);
  const Tensor host = to(Device::cpu);
  return visit(dtype_, [&]<class T>(T) { return double(Accum<T>(*host.data<T>())); });
}

}  // namespace cairn
