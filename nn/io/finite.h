#pragma once
// Weights that are read or written are finite.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/dispatch.h"
#include "core/tensor.h"
#include "nn/io/json.h"

namespace cairn {

// Infinity and NaN have all bits of the exponent set. Compared as whole numbers, many at a time.
template <class T>
auto is_finite(T x) {
  using Word = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  constexpr Word exponent = sizeof(T) == 2 ? 0x7f80 : sizeof(T) == 4 ? 0x7f800000 : 0x7ff0000000000000;
  return Word((std::bit_cast<Word>(x) & exponent) != exponent);
}

// Error (E): an element of a floating tensor on the CPU is not finite; the message begins with `where` and the tensor's
// name, and ends with `advice`.
template <class E>
void check_finite(const Tensor& tensor, std::string_view name, const std::string& where, const char* advice = "") {
  if (!is_floating(tensor.dtype())) return;
  visit_floating(tensor.dtype(), "check_finite", [&]<class T>(T) {
    const T* data = tensor.data<T>();
    const int64_t n = tensor.elements();
    auto all = is_finite(T(0));
    for (int64_t i = 0; i < n; ++i) all &= is_finite(data[i]);  // no early exit, so that the loop is vectorized
    if (all) return;
    const auto first = std::find_if_not(data, data + n, is_finite<T>) - data;
    throw E(concat(where, ": tensor ", in_quotes(name), ": element ", first, " of ", n, " is not finite", advice));
  });
}

}  // namespace cairn
