// The first byte tells where the bytes behind it are cut into passages.jsonl and embeddings.safetensors. Reading them
// as an index, finished or not, ends with a DataError of one short line, or with records that are in order and the same
// when they are written again, and a search finds them.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "apps/text_search/index.h"
#include "apps/text_search/search.h"
#include "apps/text_search/walk.h"
#include "nn/io/hash.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;
using namespace cairn::text_search;

namespace {

template <class F>
void read_or_refuse(F&& read) {
  try {
    read();
  } catch (const DataError& error) {
    expect_short_line(error.what());
  }
}

void expect_same_again(const Record& record) {
  const std::string line = record_text(record);
  expect(record_text(parse_record(line, "again")) == line, "another record");
}

void read_stream(const std::filesystem::path& folder, const char* ending, bool unfinished) {
  read_or_refuse([&] {
    IndexStream stream(folder, ending, unfinished);
    Record before;
    int64_t count = 0;
    for (; stream.record(); stream.advance(), ++count) {
      const Record& record = *stream.record();
      expect(count == 0 || path_less(before.path, record.path) ||
                 (before.path == record.path && before.passage < record.passage),
             "records that are not in order");
      expect_same_again(record);
      before = record;
    }
    expect(unfinished ? count <= stream.header().rows : count == stream.header().rows, "another number of records");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  static const std::filesystem::path folder = [] {
    const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    const std::filesystem::path path = parent / concat("cairn-fuzz-", getpid());
    std::filesystem::create_directories(path);
    std::atexit([] { std::filesystem::remove_all(folder); });
    return path;
  }();
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = bytes.size() * data[0] / 255;
  std::string embeddings(bytes.substr(cut));
  const std::string_view passages = bytes.substr(0, cut);
  // The hash that nobody would find.
  if (const size_t at = embeddings.find("HASH"); at != std::string::npos) embeddings.replace(at, 4, xxh128(passages));
  for (const char* ending : {"", ".new"}) {
    std::ofstream(folder / concat("passages.jsonl", ending), std::ios::binary) << passages;
    std::ofstream(folder / concat("embeddings.safetensors", ending), std::ios::binary) << embeddings;
  }
  read_stream(folder, "", false);
  read_stream(folder, ".new", true);
  read_or_refuse([&] {
    const Index index(folder);
    std::vector<float> row(size_t(index.header().settings.features));
    for (int64_t i = 0; i < index.size(); ++i) {
      index.read_rows(i, 1, row.data());
      read_or_refuse([&] { expect_same_again(index.record(i)); });
    }
    const auto tokenize = [](std::string_view text) { return std::vector<WordPiece::Token>{{0, 0, text.size()}}; };
    const std::vector<Hit> hits = search(index, Tensor::full({index.header().settings.features}, 1), 2);
    for (size_t i = 0; i < hits.size(); ++i) {
      const Hit& hit = hits[i];
      expect(i == 0 || (hits[0].score >= hit.score && hits[0].record.text != hit.record.text), "hits out of order");
      const Excerpt excerpt = excerpt_of(hit.record, "word", tokenize);
      expect(hit.record.text.ends_with(excerpt.text) && excerpt.line >= hit.record.line, "an excerpt from elsewhere");
    }
  });
  return 0;
}
