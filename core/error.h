#pragma once
// One family of exceptions. A message names the operation, the argument, what was got and what was expected. Each kind
// stands for the exit code that every app ends with.
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
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

// All arguments written one after another.
template <class... Args>
std::string concat(const Args&... args) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // a stream would swallow std::bad_alloc, and half of the text with it
  (out << ... << args);
  return out.str();
}

template <class E = Error, class... Args>
void check(bool condition, const Args&... message) {
  if (!condition) throw E(concat(message...));
}

// The candidate nearest to `word` in edit distance, if it is near enough to be what was meant; else empty.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// " (did you mean 'x'?)" or nothing: the end of a message about an unknown name.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace cairn
