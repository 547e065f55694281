// Published BERT models: what PyTorch computes with the same folder (tests/golden/make_bert.py), and folders that are
// not as they should be.
#include "nn/io/bert_folder.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "nn/io/file.h"
#include "nn/io/safetensors.h"
#include "tests/golden/golden.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

static const fs::path small_model = CAIRN_SOURCE_DIR "/tests/golden/bert";

static Tensor embeddings(const Bert& bert, const Tensor& tokens, const Tensor& lengths) {
  const NoGrad no_grad;
  const Generator generator(1);
  return l2_normalize(mean_over_length(bert(tokens, lengths, {false, &generator}), lengths)).value();
}

static void check_golden(const Bert& bert, const std::string& name) {
  static const Golden golden("bert.txt");
  const Tensor tokens = golden.tensor(name + "/tokens", DType::int32);
  const Tensor lengths = golden.tensor(name + "/lengths", DType::int32);
  const Tensor expected = golden.tensor(name + "/embeddings");
  CAPTURE(name);
  CHECK(difference(embeddings(bert, tokens, lengths), expected) <= tolerance::golden);
  // Each alone, without padding.
  for (int64_t i = 0; i < tokens.size(0); ++i) {
    const int64_t length = lengths.data<int32_t>()[i];
    const Tensor alone = tokens.slice(i, i + 1).reshape({tokens.size(1)}).slice(0, length).reshape({1, length});
    CHECK(difference(embeddings(bert, alone, lengths.slice(i, i + 1)), expected.slice(i, i + 1)) <= tolerance::golden);
  }
}

TEST_CASE("a published BERT gives PyTorch's embeddings", "[io][bert]") {
  const auto bert = read_bert(small_model);
  check_golden(*bert, "small");
  check_golden(*bert, "alone");
}

// CTest runs it where CAIRN_MINILM names the folder of all-MiniLM-L6-v2.
TEST_CASE("all-MiniLM-L6-v2 gives PyTorch's embeddings", "[.][minilm]") {
  const char* folder = std::getenv("CAIRN_MINILM");
  REQUIRE(folder);
  check_golden(*read_bert(folder), "minilm");
}

TEST_CASE("a BERT takes any variant of attention that needs no parameters", "[io][bert]") {
  const auto bert = read_bert(small_model);
  const Golden golden("bert.txt");
  const Tensor tokens = golden.tensor("alone/tokens", DType::int32);
  const Tensor lengths = golden.tensor("alone/lengths", DType::int32);
  const Tensor full = embeddings(*bert, tokens, lengths);
  bert->encoder.swap_attention("i-clustered-5:topk=64");  // k >= the keys: it is full attention
  CHECK(difference(embeddings(*bert, tokens, lengths), full) <= tolerance::float32);
  bert->encoder.swap_attention("clustered-1");
  for (const auto& layer : bert->encoder.layers) CHECK(layer->attention.attention->spec() == "clustered-1");
  CHECK(difference(embeddings(*bert, tokens, lengths), full) > 1e-4);
  for (const char* refused : {"shared-full", "inducing-4", "clustered-2,full"})
    CHECK_THROWS_AS(bert->encoder.swap_attention(refused), UsageError);
  CHECK(bert->encoder.layers[0]->attention.attention->spec() == "clustered-1");
  CHECK_THROWS_WITH(embeddings(*bert, Tensor::zeros({1, 513}, DType::int32), lengths),
                    ContainsSubstring("513 tokens; the model has 512 positions"));
}

TEST_CASE("a sequence of length 0 has a mean of zeros", "[io][bert]") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor mean = mean_over_length(Variable(x), Tensor::from<int32_t>({1, 0}, {2})).value();
  CHECK(mean.to_vector<float>() == std::vector<float>{1, 2, 0, 0});
}

namespace {

// A copy of the small model, to damage.
struct Copy {
  TemporaryFolder folder;
  TensorFile weights = read_safetensors(small_model / "model.safetensors");
  Json config = Json::parse(read_file(small_model / "config.json"));

  std::unique_ptr<Bert> read() {
    write_safetensors(folder / "model.safetensors", weights);
    write_file(folder / "config.json", {config.dump()});
    return read_bert(folder / "");
  }
  std::string refused() {
    return data_error([&] { read(); });
  }
};

}  // namespace

TEST_CASE("weights are found under the older names, too, and what a model does not use is passed over", "[io][bert]") {
  Copy copy;
  for (auto& [name, tensor] : copy.weights.tensors) {
    if (const size_t at = name.find("LayerNorm."); at != std::string::npos)
      name = name.substr(0, at + 10) + (name.ends_with("weight") ? "gamma" : "beta");
    name = "bert." + name;
  }
  copy.weights.tensors.emplace_back("bert.pooler.dense.weight", Tensor({24, 24}));
  copy.weights.tensors.back().second.mutable_data<float>()[0] = NAN;
  check_golden(*copy.read(), "alone");
}

TEST_CASE("weights in bfloat16 and float64 become float32", "[io][bert]") {
  Copy copy;
  const auto expected = read_bert(small_model);
  for (auto& [name, tensor] : copy.weights.tensors) tensor = tensor.cast(DType::float64);
  CHECK(difference(copy.read()->words.weight.value(), expected->words.weight.value()) == 0);
  for (auto& [name, tensor] : copy.weights.tensors) tensor = tensor.cast(DType::bfloat16);
  CHECK(difference(copy.read()->words.weight.value(), expected->words.weight.value()) <= tolerance::bfloat16);
  CHECK(copy.read()->words.weight.dtype() == DType::float32);
}

