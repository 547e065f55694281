#pragma once
// The exceptions. A message names the operation, the argument, what it got and what it expected.
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/strict_math.h"

namespace cairn {

struct Error : std::runtime_error {
  using runtime_error::runtime_error;
};

// Bad usage or configuration: an option, a specification, a combination that makes no sense.
struct UsageError : Error {
  using Error::Error;
};
// Bad data: a file, a checkpoint, a tensor from outside.
struct DataError : Error {
  using Error::Error;
};
// The device does not exist, this build does not support it, or it is out of memory.
struct DeviceError : Error {
  using Error::Error;
};
struct OutOfMemory : DeviceError {
  using DeviceError::DeviceError;
};
// Training produced NaN or infinity.
struct DivergedError : Error {
  using Error::Error;
};

std::string digits_of(double value);  // up to six significant digits, as printf's %g, in any locale

// Appends a value to a text, the same in every locale: text, characters and paths as they are, bool as 0 or 1, whole
// numbers in full, others with up to six significant digits, error codes as their message. For another type, declare
// `void append(std::string& text, const Type& value)` beside it.
template <class T>
void append(std::string& text, const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    text += std::string_view(value);
  else if constexpr (std::is_same_v<T, char>)
    text += value;
  else if constexpr (std::integral<T>)
    text += std::to_string(value);
  else if constexpr (std::floating_point<T>)
    text += digits_of(value);
  else if constexpr (requires { value.message(); })
    text += value.message();
  else
    text += value.string();
}

// All arguments, one after another, by append().
template <class... Args>
std::string concat(const Args&... args) {
  std::string text;
  (append(text, args), ...);
  return text;
}

// Throws E if the condition is false. The message is only built then, so pass values that cost nothing until then: a
// path, not its string().
template <class E = Error, class... Args>
void check(bool condition, const Args&... message) {
  if (!condition) throw E(concat(message...));
}

}  // namespace cairn
