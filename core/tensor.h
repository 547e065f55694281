#pragma once
// Numbers in memory: a shape and an element type over a storage or a part of it. Row-major, contiguous, no gradients. A
// copy of a Tensor shares its storage; clone() copies the numbers.
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "core/shape.h"
#include "core/storage.h"

namespace cairn {

template <class T>
class Nested;

class Tensor {
 public:
  Tensor() = default;  // no tensor: defined() is false
  // Uninitialized numbers.
  explicit Tensor(Shape shape, DType dtype = DType::float32, Device device = Device::cpu);
  static Tensor full(Shape shape, double value, DType dtype = DType::float32, Device device = Device::cpu);
  static Tensor zeros(Shape shape, DType dtype = DType::float32, Device device = Device::cpu) {
    return full(shape, 0, dtype, device);
  }
  // A copy of `values` on the CPU. Error: the shape has another number of elements.
  template <class T>
  static Tensor from(const std::vector<T>& values, Shape shape);
  // Numbers in nested braces, on the CPU: Tensor::of<float>({{1, 2, 3}, {4, 5, 6}}) has the shape [2, 3]. Error: the
  // rows of an axis differ in shape.
  template <class T>
  static Tensor of(const Nested<T>& rows) {
    return from(rows.values, rows.shape);
  }

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t size(int axis) const { return shape_[axis]; }
  int rank() const { return shape_.rank(); }
  int64_t elements() const { return elements_; }
  size_t bytes() const { return size_t(elements_) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  // The first element, on the tensor's device. Error: T is not the tensor's element type.
  template <class T>
  const T* data() const {
    expect_dtype(dtype_of<T>);
    return static_cast<const T*>(raw());
  }
  // The same for writing. It counts as a change of the storage (see Storage::version).
  template <class T>
  T* mutable_data() {
    expect_dtype(dtype_of<T>);
    return static_cast<T*>(mutable_raw());
  }
  const void* raw() const;
  void* mutable_raw();
  uint64_t version() const { return storage_ ? storage_->version() : 0; }
  // True if no other tensor shares the storage.
  bool unique() const { return storage_.use_count() == 1; }

  // The same numbers in another shape. Error: another number of elements.
  Tensor reshape(const Shape& shape) const;
  // One of the sizes may be -1: the size that is left.
  Tensor reshape(std::initializer_list<int64_t> sizes) const;
  // Rows [begin, end) of the first axis, sharing the storage. Error: out of range.
  Tensor slice(int64_t begin, int64_t end) const;

  Tensor clone() const;
  Tensor to(Device device) const;  // itself if it is there already
  // Itself if it has this type already. A floating number beyond an integer type becomes the type's nearest number, NaN
  // becomes 0. An integer beyond it keeps its low bits.
  Tensor cast(DType dtype) const;
  // Copies the numbers of `source` (same shape and dtype, any device) to this tensor's memory.
  void copy_from(const Tensor& source);

  // The one element of a tensor, converted. Waits for the device. Error: not exactly one element.
  double item() const;
  // The element with these indices, one per axis. Waits for the device. Errors: T is not the element type; there are
  // too many or too few indices; an index is out of range.
  template <class T>
  T at(std::initializer_list<int64_t> index) const {
    expect_dtype(dtype_of<T>);
    const int64_t position = position_of(index);
    return reshape({-1}).slice(position, position + 1).template to_vector<T>()[0];
  }
  // All elements, on the host. Waits for the device. Error: T is not the element type.
  template <class T>
  std::vector<T> to_vector() const;

 private:
  void expect_dtype(DType dtype) const;
  // The index of an element among all elements, in row-major order.
  int64_t position_of(std::initializer_list<int64_t> index) const;

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // in elements
  int64_t elements_ = 0;
  Shape shape_;
  DType dtype_ = DType::float32;
  Device device_ = Device::cpu;
};

// The elements as NumPy prints them, then element type, shape, device and `more`: "[1.  2.5] (float32 [2], cpu)". A
// tensor of more than 1000 elements shows the first and last three along each axis. Waits for the device.
std::string to_string(const Tensor& x, std::string_view more = "");
std::ostream& operator<<(std::ostream& out, const Tensor& x);

// The argument of Tensor::of: a number, or rows of one shape in braces.
template <class T>
class Nested {
 public:
  Nested(T value) : values{value} {}
  Nested(std::initializer_list<Nested> rows) {
    shape.push_back(int64_t(rows.size()));
    for (const Nested& row : rows) {
      const Shape &expected = rows.begin()->shape, &got = row.shape;
      check(got == expected, "of: a row of shape ", got, " beside one of shape ", expected);
      values.insert(values.end(), row.values.begin(), row.values.end());
    }
    if (rows.size() > 0)
      for (const int64_t size : rows.begin()->shape) shape.push_back(size);
  }

  Shape shape;
  std::vector<T> values;
};

template <class T>
Tensor Tensor::from(const std::vector<T>& values, Shape shape) {
  Tensor result(shape, dtype_of<T>);
  check(int64_t(values.size()) == shape.elements(), "from: ", values.size(), " values for the shape ", shape);
  T* out = result.mutable_data<T>();
  for (const auto& value : values) *out++ = value;
  return result;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor host = to(Device::cpu);
  const T* first = host.data<T>();
  return elements_ ? std::vector<T>(first, first + elements_) : std::vector<T>();
}

}  // namespace cairn
