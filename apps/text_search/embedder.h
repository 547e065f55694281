#pragma once
// Computes the embeddings of texts with a pretrained model (nn/io/bert_folder.h) and its tokenizer, in batches.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/settings.h"
#include "apps/text_search/wordpiece.h"
#include "nn/bert.h"

namespace cairn::text_search {

struct EmbedderOptions {
  std::string model;               // a folder with config.json, model.safetensors and vocab.txt
  std::string attention = "full";  // specification of the variant, for all layers
  int64_t batch = 32;              // sequences computed at once
  ComputeSettings compute;         // its seed seeds the hashing of clustered variants

  // Declares all options except --attention.
  void fields(SettingFields& f);
};

using Sequences = std::vector<std::vector<int32_t>>;

class Embedder {
 public:
  // Errors: as read_bert, read_wordpiece and ComputeSettings::apply; UsageError: as set_attention.
  explicit Embedder(const EmbedderOptions& options);

  const WordPiece& tokenizer() const { return tokenizer_; }
  // Switches to another variant. Error (UsageError): no such variant, or the model's weights do not fit it.
  void set_attention(const std::string& spec);
  int64_t features() const { return bert_->options.features(); }
  int64_t positions() const { return bert_->options.positions; }
  // The most tokens that the model's folder allows for a text.
  int64_t max_tokens() const { return std::min(positions(), tokenizer_.max_tokens()); }
  Device device() const { return compute_.device; }
  // A hash of the model's files. Embeddings depend on it, the attention and the seed alone.
  const std::string& fingerprint() const { return fingerprint_; }

  // The tokens of texts, at most max_tokens() of each. A line on standard error says how many have more. Throws
  // Interrupted between texts.
  Sequences encode(const std::vector<std::string>& texts) const;

  // The embeddings of sequences of tokens ([CLS] first, [SEP] last, at most positions()): float32 [n, features] on the
  // CPU, rows of unit length, in the order of the sequences. Batches hold sequences of similar length, padded to the
  // longest; the longest sequences come first. Calls `after_each` with each sequence's index and embedding after its
  // batch. Unless `quiet`, shows progress and notes when the variant computes full attention. Throws Interrupted
  // between batches.
  using AfterEach = std::function<void(size_t sequence, const float* row)>;
  Tensor embed(const Sequences& sequences, bool quiet = true, const AfterEach& after_each = {}) const;

 private:
  EmbedderOptions options_;
  DeviceAndDType compute_;
  WordPiece tokenizer_;
  std::unique_ptr<Bert> bert_;
  std::string fingerprint_;
};

}  // namespace cairn::text_search
