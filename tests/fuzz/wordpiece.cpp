// The bytes are: options (the first byte), a vocabulary with a token on each line, an empty line, and a text. The
// vocabulary is refused with a DataError of one short line, or all tokens of the text are in it.
#include "apps/text_search/wordpiece.h"

#include <algorithm>

#include "nn/io/json.h"
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
    for (const int32_t token : tokens) expect(token >= 0 && token < tokenizer.size(), "no such token");
    expect(tokenizer.encode(rest).size() == tokens.size() + 2, "another number of tokens");
    expect(tokenizer.tokenize(as_utf8(std::string(rest))) == tokens, "other tokens, with what is no UTF-8 replaced");
  } catch (const DataError& error) {
    expect_short_line(error.what());
  }
  return 0;
}
