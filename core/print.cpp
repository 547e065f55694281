// Tensors as text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <type_traits>

#include "core/dispatch.h"
#include "core/tensor.h"

namespace cairn {
namespace {

constexpr int64_t many_elements = 1000;  // larger tensors are shortened
constexpr int64_t at_each_end = 3;       // elements of an axis that a shortened tensor shows
constexpr int most_decimals = 4;
constexpr size_t line_width = 80;

// The format of all floating elements of a tensor.
struct Format {
  std::chars_format kind = std::chars_format::fixed;
  int decimals = most_decimals;
};

std::string digits_of(double value, Format format) {
  char digits[64];
  char* const end = std::to_chars(digits, digits + sizeof digits, value, format.kind, format.decimals).ptr;
  return std::string(digits, end);
}

// As NumPy does: with a point, and blanks in place of zeros at the end.
std::string written(double value, Format format) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = digits_of(value, format);
  const bool has_exponent = format.kind == std::chars_format::scientific;
  if (format.decimals == 0) text.insert(has_exponent ? text.find('e') : text.size(), ".");
  if (has_exponent) return text;
  const size_t length = text.find_last_not_of('0') + 1;
  return text.substr(0, length) + std::string(text.size() - length, ' ');
}

// An exponent if four decimals would hide a number or a number would be long; as many decimals as the elements need.
Format format_of(const std::vector<double>& elements) {
  double largest = 0, smallest = INFINITY;
  for (const double element : elements)
    if (const double size = std::abs(element); std::isfinite(size) && size > 0) {
      largest = std::max(largest, size);
      smallest = std::min(smallest, size);
    }
  Format format;
  if (largest >= 1e6 || smallest < 1e-4) format.kind = std::chars_format::scientific;
  int decimals = 0;
  for (const double element : elements) {
    if (!std::isfinite(element)) continue;
    const std::string text = digits_of(element, format);
    const std::string number = text.substr(0, text.find('e'));
    const size_t zeros = number.size() - 1 - number.find_last_not_of('0');
    decimals = std::max(decimals, most_decimals - int(zeros));
  }
  format.decimals = decimals;
  return format;
}

// The elements at these positions, padded to one width.
std::vector<std::string> texts_of(const Tensor& host, const std::vector<int64_t>& positions) {
  std::vector<std::string> texts;
  visit(host.dtype(), [&]<class T>(T) {
    const T* data = host.data<T>();
    if constexpr (std::is_same_v<T, bool>) {
      for (const int64_t i : positions) texts.emplace_back(data[i] ? "true" : "false");
    } else if constexpr (std::is_integral_v<T>) {
      for (const int64_t i : positions) texts.push_back(concat(data[i]));
    } else {
      std::vector<double> elements;
      for (const int64_t i : positions) elements.push_back(double(Accum<T>(data[i])));
      const Format format = format_of(elements);
      for (const double element : elements) texts.push_back(written(element, format));
    }
  });
  size_t width = 0;
  for (const std::string& text : texts) width = std::max(width, text.size());
  for (std::string& text : texts) text.insert(0, width - text.size(), ' ');
  return texts;
}

// The elements of this axis and the axes inside it, in brackets, from element `first` on; element(i) is the text of
// element i.
template <class F>
std::string bracketed(const Shape& shape, int axis, int64_t first, F&& element) {
  if (axis == shape.rank()) return element(first);
  const bool shortened = shape.elements() > many_elements && shape[axis] > 2 * at_each_end;
  const int inner_axes = shape.rank() - axis - 1;
  const std::string line = '\n' + std::string(size_t(axis) + 1, ' ');
  // An axis outside of matrices puts empty lines between its elements: one more for each axis further out.
  const std::string separator = inner_axes == 0 ? " " : std::string(size_t(inner_axes) - 1, '\n') + line;
  const int64_t step = shape[axis] > 0 ? Shape(shape.begin() + axis + 1, shape.end()).elements() : 0;
  std::string text = "[";
  size_t line_begin = 0;
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (shortened && i == at_each_end) {
      text += separator + "...";
      i = shape[axis] - at_each_end;
    }
    const std::string next = bracketed(shape, axis + 1, first + i * step, element);
    const size_t width = size_t(axis) + text.size() - line_begin + 1 + next.size() + 1;
    if (inner_axes == 0 && i > 0 && width > line_width) {
      line_begin = text.size();
      text += line;
    } else if (i > 0) {
      text += separator;
    }
    text += next;
  }
  return text + ']';
}

}  // namespace

std::string to_string(const Tensor& x, std::string_view more) {
  if (!x.defined()) return "(no tensor)";
  const Tensor host = x.to(Device::cpu);
  std::vector<int64_t> positions;
  bracketed(x.shape(), 0, 0, [&](int64_t i) {
    positions.push_back(i);
    return std::string();
  });
  const std::vector<std::string> texts = texts_of(host, positions);
  auto text = texts.begin();
  return concat(bracketed(x.shape(), 0, 0, [&](int64_t) { return *text++; }), " (", name(x.dtype()), ' ', x.shape(),
                ", ", name(x.device()), more, ')');
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace cairn
