#pragma once
// One family of exceptions. A message names the operation, the argument, what was got and what was expected. Each kind
// stands for the exit code that every app ends with.
#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cairn {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int exit_code = 1) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Bad usage or configuration: an option, a specification, a combination that makes no sense.
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(message, 2) {}
};
// Bad data: a file, a checkpoint, a tensor from outside.
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(message, 3) {}
};
// No such device, not built for it, or out of memory.
struct DeviceError : Error {
  explicit DeviceError(const std::string& message) : Error(message, 4) {}
};
struct OutOfMemory : DeviceError {
  using DeviceError::DeviceError;
};
// Training produced NaN or infinity.
struct DivergedError : Error {
  explicit DivergedError(const std::string& message) : Error(message, 5) {}
};

namespace detail {
void append_integer(std::string& text, int64_t value);
void append_integer(std::string& text, uint64_t value);
void append_real(std::string& text, double value);
}  // namespace detail

// Writes a value behind a text, the same in every locale: text and characters as they are, bool as 0 or 1, whole
// numbers in full, others with at most six significant digits (as printf's %g), paths, error codes as their message.
// For another type, declare beside it `void append(std::string& text, const Type& value)`.
template <class T>
void append(std::string& text, const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    text += std::string_view(value);
  else if constexpr (std::is_same_v<T, char>)
    text += value;
  else if constexpr (std::signed_integral<T>)
    detail::append_integer(text, int64_t(value));
  else if constexpr (std::unsigned_integral<T>)
    detail::append_integer(text, uint64_t(value));
  else if constexpr (std::floating_point<T>)
    detail::append_real(text, value);
  else if constexpr (requires { value.message(); })
    text += value.message();
  else
    text += value.string();
}

// All arguments written one after another, by append().
template <class... Args>
std::string concat(const Args&... args) {
  std::string text;
  (append(text, args), ...);
  return text;
}

// The message is only written when the condition is false. So arguments should be values that cost nothing until then:
// a path, not its string().
template <class E = Error, class... Args>
void check(bool condition, const Args&... message) {
  if (!condition) throw E(concat(message...));
}

// The candidate nearest to `word` in edit distance, if it is near enough to be what was meant; else empty.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// " (did you mean 'x'?)" or nothing: the end of a message about an unknown name. Looked up when it is written.
struct DidYouMean {
  std::string_view word;
  const std::vector<std::string>& candidates;
};
inline DidYouMean did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  return {word, candidates};
}
void append(std::string& text, const DidYouMean& suggestion);

}  // namespace cairn
