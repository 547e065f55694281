// Tensors as text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ostream>
#include <type_traits>

#include "core/dispatch.h"
#include "core/tensor.h"

namespace cairn {
namespace {

constexpr int64_t many_elements = 1000;  // larger tensors are shortened
constexpr int64_t at_each_end = 3;       // elements of an axis that a shortened tensor shows
constexpr size_t most_decimals = 4;
constexpr size_t line_width = 80;

// Where the exponent of a number begins; without one, its end.
size_t end_of_mantissa(const std::string& text) { return std::min(text.find('e'), text.size()); }

// As NumPy does: with a point, as many decimals as the elements need, and blanks in place of zeros at the end. With an
// exponent if four decimals would hide a number or a number would be long.
std::vector<std::string> written(const std::vector<double>& elements) {
  double largest = 0, smallest = INFINITY;
  for (const double element : elements)
    if (const double size = std::abs(element); std::isfinite(size) && size > 0) {
      largest = std::max(largest, size);
      smallest = std::min(smallest, size);
    }
  const bool exponent = largest >= 1e6 || smallest < 1e-4;
  const auto kind = exponent ? std::chars_format::scientific : std::chars_format::fixed;
  std::vector<std::string> texts;
  size_t unneeded = most_decimals;  // zeros at the end of every number
  for (const double element : elements) {
    char digits[64];
    const std::string text(digits, std::to_chars(digits, std::end(digits), element, kind, int(most_decimals)).ptr);
    texts.push_back(std::isnan(element) ? "nan" : text);
    const size_t end = end_of_mantissa(text);
    if (std::isfinite(element)) unneeded = std::min(unneeded, end - 1 - text.find_last_not_of('0', end - 1));
  }
  for (std::string& text : texts) {
    if (text.find('.') == std::string::npos) continue;  // not finite
    text.erase(end_of_mantissa(text) - unneeded, unneeded);
    if (!exponent) std::fill(text.begin() + int64_t(text.find_last_not_of('0')) + 1, text.end(), ' ');
  }
  return texts;
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
      texts = written(elements);
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
