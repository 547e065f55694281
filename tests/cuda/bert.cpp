// A published model (tests/golden/bert) on CUDA has the embeddings of the CPU.
#include "nn/io/bert_folder.h"

#include "autograd/ops.h"
#include "core/random.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/tolerances.h"

using namespace cairn;

TEST_CASE("a published BERT gives on CUDA what it gives on the CPU", "[gpu][variants]") {
  for (const char* spec : {"full", "i-clustered-5:topk=4"}) {
    INFO(spec);
    std::vector<Observation> seen(2);
    const auto embeddings = [&](Device device, DType activations) {
      const NoGrad no_grad;
      const auto bert = read_bert(folder_of_build("CAIRN_SOURCE_DIR", CAIRN_SOURCE_DIR) + "/tests/golden/bert");
      bert->encoder.swap_attention(spec);
      place(*bert, {device, activations});
      for (size_t i = 0; i < 2; ++i) {
        seen[i].choices = seen[i].choices.to(device);  // CUDA replays the CPU's
        bert->encoder.layers[i]->attention.observation = &seen[i];
      }
      std::vector<int32_t> tokens(3 * 19);
      RandomStream random(5, 0, Purpose::test);
      for (int32_t& token : tokens) token = int32_t(random.below(160));
      const Tensor lengths = Tensor::from<int32_t>({19, 7, 1}, {3}).to(device);
      const Generator generator(1);
      const Variable hidden = (*bert)(Tensor::from(tokens, {3, 19}).to(device), lengths, {.generator = &generator});
      CHECK(hidden.dtype() == activations);
      return l2_normalize(mean_over_length(cast(hidden, DType::float32), lengths)).value().to_vector<float>();
    };
    const auto expected = embeddings(Device::cpu, DType::float32);
    REQUIRE(expected.size() == 3 * 24);
    CHECK(difference(embeddings(Device::cuda, DType::float32), expected) <= tolerance::float32);
    CHECK(difference(embeddings(Device::cuda, DType::bfloat16), expected) <= tolerance::bfloat16);
  }
}
