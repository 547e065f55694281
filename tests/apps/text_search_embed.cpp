// The embedder of text-search, and its command embed as a user runs it, with a tiny model of random weights.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/text_search/files.h"
#include "autograd/ops.h"
#include "nn/io/bert_folder.h"
#include "nn/io/safetensors.h"
#include "tests/apps/text_search_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

// One sequence's embedding by the model itself.
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

TEST_CASE("embeddings come in the order of the sequences, whatever the batch", "[text_search]") {
  const Sequences sequences = random_sequences({9, 2, 33, 512, 3, 9, 17, 2, 64, 5, 9, 31});
  for (const int64_t batch : {1, 5, 100}) {
    CAPTURE(batch);
    const Embedder embedder(small_options(batch));
    std::vector<size_t> places;
    const Tensor all = embedder.embed(sequences, true, [&](const std::vector<size_t>& done, const Tensor& rows) {
      places.insert(places.end(), done.begin(), done.end());
      CHECK(difference(rows.slice(0, 1), alone(sequences[done[0]])) <= tolerance::float32);
    });
    REQUIRE(all.shape() == Shape{12, 24});
    for (int64_t i = 0; i < 12; ++i)
      CHECK(difference(all.slice(i, i + 1), alone(sequences[size_t(i)])) <= tolerance::float32);
    CHECK(places == std::vector<size_t>{3, 8, 2, 11, 6, 0, 5, 10, 9, 4, 1, 7});  // the longest first
  }
  CHECK(Embedder(small_options()).embed({}).shape() == Shape{0, 24});
  CHECK_THROWS_AS(Embedder(small_options()).embed(random_sequences({513})), UsageError);
}

TEST_CASE("an embedding depends on attention, seed and model, which is why its fingerprint changes", "[text_search]") {
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
  CHECK(fingerprint_with("README", "") == embedder.fingerprint());  // nor with the folder's name
  CHECK(fingerprint_with("config.json", bytes_of_file(small_model + "/config.json") + "\n") != embedder.fingerprint());
  CHECK(fingerprint_with("tokenizer_config.json", R"({"do_lower_case": false})") != embedder.fingerprint());
  CHECK(fingerprint_with("vocab.txt", vocabulary.substr(0, vocabulary.rfind('['))) != embedder.fingerprint());
  CHECK(fingerprint_with("model.safetensors", safetensors_bytes(weights)) != embedder.fingerprint());
  CHECK_THAT(data_error([&] { fingerprint_with("vocab.txt", vocabulary + "more\n"); }),
             ContainsSubstring("the model has embeddings for"));
}

TEST_CASE("text-search embed writes a row for each line", "[text_search]") {
  const InFolder place;
  const std::string command = concat("embed --out out --model ", small_model, " --text-file ");
  const Embedder embedder(small_options());
  std::string many;
  for (int i = 0; i < 2000; ++i) many += i % 3 ? "the " : "key ";
  const auto check_rows = [&](const std::string& text, const std::string& more = "") {
    put_file(place.folder / "text", text);
    const auto told = nlohmann::json::parse(place.printed(command + "text --quiet --json " + more));
    Sequences sequences;
    for (const std::string& line : lines_of(text)) sequences.push_back(embedder.tokenizer().encode(line, 512));
    const TensorFile file = read_safetensors(place.folder / "out");
    REQUIRE(file.at("embeddings").shape() == Shape{int64_t(sequences.size()), 24});
    CHECK(difference(file.at("embeddings"), embedder.embed(sequences)) <= tolerance::float32);
    CHECK((told["texts"] == sequences.size() && told["seconds"] > 0));
    return file;
  };
  const TensorFile file = check_rows("the cluster of attention\n\nquery and key");  // the last line has no end
  CHECK(file.metadata ==
        std::map<std::string, std::string>{
            {"attention", "full"}, {"fingerprint", embedder.fingerprint()}, {"model", small_model}, {"seed", "1"}});
  check_rows("");
  // Lines longer than the model has positions, and with any bytes.
  check_rows(many + "\nx\n" + many.substr(0, 300) + std::string("\na\0b\xff\n", 6), "--batch 2");
  const std::string whole = bytes_of_file(place.folder / "out");
  CHECK_THAT(place.run(command + "- --batch 2", "with_text() { cat text | \"$@\"; }; with_text ").out,
             ContainsSubstring("out: 4 texts, "));
  CHECK(bytes_of_file(place.folder / "out") == whole);
}
