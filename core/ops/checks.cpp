#include "core/ops/checks.h"

#include <cstdint>
#include <initializer_list>
#include <string>

namespace cairn {

int64_t Sizes::operator[](char letter) const {
  const int64_t size = sizes_[size_t(letter - 'A')];
  check(size != unknown, "no operand has an axis ", letter);
  return size;
}

// Sets the sizes of new letters. Returns false if the shape does not match.
bool Sizes::match(const char* pattern, const Shape& shape) {
  int axes = 0;
  for (const char* at = pattern; *at; ++at) axes += *at >= 'A' && (at == pattern || at[-1] != '*');
  int axis = 0;
  if (*pattern == '*') {
    axis = shape.rank() - axes;
    if (axis < 0) return false;
    const Shape leading(shape.begin(), shape.begin() + axis);
    const char letter = pattern[1];
    if (leading_ == letter && leading_axes_ != leading) return false;
    leading_ = letter, leading_axes_ = leading;
    int64_t& size = sizes_[size_t(letter - 'A')];
    if (size == unknown) size = leading.elements();
    if (size != leading.elements()) return false;
    pattern += 2;
  } else if (axes != shape.rank()) {
    return false;
  }
  for (; *pattern; ++pattern) {
    if (*pattern == ' ') continue;
    int64_t& size = sizes_[size_t(*pattern - 'A')];
    if (size == unknown) size = shape[axis];
    if (size != shape[axis++]) return false;
  }
  return true;
}

// The pattern, with numbers for the known sizes.
std::string Sizes::text(const char* pattern) const {
  std::string axes;
  const auto add = [&](const auto& axis) { append(axes, concat(axes.empty() ? "" : ", ", axis)); };
  for (; *pattern; ++pattern) {
    if (*pattern == ' ') continue;
    if (*pattern == '*') {
      ++pattern;
      if (leading_ != *pattern)
        add("...");
      else
        for (const int64_t size : leading_axes_) add(size);
    } else if (const int64_t size = sizes_[size_t(*pattern - 'A')]; size == unknown) {
      add(*pattern);
    } else {
      add(size);
    }
  }
  return concat('[', axes, ']');
}

Sizes expect(const char* operation, std::initializer_list<Operand> operands, Sizes known) {
  for (const Operand& operand : operands) {
    const Tensor& x = operand.tensor;
    const char* const name_ = operand.name;
    if (operand.optional && !x.defined()) continue;
    check(x.defined(), operation, ": ", name_, " was never given a value");
    if (operand.dtype) {
      check(x.dtype() == *operand.dtype, operation, ": expected ", name_, " to be ", name(*operand.dtype), ", got ",
            name(x.dtype()));
    } else if (!known.floating_) {
      check(is_floating(x.dtype()) || (operand.or_int32 && x.dtype() == DType::int32), operation, ": ", name_,
            " must be floating", operand.or_int32 ? " or int32" : "", ", got ", name(x.dtype()));
      known.floating_ = name_, known.dtype_ = x.dtype();
    } else {
      check(x.dtype() == known.dtype_, operation, ": ", name_, " is ", name(x.dtype()), ", ", known.floating_, " is ",
            name(known.dtype_));
    }
    if (!known.first_) known.first_ = name_, known.device_ = x.device();
    check(x.device() == known.device_, operation, ": ", name_, " is on ", name(x.device()), ", ", known.first_, " on ",
          name(known.device_));
    if (!operand.shape) continue;
    const Sizes before = known;
    if (!known.match(operand.shape, x.shape()))
      throw Error(
          concat(operation, ": expected ", name_, " of shape ", before.text(operand.shape), ", got ", x.shape()));
  }
  return known;
}

Shape expect_broadcast(const char* operation, const Tensor& a, const Tensor& b, bool or_int32) {
  const Operand first{"the first operand", a, "*A"}, second{"the second operand", b, "*B"};
  expect(operation, {or_int32 ? number(first) : first, second});
  return broadcast(a.shape(), b.shape(), operation);
}

void check_values(const char* operation, const char* name, const Tensor& tensor, int64_t lowest, int64_t highest) {
  if (!tensor.defined() || tensor.device() != Device::cpu) return;
  const int32_t* values = tensor.data<int32_t>();
  for (int64_t i = 0; i < tensor.elements(); ++i)
    check(values[i] >= lowest && values[i] <= highest, operation, ": ", name, "[", i, "] is ", values[i], ", expected ",
          lowest, " to ", highest);
}

Tensor empty_like(const Tensor& x) { return Tensor(x.shape(), x.dtype(), x.device()); }

Shape appended(Shape shape, int64_t size) {
  shape.push_back(size);
  return shape;
}

}  // namespace cairn
