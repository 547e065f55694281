// Published BERT models: the same embeddings as PyTorch from the same folder (tests/golden/make_bert.py), and errors
// for invalid folders.
#include "nn/io/bert_folder.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "autograd/ops.h"
#include "core/storage.h"
#include "nn/io/file.h"
#include "nn/io/json.h"
#include "nn/io/safetensors.h"
#include "tests/golden/golden.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

static const fs::path small_model = CAIRN_SOURCE_DIR "/tests/golden/bert";

static Tensor embeddings(const Bert& bert, const Tensor& tokens, const Tensor& lengths) {
  const NoGrad no_grad;
  const Generator generator(1);
  return l2_normalize(mean_over_length(bert(tokens, lengths, {.generator = &generator}), lengths)).value();
}

static void check_golden(const Bert& bert, const std::string& name) {
  static const Golden golden("bert.txt");
  const Tensor tokens = golden.tensor(name + "/tokens", DType::int32);
  const Tensor lengths = golden.tensor(name + "/lengths", DType::int32);
  const Tensor expected = golden.tensor(name + "/embeddings");
  CAPTURE(name);
  CHECK(difference(embeddings(bert, tokens, lengths), expected) <= tolerance::golden);
  // Each sequence alone, without padding.
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

// CTest runs it if CAIRN_MINILM names the folder of all-MiniLM-L6-v2.
TEST_CASE("all-MiniLM-L6-v2 gives PyTorch's embeddings", "[.][minilm]") {
  const char* folder = std::getenv("CAIRN_MINILM");
  REQUIRE(folder);
  check_golden(*read_bert(folder), "minilm");
}

TEST_CASE("a sequence of length 0 has a mean of zeros", "[io][bert]") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2});
  const Tensor mean = mean_over_length(Variable(x), Tensor::from<int32_t>({1, 0}, {2})).value();
  CHECK(mean.to_vector<float>() == std::vector<float>{1, 2, 0, 0});
}

namespace {

// A copy of the small model, for tests to damage.
struct Copy {
  TemporaryFolder folder;
  TensorFile weights = read_safetensors(small_model / "model.safetensors");
  Json config = Json::parse(read_file(small_model / "config.json"));

  std::unique_ptr<Bert> read() const {
    write_safetensors(folder / "model.safetensors", weights);
    write_file(folder / "config.json", {config.dump()});
    return read_bert(folder.path());
  }
  void write(const char* name, const char* text) const {
    fs::create_directories((folder / name).parent_path());
    write_file(folder / name, {text});
  }
  std::string refused() const {
    return data_error([&] { read(); });
  }
};

}  // namespace

TEST_CASE("optional keys of a configuration are read, and unused keys and tensors are ignored", "[io][bert]") {
  Copy copy;
  copy.weights.tensors.emplace_back("pooler.dense.weight", Tensor({24, 24}));
  copy.config.erase("hidden_act");
  copy.config.erase("layer_norm_eps");
  copy.config["torch_dtype"] = "float16";
  CHECK(copy.read()->options.activation == Unary::gelu);
  copy.config["hidden_act"] = "relu";
  CHECK(copy.read()->options.activation == Unary::relu);
  copy.config["layer_norm_eps"] = 0.5;
  CHECK(copy.read()->encoder.layers[1]->norm2.epsilon == 0.5);
  copy.write("1_Pooling/config.json", R"({"word_embedding_dimension": 24, "pooling_mode_mean_tokens": true})");
  CHECK_NOTHROW(copy.read());
  copy.write("1_Pooling/config.json", R"({"pooling_mode": "mean", "pooling_mode_max_tokens": false})");
  copy.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
      {"type": "sentence_transformers.models.Pooling"}, {"type": "sentence_transformers.models.Normalize"}])");
  copy.write("config_sentence_transformers.json",
             R"({"prompts": {"query": ""}, "default_prompt_name": null, "similarity_fn_name": "dot"})");
  CHECK_NOTHROW(copy.read());
}

TEST_CASE("a BERT's weights are read into their places, not into memory beside them", "[io][bert]") {
  Copy copy;
  copy.config["vocab_size"] = 1 << 18;
  for (auto& [name, tensor] : copy.weights.tensors)
    if (name == "embeddings.word_embeddings.weight") tensor = Tensor::zeros({1 << 18, 24}, DType::float32);  // 25 MB
  const int64_t live = memory(Device::cpu).live;
  reset_peak_memory(Device::cpu);
  const auto bert = copy.read();
  CHECK(memory(Device::cpu).peak - live < int64_t(sizeof(float)) * parameter_count(*bert) * 6 / 5);
}

