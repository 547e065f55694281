#include "nn/io/bert_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "core/did_you_mean.h"
#include "core/trace.h"
#include "nn/io/file.h"
#include "nn/io/json.h"
#include "nn/io/safetensors.h"

namespace cairn {
namespace {

// Reads one config.json.
struct Config {
  const Json& json;
  const std::string& where;

  // The value of a key as a message shows it.
  std::string shown(const char* key) const {
    return json.contains(key) ? json[key].dump(-1, ' ', true).substr(0, 80) : "nothing";
  }
  int64_t size(const char* key, int64_t maximum) const {
    const Json value = json.value(key, Json());
    check<DataError>(value.is_number_unsigned() && value >= 1 && value <= maximum, where, ": ", key,
                     ": expected a whole number from 1 to ", maximum, ", got ", shown(key));
    return value.get<int64_t>();
  }
};

// Error (DataError): the folder asks for another embedding of a text than the mean of its tokens', with or without a
// division by its length.
void check_sentence_embedding(const std::filesystem::path& folder) {
  const auto modules_file = folder / "modules.json";
  std::string modules = "Transformer, Pooling", pooling = "1_Pooling";
  std::error_code error;
  if (std::filesystem::symlink_status(modules_file, error).type() != std::filesystem::file_type::not_found) {
    std::vector<std::string> names;
    const Json list = read_json(modules_file);
    check<DataError>(list.is_array(), modules_file, ": expected an array, got ", list.type_name());
    for (const Json& module : list) {
      check<DataError>(
          module.is_object() && module.value("type", Json()).is_string() && module.value("path", Json("")).is_string(),
          modules_file, ": expected modules with a type and a path");
      const std::string type = module.at("type");
      names.push_back(type.starts_with("sentence_transformers.") ? type.substr(type.rfind('.') + 1) : type);
      if (names.back() == "Transformer") expect_one_of(module, modules_file.string() + ": Transformer", "path", {""});
      if (names.back() == "Pooling") pooling = module.value("path", pooling);
    }
    modules = joined(names);
  }
  const bool normalized = modules == "Transformer, Pooling, Normalize";
  check<DataError>(normalized || modules == "Transformer, Pooling", modules_file,
                   ": type: expected Transformer, Pooling and perhaps Normalize, got ", in_quotes(modules),
                   "; nothing else is supported");

  const std::string pooling_file = folder / pooling / "config.json";
  const Json modes = read_optional_object(pooling_file);
  expect_one_of(modes, pooling_file, "pooling_mode", {"mean"});
  for (const auto& [key, value] : modes.items())
    if (key.starts_with("pooling_mode_")) expect_one_of(modes, pooling_file, key, {key == "pooling_mode_mean_tokens"});

  const std::string where = folder / "config_sentence_transformers.json";
  const Json config = read_optional_object(where), prompts = config.value("prompts", Json());
  expect_one_of(config, where, "default_prompt_name", {nullptr});
  for (const auto& [name, text] : prompts.items())
    check<DataError>(text == "", where, ": prompts: ", in_quotes(name), ": expected \"\", got ",
                     text.dump(-1, ' ', true).substr(0, 80), "; nothing is put before a text");
  // All three rank vectors of length one alike.
  expect_one_of(config, where, "similarity_fn_name",
                normalized ? Json::array({"cosine", "dot", "euclidean"}) : Json::array({"cosine"}));
}

}  // namespace

BertOptions parse_bert_config(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  check<DataError>(json.is_object(), where, ": expected an object, got ", json.type_name());
  const Config config{json, where};
  check<DataError>(json.value("model_type", Json()) == "bert", where, ": model_type: expected \"bert\", got ",
                   config.shown("model_type"), "; other architectures are not supported");
  expect_one_of(json, where, "position_embedding_type", {"absolute"});
  expect_one_of(json, where, "is_decoder", {false});
  expect_one_of(json, where, "add_cross_attention", {false});
  BertOptions options;
  constexpr int64_t most = 1 << 20;
  options.vocabulary = config.size("vocab_size", most);
  options.positions = config.size("max_position_embeddings", most);
  options.types = config.size("type_vocab_size", most);
  options.layers = config.size("num_hidden_layers", 1024);
  options.heads = config.size("num_attention_heads", most);
  const int64_t features = config.size("hidden_size", most);
  check<DataError>(features % options.heads == 0, where, ": hidden_size: ", features, " is no multiple of ",
                   options.heads, " heads (num_attention_heads)");
  options.head_size = features / options.heads;
  options.feed_forward = config.size("intermediate_size", most);
  expect_one_of(json, where, "hidden_act", {"gelu", "relu"});
  options.activation = json.value("hidden_act", Json()) == "relu" ? Unary::relu : Unary::gelu;
  const Json epsilon = json.value("layer_norm_eps", Json(options.epsilon));
  check<DataError>(epsilon.is_number() && epsilon.get<double>() >= 0 && epsilon.get<double>() <= 1, where,
                   ": layer_norm_eps: expected a number from 0 to 1, got ", config.shown("layer_norm_eps"));
  options.epsilon = epsilon.get<double>();
  return options;
}

std::unique_ptr<Bert> read_bert(const std::filesystem::path& folder) {
  const trace::Span span("read model", "io");
  const auto config = folder / "config.json";
  const BertOptions options = parse_bert_config(read_file(config), config.string());
  check_sentence_embedding(folder);
  const TensorReader file(folder / "model.safetensors");
  Generator generator;
  auto bert = std::make_unique<Bert>(options, generator);
  for (auto& [name, parameter] : named_parameters(*bert)) {
    const TensorReader::Entry& found = file.at(name);
    check<DataError>(is_floating(found.dtype) && found.shape == parameter.shape(), file.where, ": tensor ",
                     in_quotes(name), ": expected numbers of shape ", parameter.shape(), " as ", config, " says, got ",
                     cairn::name(found.dtype), " of shape ", found.shape);
    file.read(name, parameter.mutable_value());
  }
  return bert;
}

}  // namespace cairn
