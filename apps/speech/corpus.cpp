#include "apps/speech/corpus.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/speech/features.h"
#include "core/error.h"
#include "nn/io/json.h"
#include "nn/io/safetensors.h"

namespace cairn::speech {
namespace {

std::vector<int32_t> read_labels(const TensorReader& file, const std::string& name, int32_t low, size_t phones) {
  const Tensor tensor = file.read(name);
  check<DataError>(tensor.dtype() == DType::int32 && tensor.rank() == 1, file.where, ": ", in_quotes(name),
                   ": expected int32 [n], got ", cairn::name(tensor.dtype()), " ", tensor.shape());
  std::vector<int32_t> labels = tensor.to_vector<int32_t>();
  for (const int32_t label : labels)
    check<DataError>(label >= low && label <= int64_t(phones), file.where, ": ", in_quotes(name), ": expected labels ",
                     low, " to ", phones, ", got ", label);
  return labels;
}

Sentence read_sentence(const TensorReader& file, const std::string& name, const FrontEnd& front_end) {
  const size_t phones = front_end.phones.size();
  const Tensor features = file.read(name + "/features");
  check<DataError>(features.dtype() == DType::float32 && features.rank() == 2 && features.size(0) > 0 &&
                       features.size(1) == front_end.filterbanks(),
                   file.where, ": ", in_quotes(name), ": expected float32 features [frames, ", front_end.filterbanks(),
                   "], got ", cairn::name(features.dtype()), " ", features.shape());
  Sentence sentence{name, features, read_labels(file, name + "/labels", 1, phones), {}};
  if (!file.contains(name + "/alignment")) return sentence;
  sentence.alignment = read_labels(file, name + "/alignment", 0, phones);
  check<DataError>(int64_t(sentence.alignment.size()) == sentence.frames(), file.where, ": ", in_quotes(name),
                   ": the alignment has ", sentence.alignment.size(), " frames, the features have ", sentence.frames());
  return sentence;
}

}  // namespace

int32_t FrontEnd::label(const std::string& phone) const {
  const auto found = std::find(phones.begin(), phones.end(), phone);
  return found == phones.end() ? 0 : int32_t(found - phones.begin()) + 1;
}

Tensor FrontEnd::normalized(Tensor features) const {
  Tensor result = features.unique() ? std::move(features) : features.clone();
  auto* x = result.mutable_data<float>();
  for (int64_t i = 0; i < result.elements(); ++i) {
    const auto filter = size_t(i % filterbanks());
    x[i] = (x[i] - mean[filter]) / deviation[filter];
  }
  return result;
}

void check_phone(const std::string& phone, const std::string& where) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 127; };
  check<DataError>(!phone.empty() && std::none_of(phone.begin(), phone.end(), is_control) && is_utf8(phone), where,
                   ": expected a phone's name in UTF-8, got ", in_quotes(phone));
}

Json as_json(const FrontEnd& front_end) {
  return {{"phones", front_end.phones}, {"mean", front_end.mean}, {"deviation", front_end.deviation}};
}

FrontEnd front_end_from(const Json& json, const std::string& where) try {
  FrontEnd found{json.at("phones"), json.at("mean"), json.at("deviation")};
  check<DataError>(
      !found.mean.empty() && found.filterbanks() <= most_filterbanks && found.deviation.size() == found.mean.size(),
      where, ": expected mean and deviation of 1 to ", most_filterbanks, " features");
  for (const std::string& phone : found.phones) check_phone(phone, where);
  return found;
} catch (const Json::exception&) {
  throw DataError(concat(where, ": expected phones, mean and deviation; is it made by speech?"));
}

FrontEnd read_front_end(const std::filesystem::path& run) {
  const std::filesystem::path file = run / front_end_name;
  return front_end_from(read_json(file), file);
}

static TensorFile as_file(const std::filesystem::path& path, const Corpus& corpus) {
  TensorFile file{{}, {}, path.string()};
  Json parts;
  for (const auto& [part, sentences] : corpus.parts) {
    parts[part] = Json::array();
    for (const Sentence& sentence : sentences) {
      parts[part].push_back(sentence.name);
      const auto add = [&](const char* what, const Tensor& tensor) {
        file.tensors.emplace_back(concat(sentence.name, "/", what), tensor);
      };
      add("features", sentence.features);
      add("labels", Tensor::from(sentence.labels, {int64_t(sentence.labels.size())}));
      if (!sentence.alignment.empty()) add("alignment", Tensor::from(sentence.alignment, {sentence.frames()}));
    }
  }
  file.metadata = {{"front_end", as_json(corpus.front_end).dump()}, {"parts", parts.dump()}};
  return file;
}

void check_fits(const std::filesystem::path& path, const Corpus& plan) {
  const TensorFile file = as_file(path, plan);
  constexpr size_t digits = 16;  // more, in a tensor's sizes and offsets: enough for recordings of minutes
  std::string header;
  safetensors_pieces(file, header, digits * file.tensors.size());
}

void write_corpus(const std::filesystem::path& path, const Corpus& corpus) {
  write_safetensors(path, as_file(path, corpus));
}

Corpus read_corpus(const TensorReader& file) try {
  const auto about = [&](const char* key) {
    const auto found = file.metadata.find(key);
    check<DataError>(found != file.metadata.end(), file.where, ": no prepared data; make some with speech prepare");
    return parse_json(found->second, concat(file.where, ": ", key));
  };
  Corpus corpus{.front_end = front_end_from(about("front_end"), file.where), .where = file.where};
  const Json parts = about("parts");
  for (auto& [part, sentences] : corpus.parts)
    for (const std::string name : parts.at(part)) sentences.push_back(read_sentence(file, name, corpus.front_end));
  return corpus;
} catch (const Json::exception&) {
  throw DataError(concat(file.where, ": parts: expected lists of names for train, dev and test"));
}

}  // namespace cairn::speech
