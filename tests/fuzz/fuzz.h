#pragma once
// What the fuzz targets share. Each file here is a program: libFuzzer calls it with bytes of its own making, and what
// the sanitizers or the target's own expectations find ends it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace cairn {

inline void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

// Is that a message for a terminal: one line, not long, printable?
inline void expect_short_line(std::string_view message) {
  expect(message.size() < 2000, "a message of more than 2000 bytes");
  for (const char c : message) expect(c >= ' ' && c <= '~', "a message that is not one printable line");
}

}  // namespace cairn
