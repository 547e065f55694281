// A specification is refused with a UsageError, or it gives a variant whose name gives the same variant again.
#include "nn/attention/attention.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string spec(reinterpret_cast<const char*>(data), size);
  try {
    expect(make_attention(spec)->spec() == spec, "another specification");
  } catch (const UsageError&) {
  }
  return 0;
}
