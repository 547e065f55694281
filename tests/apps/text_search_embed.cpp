// The embedder of text-search, with a tiny model of random weights.
#include <filesystem>
#include <memory>

#include "apps/text_search/embedder.h"
#include "autograd/ops.h"
#include "core/random.h"
#include "nn/io/bert_folder.h"
#include "nn/io/safetensors.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// 24 features, 2 layers, 3 heads, 160 tokens, 512 positions.
const std::string small_model = CAIRN_SOURCE_DIR "/tests/golden/bert";

EmbedderOptions small_options(int64_t batch = 32, const std::string& attention = "full") {
  EmbedderOptions options;
  options.model = small_model;
  options.batch = batch;
  options.attention = attention;
  options.compute.device = Device::cpu;
  return options;
}

// Sequences of [CLS], letters, [SEP] with these numbers of tokens.
Sequences random_sequences(const std::vector<int64_t>& lengths) {
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

// One sequence's embedding, computed with the model directly.
Tensor alone(const std::vector<int32_t>& sequence) {
  const NoGrad no_grad;
  static const std::unique_ptr<Bert> model = read_bert(small_model);
  const auto n = int64_t(sequence.size());
  const Tensor length = int32s({int32_t(n)});
  const Generator generator(1);
  const Variable hidden = (*model)(Tensor::from(sequence, {1, n}), length, {.generator = &generator});
  return l2_normalize(mean_over_length(hidden, length)).value();
}

}  // namespace

TEST_CASE("embeddings are in the order of the sequences, for any batch", "[text_search]") {
  const Sequences sequences = random_sequences({9, 2, 33, 512, 3, 9, 17, 2, 64, 5, 9, 31});
  for (const int64_t batch : {1, 5, 100}) {
    CAPTURE(batch);
    const Embedder embedder(small_options(batch));
    std::vector<size_t> places;
    const Tensor all = embedder.embed(sequences, true, [&](size_t i, const float* row) {
      places.push_back(i);
      CHECK(difference(Tensor::from(std::vector<float>(row, row + 24), {1, 24}), alone(sequences[i])) <=
            tolerance::float32);
    });
    REQUIRE(all.shape() == Shape{12, 24});
    for (int64_t i = 0; i < 12; ++i)
      CHECK(difference(all.slice(i, i + 1), alone(sequences[size_t(i)])) <= tolerance::float32);
    CHECK(places == std::vector<size_t>{3, 8, 2, 11, 6, 0, 5, 10, 9, 4, 1, 7});  // the longest first
  }
  CHECK(Embedder(small_options()).embed({}).shape() == Shape{0, 24});
  CHECK_THROWS_AS(Embedder(small_options()).embed(random_sequences({513})), UsageError);
}

TEST_CASE("a text has the same embedding in any place of any batch", "[text_search]") {
  const Sequences sequences = random_sequences({40, 200, 17, 200, 90});
  for (const char* attention : {"full", "i-clustered-5:topk=8,refine=1"}) {
    CAPTURE(attention);
    const Tensor all = Embedder(small_options(32, attention)).embed(sequences);
    for (size_t i = 0; i < sequences.size(); ++i)
      CHECK(same_bits(Embedder(small_options(32, attention)).embed({sequences[i]}),
                      all.slice(int64_t(i), int64_t(i) + 1)));
  }
}

TEST_CASE("an embedding depends on attention, seed and model, and the fingerprint on the model", "[text_search]") {
  const Sequences sequences = random_sequences({40, 30, 20});
  EmbedderOptions options = small_options(2, "clustered-3");
  Embedder embedder(options);
  const Tensor one = embedder.embed(sequences);
  options.compute.seed = 2;
  CHECK(difference(Embedder(options).embed(sequences), one) > 1e-4);
  embedder.set_attention("full");
  CHECK(difference(embedder.embed(sequences), one) > 1e-4);
  embedder.set_attention("clustered-3");
  CHECK(same_bits(one, embedder.embed(sequences)));

  const auto fingerprint_with = [&](const std::string& name, const std::string& bytes) {
    const TemporaryFolder folder;
    fs::copy(small_model, folder.path(), fs::copy_options::recursive);
    put_file(folder / name, bytes);
    options.model = folder.path();
    return Embedder(options).fingerprint();
  };
  const std::string vocabulary = bytes_of_file(small_model + "/vocab.txt");
  TensorFile weights = read_safetensors(small_model + "/model.safetensors");
  weights.tensors.back().second.mutable_data<float>()[0] += 1;
  CHECK(fingerprint_with("README", "") == embedder.fingerprint());  // does not depend on the folder's name
  CHECK(fingerprint_with("config.json", bytes_of_file(small_model + "/config.json") + "\n") != embedder.fingerprint());
  CHECK(fingerprint_with("tokenizer_config.json", R"({"do_lower_case": false})") != embedder.fingerprint());
  CHECK(fingerprint_with("vocab.txt", vocabulary.substr(0, vocabulary.rfind('['))) != embedder.fingerprint());
  CHECK(fingerprint_with("model.safetensors", safetensors_bytes(weights)) != embedder.fingerprint());
  CHECK_THAT(data_error([&] { fingerprint_with("vocab.txt", vocabulary + "more\n"); }),
             ContainsSubstring("the model has embeddings for"));
}
