// A model's config.json is refused with a DataError, or its sizes are in range.
#include "nn/io/bert_folder.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  BertOptions o;
  try {
    o = parse_bert_config({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const DataError& error) {
    expect_short_line(error.what());
    return 0;
  }
  constexpr int64_t most = 1 << 20;
  for (const int64_t n : {o.vocabulary, o.positions, o.types, o.heads, o.head_size, o.features(), o.feed_forward})
    expect(n >= 1 && n <= most, "a size out of range");
  expect(o.layers >= 1 && o.layers <= 1024, "layers out of range");
  expect(o.epsilon >= 0 && o.epsilon <= 1, "an epsilon out of range");
  expect(o.activation == Unary::gelu || o.activation == Unary::relu, "an unknown activation");
  return 0;
}
