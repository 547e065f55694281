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

// A number's bits; infinity and NaN have all of `exponent` set.
template <class T>
struct Bits {
  using Word = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  static constexpr Word exponent = sizeof(T) == 2 ? 0x7f80 : sizeof(T) == 4 ? 0x7f800000 : 0x7ff0000000000000;
  static Word is_finite(T x) { return (std::bit_cast<Word>(x) & exponent) != exponent; }
};

// The index of the first element that is not finite, looked for when it is written.
template <class T>
struct FirstNotFinite {
  const T* data;
  int64_t size;
};
template <class T>
void append(std::string& text, const FirstNotFinite<T>& first) {
  text += concat(std::find_if_not(first.data, first.data + first.size, Bits<T>::is_finite) - first.data);
}

// Error (E): an element of a floating tensor on the CPU is not finite; the message begins with `where` and the tensor's
// name, and ends with `advice`.
template <class E>
void check_finite(const Tensor& tensor, std::string_view name, const std::string& where, const char* advice = "") {
  if (!is_floating(tensor.dtype())) return;
  visit_floating(tensor.dtype(), "check_finite", [&]<class T>(T) {
    const T* data = tensor.data<T>();
    const int64_t n = tensor.elements();
    // No early exit, and flags of the numbers' width, so that the compiler can vectorize the loop.
    typename Bits<T>::Word all = 1;
    for (int64_t i = 0; i < n; ++i) all &= Bits<T>::is_finite(data[i]);
    check<E>(all == 1, where, ": tensor ", in_quotes(name), ": element ", FirstNotFinite<T>{data, n}, " of ", n,
             " is not finite", advice);
  });
}

}  // namespace cairn