TEST_CASE("an invalid model folder is rejected", "[io][bert]") {
  const auto key = [](const char* name, const Json& value) {
    return [name, value](Copy& copy) { copy.config[name] = value; };
  };
  const auto no_key = [](const char* name) { return [name](Copy& copy) { copy.config.erase(name); }; };
  const auto weight = [](const Tensor& tensor) {
    return [tensor](Copy& copy) {
      for (auto& [name, each] : copy.weights.tensors)
        if (name == "encoder.layer.1.attention.self.key.weight") each = tensor;
    };
  };
  const auto file = [](const char* name, const char* text) {
    return [name, text](Copy& copy) { copy.write(name, text); };
  };
  const char* const most = "expected a whole number from 1 to 1048576, got ";
  const std::tuple<std::function<void(Copy&)>, const char*, const char*> table[] = {
      {[](Copy& copy) { copy.config = Json::array(); }, "config.json: ", "expected an object, got array"},
      {key("model_type", "roberta"), "model_type: ", "expected \"bert\", got \"roberta\""},
      {no_key("model_type"), "model_type: ", "got nothing"},
      {key("hidden_size", 25), "hidden_size: ", "25 is no multiple of 3 heads"},
      {key("hidden_size", 0), "hidden_size: ", most},
      {key("hidden_size", UINT64_MAX), "hidden_size: ", most},
      {key("vocab_size", "160"), "vocab_size: ", "got \"160\""},
      {key("num_hidden_layers", 1025), "num_hidden_layers: ", "from 1 to 1024, got 1025"},
      {key("num_hidden_layers", 3), "model.safetensors: ", "no tensor \"encoder.layer.2."},
      {key("intermediate_size", 41), "model.safetensors: ", "expected numbers of shape [41, 24] as "},
      {key("hidden_act", "gelu_new"), "hidden_act: ", "expected one of [\"gelu\",\"relu\"], got \"gelu_new\""},
      {key("layer_norm_eps", "1e-12"), "layer_norm_eps: ", "expected a number from 0 to 1"},
      {key("layer_norm_eps", -1), "layer_norm_eps: ", "expected a number from 0 to 1"},
      {key("is_decoder", true), "is_decoder: ", "expected false, got true"},
      {key("position_embedding_type", "relative_key"), "position_embedding_type: ", "expected \"absolute\""},
      {weight(Tensor::zeros({24, 25})), "key.weight\": ", "expected numbers of shape [24, 24]"},
      {weight(Tensor::zeros({24, 24}, DType::int32)), "key.weight\": ", "got int32"},
      {[](Copy& copy) { copy.weights.tensors.erase(copy.weights.tensors.begin()); },
       "model.safetensors: ", "no tensor"},
      {file("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})"),
       "1_Pooling/config.json: pooling_mode_cls_token: ", "expected false, got true"},
      {file("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false})"), "mean_tokens: ", "expected true"},
      {file("1_Pooling/config.json", R"({"pooling_mode": "cls"})"), "pooling_mode: ", "expected \"mean\", got \"cls\""},
      {file("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
           {"type": "sentence_transformers.models.Pooling"}, {"type": "sentence_transformers.models.Dense"}])"),
       "modules.json: type: ", "got \"Transformer, Pooling, Dense\""},
      {file("modules.json", R"([{"type": "own.Transformer"}, 3])"), "modules.json: ", "expected modules with a type"},
      {file("config_sentence_transformers.json", R"({"prompts": {"query": "find "}})"),
       "config_sentence_transformers.json: prompts: \"query\": ", "expected \"\", got \"find \""},
      {file("config_sentence_transformers.json", R"({"default_prompt_name": "query"})"),
       "prompt_name: ", "got \"query\""},
      {file("config_sentence_transformers.json", R"({"similarity_fn_name": "dot"})"), "fn_name: ", "got \"dot\""},
  };
  for (const auto& [damage, where, what] : table) {
    Copy copy;
    damage(copy);
    CHECK_THAT(copy.refused(), ContainsSubstring(where) && ContainsSubstring(what));
  }
  const TemporaryFolder empty;
  CHECK_THAT(data_error([&] { read_bert(empty.path()); }), ContainsSubstring("config.json: cannot be opened"));
}
