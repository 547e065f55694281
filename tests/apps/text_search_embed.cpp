// The embedder of text-search, and its command embed as a user runs it, with a tiny model of random weights.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "nn/io/bert_folder.h"
#include "nn/io/file.h"
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
  const Variable hidden = (*model)(Tensor::from(sequence, {1, n}), length, {false, &generator});
  return l2_normalize(mean_over_length(hidden, length)).value();
}

struct ModelCopy {
  TemporaryFolder folder;
  EmbedderOptions options;

  ModelCopy() {
    fs::copy(small_model, folder.path(), fs::copy_options::recursive);
    options.model = folder.path();
  }
  std::string fingerprint() const { return Embedder(options).fingerprint(); }
  void replace(const std::string& name, const std::string& old, const std::string& text) const {
    std::string all = read_file(folder / name);
    const size_t at = all.find(old);
    REQUIRE(at != std::string::npos);
    put_file(folder / name, all.replace(at, old.size(), text));
  }
};

}  // namespace

TEST_CASE("embeddings come in the order of the sequences, whatever the batch", "[text_search]") {
  const auto sequences = random_sequences({9, 2, 33, 512, 3, 9, 17, 2, 64, 5, 9, 31});
  for (const int64_t batch : {1, 3, 5, 100}) {
    CAPTURE(batch);
    Embedder embedder(small_options(batch));
    std::vector<std::pair<int64_t, int64_t>> calls;
    const Tensor all =
        embedder.embed(sequences, [&](int64_t done, int64_t tokens) { calls.emplace_back(done, tokens); });
    REQUIRE(all.shape() == Shape{12, 24});
    for (int64_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      const Tensor row = all.slice(i, i + 1);
      CHECK(difference(row, alone(sequences[size_t(i)])) <= tolerance::float32);
      double square = 0;
      for (const double x : as_double(row)) square += x * x;
      CHECK(square == Approx(1).margin(1e-5));
    }
    REQUIRE(calls.size() == size_t((12 + batch - 1) / batch));
    for (size_t i = 0; i + 1 < calls.size(); ++i) CHECK(calls[i].first == int64_t(i + 1) * batch);
    CHECK(calls.back() == std::pair<int64_t, int64_t>(12, 696));
    if (batch == 3) CHECK(calls[0].second == 2 + 2 + 3);  // the shortest first
  }
  CHECK(Embedder(small_options()).embed({}).shape() == Shape{0, 24});
}

TEST_CASE("the seed names an embedding by a variant that draws random numbers", "[text_search]") {
  const auto sequences = random_sequences({40, 30, 20});
  EmbedderOptions options = small_options(2, "clustered-3");
  Embedder embedder(options);
  const Tensor one = embedder.embed(sequences);
  CHECK(same_bits(one, embedder.embed(sequences)));
  options.seed = 2;
  CHECK(difference(Embedder(options).embed(sequences), one) > 1e-4);
  embedder.set_attention("full");
  CHECK(embedder.attention() == "full");
  CHECK(difference(embedder.embed(sequences), one) > 1e-4);
  embedder.set_attention("clustered-3");
  CHECK(same_bits(one, embedder.embed(sequences)));
}

TEST_CASE("an embedder takes as many tokens as its model has positions", "[text_search]") {
  for (const int64_t tokens : {2, 3, 512, 513}) {
    EmbedderOptions options = small_options();
    options.max_tokens = tokens;
    if (tokens == 3 || tokens == 512)
      CHECK(Embedder(options).max_tokens() == tokens);
    else
      CHECK_THROWS_AS(Embedder(options), UsageError);
  }
  CHECK(Embedder(small_options()).max_tokens() == 512);
  CHECK_THROWS_AS(Embedder(small_options()).embed(random_sequences({513})), UsageError);
}

TEST_CASE("a vocabulary may be smaller than the model's", "[text_search]") {
  const ModelCopy copy;
  const std::string vocabulary = read_file(copy.folder / "vocab.txt");
  put_file(copy.folder / "vocab.txt", vocabulary.substr(0, vocabulary.find("[unused38]")));
  CHECK_NOTHROW(copy.fingerprint());
  // Padding has at most 1024 rows.
  const int64_t tokens = std::count(vocabulary.begin(), vocabulary.end(), '\n');
  TensorFile weights = read_safetensors(copy.folder / "model.safetensors");
  copy.replace("config.json", concat("\"vocab_size\": ", tokens), concat("\"vocab_size\": ", tokens + 1024));
  put_file(copy.folder / "vocab.txt", vocabulary);
  for (auto& [name, tensor] : weights.tensors)
    if (name.ends_with("word_embeddings.weight")) tensor = Tensor::zeros({tokens + 1024, tensor.size(1)});
  write_safetensors(copy.folder / "model.safetensors", weights);
  CHECK_NOTHROW(copy.fingerprint());
  put_file(copy.folder / "vocab.txt", vocabulary.substr(0, vocabulary.rfind('[')));
  CHECK_THAT(data_error([&] { copy.fingerprint(); }),
             ContainsSubstring("vocab.txt") && ContainsSubstring("is the file cut off"));
}

TEST_CASE("a model's fingerprint changes with whatever its embeddings depend on", "[text_search]") {
  const std::string first = Embedder(small_options(1, "clustered-3")).fingerprint();
  CHECK(first.size() == 32);
  CHECK(ModelCopy().fingerprint() == first);  // not with the folder's name
  const std::pair<const char*, const char*> changes[] = {{"config.json", "1e-12"}, {"vocab.txt", "cluster\n"}};
  for (const auto& [file, text] : changes) {
    CAPTURE(file);
    const ModelCopy copy;
    copy.replace(file, text, std::string("1") + text);
    CHECK(copy.fingerprint() != first);
  }
  const ModelCopy cased;
  put_file(cased.folder / "tokenizer_config.json", R"({"do_lower_case": false})");
  CHECK(cased.fingerprint() != first);
  const ModelCopy weight;
  TensorFile weights = read_safetensors(weight.folder / "model.safetensors");
  float& changed = weights.tensors.back().second.mutable_data<float>()[0];
  changed = std::nextafter(changed, 2.0f);
  write_safetensors(weight.folder / "model.safetensors", weights);
  CHECK(weight.fingerprint() != first);
}

