// A text is refused with a DataError of one short line, or it is JSON that, written and read again, gives the same
// value.
#include "nn/io/json.h"

#include <cstddef>

#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Json value;
  try {
    value = parse_json(text, "fuzz");
  } catch (const DataError& error) {
    expect_short_line(error.what());
    return 0;
  }
  expect(parse_json(value.dump(), "again") == value, "another value the second time");
  return 0;
}
