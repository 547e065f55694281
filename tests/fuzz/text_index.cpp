// Bytes are refused with a DataError of one short line, or they are an index in which a search finds passages in order.
#include "apps/text_search/index.h"

#include <memory>
#include <sstream>
#include <string>

#include "tests/fuzz/fuzz.h"

using namespace cairn;
using namespace cairn::text_search;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const WordPiece tokenizer({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "word"}, {}, "fuzz");
  try {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    const Index index = parse_index(TensorReader(std::make_unique<std::istringstream>(bytes), "fuzz"));
    if (index.records.empty()) return 0;
    const std::vector<Hit> hits = search(index, std::vector<float>(size_t(index.records[0].row.elements()), 1), 2);
    expect(!hits.empty() && hits.front().score >= hits.back().score, "hits out of order");
    for (const Hit& hit : hits) {
      const Excerpt excerpt = excerpt_of(*hit.record, "word", tokenizer);
      expect(hit.record->text.ends_with(excerpt.text), "an excerpt from elsewhere");
      one_line(excerpt.text, 20);
    }
  } catch (const DataError& error) {
    expect_short_line(error.what());
  }
  return 0;
}
