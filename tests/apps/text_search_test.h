#pragma once
// What the tests of text-search share: a tiny published model, with random weights, texts, and how the program fails.
#include <algorithm>
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
  options.model = small_model;
  options.batch = batch;
  options.attention = attention;
  options.compute.device = Device::cpu;
  return options;
}

// [CLS], letters, [SEP]: as many tokens as `lengths` says.
inline Sequences random_sequences(const std::vector<int64_t>& lengths) {
  RandomStream random(7, 0, Purpose::test);
  Sequences sequences;
  for (const int64_t length : lengths) {
    std::vector<int32_t> sequence{2};
    while (int64_t(sequence.size()) < length - 1) sequence.push_back(int32_t(19 + random.below(100)));
    sequence.push_back(3);
    sequences.push_back(sequence);
  }
  return sequences;
}

// A folder, and the program run in it.
struct InFolder {
  TemporaryFolder folder;

  ProcessResult run(const std::string& arguments, const std::string& before = "") const {
    return run_process("text-search", arguments, concat("cd ", folder.path(), " && ", before));
  }
  // The program ends well; its standard output.
  std::string printed(const std::string& arguments) const {
    const ProcessResult result = run(arguments);
    INFO(arguments << ": " << result.err);
    REQUIRE(result.exit_code == 0);
    return result.out;
  }
  // The program ends with this code and one line.
  void refuses(const std::string& arguments, int exit_code, const std::string& message) const {
    const ProcessResult result = run(arguments);
    INFO(arguments << ": " << result.err);
    CHECK(result.exit_code == exit_code);
    CHECK(result.out.empty());
    CHECK(result.err.rfind("text-search: error: ", 0) == 0);
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK_THAT(result.err, Catch::Matchers::ContainsSubstring(message));
  }
  // Starts the program, sends it SIGTERM once `what`, a shell's condition, is true or it has ended, and waits.
  ProcessResult interrupted(const std::string& arguments, const std::string& what) const {
    return run(arguments, concat("interrupt() { \"$@\" & pid=$!; until ", what,
                                 " || ! kill -0 $pid; do sleep 0.01; done; kill -TERM $pid; wait $pid; }; interrupt "));
  }
};

}  // namespace cairn::text_search
