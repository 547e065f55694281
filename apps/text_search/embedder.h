#pragma once
// Texts in, embeddings out: a model's folder (nn/io/bert_folder.h), its tokenizer, batches.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/command.h"
#include "apps/text_search/wordpiece.h"
#include "nn/bert.h"

namespace cairn::text_search {

bool has_unit_length(const float* row, int64_t features);

struct EmbedderOptions {
  std::filesystem::path model;     // a folder with config.json, model.safetensors and vocab.txt
  std::string attention = "full";  // the specification of a variant, for all layers
  int64_t batch = 32;              // sequences that are computed together
  int64_t max_tokens = 0;          // of a sequence, [CLS] and [SEP] among them; 0: as many as the model has positions
  uint64_t seed = 1;               // of the hashing of clustered variants
  Place place;
};

class Embedder {
 public:
  // Errors: as read_bert and read_wordpiece; UsageError: a specification that cannot be made or that these weights do
  // not fit; max_tokens below 3 or more than the model has positions.
  explicit Embedder(const EmbedderOptions& options);

  const WordPiece& tokenizer() const { return tokenizer_; }
  const std::string& attention() const { return options_.attention; }
  // Another variant. Error (UsageError): it cannot be made, or these weights do not fit it.
  void set_attention(const std::string& spec);
  int64_t features() const { return bert_->options.features(); }
  int64_t max_tokens() const { return options_.max_tokens; }
  Device device() const { return options_.place.device; }
  // A hash of the model's files: all that embeddings depend on but the attention and its seed.
  const std::string& fingerprint() const { return fingerprint_; }

  // The embeddings of sequences of tokens ([CLS] first, [SEP] last, at most max_tokens): float32 [n, features] on the
  // CPU, rows of unit length, in the order of the sequences. They are computed in batches of like length, padded to the
  // longest. `after_batch`, if any, is called with how many sequences and tokens are done; Interrupted may be thrown
  // out of it. Error (DataError): an embedding does not have the length 1, because the model is damaged.
  Tensor embed(const std::vector<std::vector<int32_t>>& sequences,
               const std::function<void(int64_t sequences, int64_t tokens)>& after_batch = {}) const;

 private:
  EmbedderOptions options_;
  WordPiece tokenizer_;
  std::unique_ptr<Bert> bert_;
  std::string fingerprint_;
};

}  // namespace cairn::text_search
