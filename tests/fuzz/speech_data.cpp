// Bytes are refused with a DataError of one short line, or they are prepared data, and sentences of which batches are
// made.
#include <cmath>

#include "apps/speech/batches.h"
#include "apps/speech/corpus.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;
using namespace cairn::speech;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    Corpus corpus = read_corpus(parse_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const FrontEnd& front_end = corpus.front_end;
    for (std::vector<Sentence>* part : {&corpus.train, &corpus.dev, &corpus.test}) {
      fit_to_model(front_end, front_end, "fuzz", *part);
      check_targets(*part, 3, 2, "fuzz");
      if (part->empty()) continue;
      Settings settings;
      settings.splice = 1;
      const Batch batch = make_batch(join(*part, 2), settings);
      expect(batch.size() == int64_t(part->size() + 1) / 2, "another number of sequences");
      for (const int32_t label : batch.targets.to_vector<int32_t>())
        expect(label >= 0 && label < front_end.classes(), "a label that is no phone");
    }
  } catch (const DataError& error) {
    expect_short_line(error.what());
  }
  return 0;
}
