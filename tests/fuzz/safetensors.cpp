// Bytes are refused with a DataError of one short line, or they are tensors that, written again, give the same bytes.
#include "nn/io/safetensors.h"

#include "tests/fuzz/fuzz.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  TensorFile file;
  try {
    file = parse_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const DataError& error) {
    expect_short_line(error.what());
    return 0;
  }
  size_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors) {
    bytes += tensor.bytes();
    expect(&file.at(name) == &tensor, "a name twice");
  }
  expect(bytes <= size, "more numbers than bytes");
  const std::string written = safetensors_bytes(file);
  expect(safetensors_bytes(parse_safetensors(written, "again")) == written, "other bytes the second time");
  return 0;
}
