// Bytes are a vocabulary, a token a line, an empty line and a text, the first byte its options. The vocabulary is
// refused with a DataError of one short line, or the text's tokens are ones of it, in their order, and the same
// wherever it is cut.
#include "apps/text_search/wordpiece.h"

#include <algorithm>

#include "tests/fuzz/fuzz.h"

using namespace cairn;
using namespace cairn::text_search;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const unsigned options = rest.empty() ? 0u : unsigned(rest[0]);
  rest.remove_prefix(std::min<size_t>(rest.size(), 1));
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  vocabulary.resize(options & 8 ? 0 : 4);
  for (bool more = true; more && !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    more = end > 0;
    if (more) vocabulary.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  try {
    const WordPiece tokenizer(vocabulary, {(options & 1) == 0, (options & 2) == 0, (options & 4) == 0}, "fuzz");
    const auto tokens = tokenizer.tokenize(rest);
    size_t begin = 0, end = 0;
    for (const auto& token : tokens) {
      expect(token.id >= 0 && token.id < tokenizer.size(), "no such token");
      expect(token.begin < token.end && token.end <= rest.size(), "beyond the text");
      expect(token.begin >= begin && token.end >= end, "not in order");
      begin = token.begin, end = token.end;
    }
    const auto ids = tokenizer.encode(rest);
    expect(ids.size() == tokens.size() + 2, "another number of tokens");
    std::vector<WordPiece::Token> again;
    WordPiece::Stream stream(tokenizer);
    for (size_t at = 0; at < rest.size(); at += 1 + options / 16) stream.add(rest.substr(at, 1 + options / 16), again);
    stream.end(again);
    expect(
        std::equal(again.begin(), again.end(), tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.id == b.id && a.begin == b.begin && a.end == b.end; }),
        "other tokens, cut elsewhere");
  } catch (const DataError& error) {
    expect_short_line(error.what());
  }
  return 0;
}
