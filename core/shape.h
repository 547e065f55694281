#pragma once
// Sizes of a tensor's axes, outermost first. Rank 0 is a scalar.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace cairn {

inline constexpr int max_rank = 6;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  template <class Iterator>
  Shape(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  int rank() const { return rank_; }
  // Size of one axis; negative axes count from the end. Error: axis out of range.
  int64_t operator[](int axis) const { return sizes_[size_t(normalize(axis))]; }
  // Number of elements. 1 for a scalar.
  int64_t elements() const;
  // `axis` counted from the front. Error: out of range.
  int normalize(int axis) const;

  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  void push_back(int64_t size);
  // This shape with the size of one axis replaced.
  Shape with(int axis, int64_t size) const;
  // This shape without one axis.
  Shape without(int axis) const;

  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

void append(std::string& text, const Shape& shape);  // [2, 3]
std::string to_string(const Shape& shape);

// The shape that `a` and `b` broadcast to: axes aligned at the end, sizes equal or 1. Error names the operation.
Shape broadcast(const Shape& a, const Shape& b, const char* operation);

// The axes of a loop over elements, outermost first, and the strides of up to three tensors along them, in elements.
// Axes of one element are left out. Neighboring axes become one if that is the same for every tensor.
struct Strides {
  static constexpr int max_tensors = 3;
  using Steps = std::array<int64_t, max_tensors>;

  int rank = 0;
  int64_t sizes[max_rank] = {};
  int64_t steps[max_tensors][max_rank] = {};

  // Adds an axis inside the others.
  void push_back(int64_t size, const Steps& along);
};
// The strides of tensors that broadcast to `result`: 0 along stretched axes.
Strides broadcast_strides(const Shape& result, std::initializer_list<Shape> tensors);

}  // namespace cairn
