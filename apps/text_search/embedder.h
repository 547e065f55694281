#pragma once
// Texts in, embeddings out: a model's folder (nn/io/bert_folder.h), its tokenizer, batches.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/command.h"
#include "apps/text_search/wordpiece.h"
#include "nn/bert.h"

namespace cairn::text_search {

struct EmbedderOptions {
  std::string model;               // a folder with config.json, model.safetensors and vocab.txt
  std::string attention = "full";  // the specification of a variant, for all layers
  int64_t batch = 32;              // sequences that are computed together
  ComputeSettings compute;         // its seed is that of the hashing of clustered variants

  // Declares all but --attention.
  void fields(SettingFields& f);
};

using Sequences = std::vector<std::vector<int32_t>>;

class Embedder {
 public:
  // Errors: as read_bert, read_wordpiece and ComputeSettings::apply; UsageError: as set_attention.
  explicit Embedder(const EmbedderOptions& options);

  const WordPiece& tokenizer() const { return tokenizer_; }
  // Another variant. Error (UsageError): it cannot be made, or these weights do not fit it.
  void set_attention(const std::string& spec);
  int64_t features() const { return bert_->options.features(); }
  int64_t max_tokens() const { return bert_->options.positions; }
  Device device() const { return place_.device; }
  // A hash of the model's files: all that embeddings depend on but the attention and its seed.
  const std::string& fingerprint() const { return fingerprint_; }

  // The embeddings of sequences of tokens ([CLS] first, [SEP] last, at most max_tokens): float32 [n, features] on the
  // CPU, rows of unit length, in the order of the sequences. They are computed in batches of like length, the longest
  // first, padded to the longest; `after_each` gets each sequence's number and embedding as soon as it is there. Shows
  // its progress unless `quiet`, and says so where the variant computes full attention. Throws Interrupted between two
  // batches.
  using AfterEach = std::function<void(size_t sequence, const float* row)>;
  Tensor embed(const Sequences& sequences, bool quiet = true, const AfterEach& after_each = {}) const;

 private:
  EmbedderOptions options_;
  Place place_;
  WordPiece tokenizer_;
  std::unique_ptr<Bert> bert_;
  std::string fingerprint_;
};

}  // namespace cairn::text_search
