#pragma once
// Prepared data: the features and labels of all sentences, in one safetensors file.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nn/io/json.h"
#include "nn/io/safetensors.h"

namespace cairn::speech {

struct Sentence {
  std::string name;
  Tensor features;              // float32 [frames, filterbanks]
  std::vector<int32_t> labels;  // its phones
  // The label of each frame, 0 in pauses; empty: unknown. Training does not use it.
  std::vector<int32_t> alignment;

  int64_t frames() const { return features.size(0); }
  int64_t filterbanks() const { return features.size(1); }
};

// What a model keeps from the data that it learned from.
struct FrontEnd {
  std::vector<std::string> phones;     // label i stands for phones[i - 1]; label 0 is the blank
  std::vector<float> mean, deviation;  // [filterbanks], of the features in the training part

  int64_t filterbanks() const { return int64_t(mean.size()); }
  int64_t classes() const { return int64_t(phones.size()) + 1; }
  // The phone of a label, which is not the blank.
  const std::string& phone(int32_t label) const { return phones[size_t(label) - 1]; }
  // The label of a phone; 0 if there is no such phone.
  int32_t label(const std::string& phone) const;
  // (features - mean) / deviation; in place if no other tensor shares their memory.
  Tensor normalized(Tensor features) const;
  bool operator==(const FrontEnd&) const = default;
};
// Error (DataError): no name for a phone, because it is empty, has control characters or is not UTF-8.
void check_phone(const std::string& phone, const std::string& where);
Json as_json(const FrontEnd& front_end);
// Error (DataError): `json` has another form; `where` begins the message.
FrontEnd front_end_from(const Json& json, const std::string& where);
// The FrontEnd of a run, in the file of this name, with hashes of the data. Error (DataError): it is missing or
// damaged.
inline constexpr const char* front_end_name = "front_end.json";
FrontEnd read_front_end(const std::filesystem::path& run);

struct Corpus {
  FrontEnd front_end;
  // As in the file: the features are not normalized.
  std::map<std::string, std::vector<Sentence>> parts{{"train", {}}, {"dev", {}}, {"test", {}}};
  std::string where{};  // the file, for messages
};
// Error (DataError): the names of the sentences, which in `plan` have one frame and no labels yet, are too many or too
// long for a file.
void check_fits(const std::filesystem::path& path, const Corpus& plan);
// Errors: as write_safetensors.
void write_corpus(const std::filesystem::path& file, const Corpus& corpus);
// Error (DataError): the file is damaged, or not one of prepared data.
Corpus read_corpus(const TensorReader& file);

}  // namespace cairn::speech