TEST_CASE("a model that embeds nothing is found out", "[text_search]") {
  const ModelCopy copy;
  TensorFile weights = read_safetensors(copy.folder / "model.safetensors");
  for (auto& [name, tensor] : weights.tensors)
    if (name.ends_with("output.LayerNorm.weight") || name.ends_with("output.LayerNorm.bias"))
      tensor = Tensor::zeros(tensor.shape());
  write_safetensors(copy.folder / "model.safetensors", weights);
  CHECK_THAT(data_error([&] { Embedder(copy.options).embed(random_sequences({9})); }),
             ContainsSubstring("is the model damaged?"));
}

// ---- the command

namespace {

struct EmbedCommand : InFolder {
  // Runs it on a text; expects that it succeeds.
  TensorFile embed(const std::string& text, const std::string& more = "") const {
    put_file(folder / "text", text);
    const auto result = run(concat("embed --quiet --text-file text --out out --model ", small_model, ' ', more));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.err.empty());
    return read_safetensors(folder / "out");
  }
};

}  // namespace

TEST_CASE("text-search embed writes a row for each line", "[text_search]") {
  const EmbedCommand command;
  const Embedder embedder(small_options());
  const auto expected = [&](const std::vector<std::string>& lines, int64_t max_tokens = 0) {
    std::vector<std::vector<int32_t>> sequences;
    for (const std::string& line : lines) sequences.push_back(embedder.tokenizer().encode(line, max_tokens));
    return embedder.embed(sequences);
  };
  const auto check_rows = [&](const TensorFile& file, const Tensor& rows) {
    REQUIRE(file.tensors.size() == 1);
    const Tensor& got = file.at("embeddings");
    CHECK(got.dtype() == DType::float32);
    CHECK(got.shape() == rows.shape());
    CHECK(difference(got, rows) <= tolerance::float32);
  };
  const std::string first = "the cluster of attention";
  TensorFile file = command.embed(concat(first, "\n\nquery and key"));  // the last line has no end
  check_rows(file, expected({first, "", "query and key"}));
  CHECK(file.metadata == std::map<std::string, std::string>{{"attention", "full"},
                                                            {"fingerprint", embedder.fingerprint()},
                                                            {"max_tokens", "512"},
                                                            {"model", small_model},
                                                            {"seed", "1"}});
  check_rows(command.embed(concat(first, "\n")), expected({first}));
  check_rows(command.embed("\n"), expected({""}));
  check_rows(command.embed(""), Tensor({0, 24}));
  check_rows(command.embed("x"), expected({"x"}));
  const std::string nul("a\0b\xff\n", 5);
  check_rows(command.embed(nul), expected({nul.substr(0, 4)}));
  // A line longer than the model has positions, and one that --max-tokens cuts.
  std::string many;
  for (int i = 0; i < 2000; ++i) many += i % 3 ? "the " : "key ";
  check_rows(command.embed(many), expected({many}, 512));
  file = command.embed(concat(many, "\n", first, "\nx\n"), "--max-tokens 4");
  check_rows(file, expected({many, first, "x"}, 4));
  CHECK(file.metadata.at("max_tokens") == "4");
  std::vector<std::string> lines;
  std::string text;
  for (size_t i = 0; i < 50; ++i) {
    lines.push_back(many.substr(i % 3, i * 29 % 200));
    text += lines.back() + "\n";
  }
  check_rows(command.embed(text, "--batch 4"), expected(lines));
  file = command.embed(text, "--batch 150 --attention clustered-2 --seed 9");
  CHECK(file.metadata.at("attention") == "clustered-2");
  CHECK(file.metadata.at("seed") == "9");
  CHECK(difference(file.at("embeddings"), expected(lines)) > 1e-4);
}

TEST_CASE("text-search embed reads standard input and tells what it did", "[text_search]") {
  const EmbedCommand command;
  put_file(command.folder / "text", "the key\nof it");
  const auto json = command.run(concat("embed --text-file text --out out --json --model ", small_model));
  REQUIRE(json.exit_code == 0);
  const auto told = nlohmann::json::parse(last_line(json.out));
  CHECK(told["out"] == "out");
  CHECK(told["texts"] == 2);
  CHECK(told["tokens"] == 8);
  CHECK(told["seconds"] > 0);
  const auto piped = command.run(concat("embed --text-file - --out piped --model ", small_model),
                                 "with_text() { cat text | \"$@\"; }; with_text ");
  CHECK_THAT(piped.out, ContainsSubstring("piped: 2 texts, 8 tokens in "));
  CHECK(bytes_of_file(command.folder / "piped") == bytes_of_file(command.folder / "out"));
}

TEST_CASE("text-search embed that is interrupted leaves what was there", "[text_search]") {
  const EmbedCommand command;
  put_file(command.folder / "out", "mine");
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "the cluster of query and key\n";
  put_file(command.folder / "text", text);
  const auto stopped =
      command.interrupted(concat("embed --batch 1 --text-file text --out out --model ", small_model), "sleep 0.3");
  CHECK(stopped.exit_code == 130);
  CHECK(bytes_of_file(command.folder / "out") == "mine");
  CHECK_THAT(stopped.err, !ContainsSubstring("error"));
}
