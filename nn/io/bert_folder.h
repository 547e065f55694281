#pragma once
// A BERT model in the folder that it is published in: config.json, with the sizes, and model.safetensors, with the
// weights under their published names.
#include <filesystem>
#include <memory>
#include <string_view>

#include "nn/bert.h"

namespace cairn {

// The sizes in a config.json. `where` begins every message. Errors (DataError): not JSON, another architecture, a size
// that is missing or out of range.
BertOptions parse_bert_config(std::string_view text, const std::string& where);

// The model, on the CPU, with full attention. Tensors that it does not use (a pooler, heads of its training) are passed
// over. float16, bfloat16 and float64 become float32. Errors (DataError): a file is missing or damaged; a tensor is
// missing or has another shape; modules.json, the pooling's config.json or config_sentence_transformers.json, where
// they are there, ask for another embedding of a text than the mean of its tokens'.
std::unique_ptr<Bert> read_bert(const std::filesystem::path& folder);

}  // namespace cairn
