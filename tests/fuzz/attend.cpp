// Bytes are refused with one short line, or they are tensors for which variants of every kind compute outputs and
// gradients.
#include "apps/attend/run.h"
#include "tests/fuzz/fuzz.h"

using namespace cairn;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto in = attend::read_inputs(parse_safetensors({reinterpret_cast<const char*>(data), size}, "fuzz"));
    const int64_t scores = in.batches() * in.heads() * in.queries() * in.keys();
    if (scores * (in.q.size(3) + in.v.size(3)) > 20000) return 0;  // it would only be slow
    attend::RunOptions options;
    options.gradients = true;
    for (const char* spec : {"full", "shared-full", "i-clustered-3:topk=2", "oracle-top-2", "position-2", "euclidean-2",
                             "lsh-2:chunk=2", "longformer-2", "inducing-2", "linear"}) {
      try {
        const attend::Runner runner(spec, in, options);
        expect(runner.out.shape() == Shape{in.batches(), in.queries(), in.heads(), in.v.size(3)}, "another shape");
        safetensors_bytes(runner.output(spec));
      } catch (const UsageError& error) {  // the variant does not support the mask
        expect_short_line(error.what());
      }
    }
  } catch (const DataError& error) {
    expect_short_line(error.what());
  } catch (const UsageError& error) {
    expect_short_line(error.what());
  }
  return 0;
}
