#include "apps/text_search/embedder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "apps/common/artifact.h"
#include "apps/common/settings.h"
#include "autograd/ops.h"
#include "core/trace.h"
#include "nn/io/bert_folder.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"

namespace cairn::text_search {
namespace {

// Some published models have rows of embeddings without a token: the vocabulary is padded to a multiple of 8, 64 or
// 128, or of 128 times the number of devices that it was split over.
constexpr int64_t most_padding = 1024;

}  // namespace

bool has_unit_length(const float* row, int64_t features) {
  double square = 0;
  for (int64_t i = 0; i < features; ++i) square += double(row[i]) * double(row[i]);
  return std::abs(square - 1) < 1e-2;
}

Embedder::Embedder(const EmbedderOptions& options)
    : options_(options), tokenizer_(read_wordpiece(options.model)), bert_(read_bert(options.model)) {
  const BertOptions& size = bert_->options;
  check<DataError>(tokenizer_.size() <= size.vocabulary, options.model / "vocab.txt", ": ", tokenizer_.size(),
                   " tokens; the model has embeddings for ", size.vocabulary);
  check<DataError>(size.vocabulary - tokenizer_.size() <= most_padding, options.model / "vocab.txt", ": ",
                   tokenizer_.size(), " tokens, and the model has embeddings for ", size.vocabulary,
                   "; is the file cut off, or that of another model?");
  if (options_.max_tokens == 0) options_.max_tokens = size.positions;
  check<UsageError>(options_.max_tokens >= 3 && options_.max_tokens <= size.positions, "--max-tokens: expected 3 to ",
                    size.positions, ", the positions that the model has, got ", options_.max_tokens);
  about_option("--attention", [&] { set_attention(options.attention); });
  move_to(*bert_, options.place.device);
  bert_->activation_dtype = options.place.activations;
  std::string hashes;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"})
    if (is_there(options.model / name)) hashes += xxh128(read_file(options.model / name));
  fingerprint_ = xxh128(hashes);
}

void Embedder::set_attention(const std::string& spec) {
  bert_->encoder.swap_attention(spec);
  options_.attention = spec;
}

Tensor Embedder::embed(const std::vector<std::vector<int32_t>>& sequences,
                       const std::function<void(int64_t sequences, int64_t tokens)>& after_batch) const {
  const trace::Span span("embed", "program");
  const NoGrad no_grad;
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sequences[a].size() < sequences[b].size(); });
  Tensor all({int64_t(sequences.size()), features()});
  float* out = all.mutable_data<float>();
  const Device device = options_.place.device;
  const Generator generator(options_.seed);
  int64_t tokens_done = 0;
  for (size_t first = 0; first < order.size(); first += size_t(options_.batch)) {
    const auto n = int64_t(std::min(order.size() - first, size_t(options_.batch)));
    const auto longest = int64_t(sequences[order[first + size_t(n) - 1]].size());
    std::vector<int32_t> tokens(size_t(n * longest), tokenizer_.pad()), lengths(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const auto& sequence = sequences[order[first + size_t(i)]];
      std::copy(sequence.begin(), sequence.end(), tokens.begin() + i * longest);
      lengths[size_t(i)] = int32_t(sequence.size());
      tokens_done += int64_t(sequence.size());
    }
    const Tensor length = Tensor::from(lengths, {n}).to(device);
    const Variable hidden = (*bert_)(Tensor::from(tokens, {n, longest}).to(device), length, {false, &generator});
    const Tensor rows = l2_normalize(mean_over_length(cast(hidden, DType::float32), length)).value().to(Device::cpu);
    for (int64_t i = 0; i < n; ++i) {
      const float* row = rows.data<float>() + i * features();
      check<DataError>(has_unit_length(row, features()), options_.model,
                       ": an embedding does not have the length 1; is the model damaged?");
      std::copy_n(row, features(), out + int64_t(order[first + size_t(i)]) * features());
    }
    if (after_batch) after_batch(int64_t(first) + n, tokens_done);
  }
  return all;
}

}  // namespace cairn::text_search
