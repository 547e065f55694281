// Bytes are refused with a DataError of one short line, or they are prepared data, and sentences of which batches are
// made.
#include <cmath>
#include <memory>
#include <sstream>
#include <string>

#include "apps/speech/batches.h"
#include "apps/speech/corpus.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;
using namespace cairn::speech;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string bytes(reinterpret_cast<const char*>(data), size);
    const Corpus corpus = read_corpus(TensorReader(std::make_unique<std::istringstream>(bytes), "fuzz"));
    Settings settings;
    settings.splice = 1;
    settings.join = 2;
    for (const auto& [part, all] : corpus.parts) {
      if (all.empty()) continue;
      const std::vector<Sentence> sentences = sentences_of(corpus, part, corpus.front_end, settings);
      const Batch batch = make_batch(join(sentences, settings.join), settings);
      expect(batch.size() == int64_t(sentences.size() + 1) / 2, "another number of sequences");
      for (const int32_t label : batch.targets.to_vector<int32_t>())
        expect(label >= 0 && label < corpus.front_end.classes(), "a label that is no phone");
    }
  } catch (const DataError& error) {
    expect_short_line(error.what());
  }
  return 0;
}