TEST_CASE("a model's folder that is not as it should be is refused", "[io][bert]") {
  SECTION("files") {
    Copy copy;
    CHECK_THAT(data_error([&] { read_bert(copy.folder / "none"); }), ContainsSubstring("config.json"));
    copy.read();
    fs::remove(copy.folder / "model.safetensors");
    CHECK_THAT(data_error([&] { read_bert(copy.folder / ""); }), ContainsSubstring("model.safetensors"));
    copy.read();
    write_file(copy.folder / "config.json", {"{\"model_type\": \"bert\""});
    CHECK_THAT(data_error([&] { read_bert(copy.folder / ""); }), ContainsSubstring("config.json: line 1"));
    write_file(copy.folder / "config.json", {"[]"});
    CHECK_THAT(data_error([&] { read_bert(copy.folder / ""); }), ContainsSubstring("expected an object, got array"));
  }
  SECTION("sizes") {
    const std::pair<const char*, Json> wrong[] = {
        {"model_type", "roberta"},  {"model_type", 7},        {"hidden_size", 25},
        {"hidden_size", 0},         {"hidden_size", -24},     {"hidden_size", 24.0},
        {"hidden_size", "24"},      {"hidden_size", nullptr}, {"num_attention_heads", 0},
        {"num_hidden_layers", 3},   {"vocab_size", 1 << 30},  {"vocab_size", 1 << 20},
        {"intermediate_size", 41},  {"type_vocab_size", 0},   {"max_position_embeddings", 511},
        {"hidden_act", "gelu_new"}, {"hidden_act", nullptr},  {"layer_norm_eps", "1e-12"},
        {"layer_norm_eps", -1},     {"is_decoder", true},     {"position_embedding_type", "relative_key"},
        {"add_cross_attention", 1}};
    for (const auto& [key, value] : wrong) {
      Copy copy;
      copy.config[key] = value;
      CAPTURE(key, value.dump());
      CHECK_THAT(copy.refused(), ContainsSubstring(copy.folder / ""));
    }
    for (const char* key : {"model_type", "hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size",
                            "intermediate_size", "type_vocab_size", "max_position_embeddings"}) {
      Copy copy;
      copy.config.erase(key);
      CAPTURE(key);
      CHECK_THAT(copy.refused(), ContainsSubstring(concat(key, ": expected")));
    }
    Copy copy;
    copy.config.erase("hidden_act"), copy.config.erase("layer_norm_eps");
    copy.config["torch_dtype"] = "float16";
    CHECK(copy.read()->options.activation == Activation::gelu);
    copy.config["hidden_act"] = "relu";
    CHECK(copy.read()->options.activation == Activation::relu);
    copy.config["layer_norm_eps"] = 0.5;
    CHECK(copy.read()->encoder.layers[1]->norm2.epsilon == 0.5);
  }
  SECTION("weights") {
    for (const char* name : {"embeddings.LayerNorm.bias", "encoder.layer.1.attention.self.key.weight"}) {
      Copy copy;
      auto& tensors = copy.weights.tensors;
      const auto found =
          std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.first == name; });
      const Tensor tensor = found->second;
      found->second = Tensor::zeros({tensor.elements() + 1});
      CHECK_THAT(copy.refused(),
                 ContainsSubstring(concat("\"", name, "\": expected numbers of shape ", tensor.shape())));
      found->second = Tensor::zeros(tensor.shape(), DType::int32);
      CHECK_THAT(copy.refused(), ContainsSubstring("got int32"));
      found->second = tensor.clone();
      found->second.mutable_data<float>()[1] = INFINITY;
      CHECK_THAT(copy.refused(), ContainsSubstring(concat("\"", name, "\": element 1 of ", tensor.elements())));
      tensors.erase(found);
      tensors.emplace_back("more", Tensor::zeros({100000}));
      CHECK_THAT(copy.refused(), ContainsSubstring(concat("no tensor \"", name)));
    }
    Copy fewer;
    fewer.config["num_hidden_layers"] = 1;
    CHECK_THAT(fewer.refused(), ContainsSubstring("has more layers than the 1 of"));
    Copy large;
    Tensor& first = large.weights.tensors.front().second;
    first = first.cast(DType::float64);
    first.mutable_data<double>()[0] = 1e300;
    CHECK_THAT(large.refused(), ContainsSubstring("is not finite"));
    Copy copy;
    copy.weights.tensors.resize(3);
    CHECK_THAT(copy.refused(), ContainsSubstring("numbers are too few for the sizes in"));
  }
  SECTION("pooling") {
    Copy copy;
    copy.read();
    fs::create_directory(copy.folder / "1_Pooling");
    write_file(copy.folder / "1_Pooling" / "config.json", {R"({"pooling_mode_mean_tokens": true})"});
    CHECK_NOTHROW(read_bert(copy.folder / ""));
    write_file(copy.folder / "1_Pooling" / "config.json",
               {R"({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true})"});
    CHECK_THAT(data_error([&] { read_bert(copy.folder / ""); }),
               ContainsSubstring("\"pooling_mode_max_tokens\": false"));
    fs::remove_all(copy.folder / "1_Pooling");
    write_file(copy.folder / "modules.json", {"[1, 2, 3, 4]"});
    CHECK_THAT(data_error([&] { read_bert(copy.folder / ""); }),
               ContainsSubstring("modules.json: expected an array of"));
    fs::remove(copy.folder / "modules.json");
    fs::create_directory(copy.folder / "1_Pooling");
    write_file(copy.folder / "1_Pooling" / "config.json", {R"({"pooling_mode_cls_token": true})"});
    CHECK_THAT(data_error([&] { read_bert(copy.folder / ""); }), ContainsSubstring("pools by the mean alone"));
  }
}
