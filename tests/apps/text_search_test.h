#pragma once
// What the tests of text-search share: a tiny published model, with random weights, and how the program fails.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/text_search/embedder.h"
#include "core/random.h"
#include "tests/apps/process.h"
#include "tests/io/io_test.h"

namespace cairn::text_search {

// 24 features, 2 layers, 3 heads, 160 tokens, 512 positions.
inline const std::string small_model = CAIRN_SOURCE_DIR "/tests/golden/bert";

inline EmbedderOptions small_options(int64_t batch = 32, const std::string& attention = "full") {
  EmbedderOptions options;
  options.model = small_model, options.batch = batch, options.attention = attention;
  return options;
}

// [CLS], letters, [SEP]: as many tokens as `lengths` says.
inline std::vector<std::vector<int32_t>> random_sequences(const std::vector<int64_t>& lengths) {
  RandomStream random(7, 0, Purpose::test);
  std::vector<std::vector<int32_t>> sequences;
  for (const int64_t length : lengths) {
    std::vector<int32_t> sequence{2};
    while (int64_t(sequence.size()) < length - 1) sequence.push_back(int32_t(19 + random.below(100)));
    sequence.push_back(3);
    sequences.push_back(sequence);
  }
  return sequences;
}

// The program ends with this code and one line.
inline void check_one_line(const ProcessResult& result, int exit_code, const std::string& message) {
  INFO(result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out.empty());
  CHECK(result.err.rfind("text-search: error: ", 0) == 0);
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK_THAT(result.err, Catch::Matchers::ContainsSubstring(message));
}

inline bool has_name_with(const std::filesystem::path& folder, const std::string& part) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find(part) != std::string::npos) return true;
  return false;
}

}  // namespace cairn::text_search
