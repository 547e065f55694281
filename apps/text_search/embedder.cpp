#include "apps/text_search/embedder.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "apps/common/options.h"
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

std::unique_ptr<Bert> read_model(const std::filesystem::path& folder) {
  for (const char* name : {"config.json", "model.safetensors"}) expect_model_file(folder, name);
  return read_bert(folder);
}

}  // namespace

Embedder::Embedder(const EmbedderOptions& options)
    : options_(options),
      tokenizer_(std::make_unique<WordPiece>(read_wordpiece(options.model))),
      bert_(read_model(options.model)) {
  const BertOptions& size = bert_->options;
  check<DataError>(tokenizer_->size() <= size.vocabulary, options.model / "vocab.txt", ": ", tokenizer_->size(),
                   " tokens; the model has embeddings for ", size.vocabulary);
  check<DataError>(size.vocabulary - tokenizer_->size() <= most_padding, options.model / "vocab.txt", ": ",
                   tokenizer_->size(), " tokens, and the model has embeddings for ", size.vocabulary,
                   "; is the file cut off, or that of another model?");
  if (options_.max_tokens == 0) options_.max_tokens = size.positions;
  check<UsageError>(options_.max_tokens >= 3 && options_.max_tokens <= size.positions, "--max-tokens: expected 3 to ",
                    size.positions, ", the positions that the model has, got ", options_.max_tokens);
  set_attention(options.attention);
  move_to(*bert_, options.compute.device);
  bert_->activation_dtype = options.compute.activations;
  Xxh128 hash;
  for (auto& [name, parameter] : named_parameters(*bert_)) {
    const Tensor host = parameter.value().to(Device::cpu);
    hash.add(host.raw(), host.bytes());
  }
  for (int32_t id = 0; id < tokenizer_->size(); ++id)
    hash.add(tokenizer_->token(id).c_str(), tokenizer_->token(id).size() + 1);
  const WordPieceOptions& words = tokenizer_->options();
  const std::string rest = concat(size.heads, ' ', size.epsilon, ' ', int(size.activation), ' ', words.lower_case, ' ',
                                  words.strip_accents, ' ', words.split_cjk);
  hash.add(rest.data(), rest.size());
  fingerprint_ = hash.text();
}

void Embedder::set_attention(const std::string& spec) {
  about_option("--attention", [&] { bert_->encoder.swap_attention(spec); });
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
  const Device device = options_.compute.device;
  const Generator generator(options_.seed);
  int64_t tokens_done = 0;
  for (size_t first = 0; first < order.size(); first += size_t(options_.batch)) {
    const auto n = int64_t(std::min(order.size() - first, size_t(options_.batch)));
    const auto longest = int64_t(sequences[order[first + size_t(n) - 1]].size());
    std::vector<int32_t> tokens(size_t(n * longest), tokenizer_->pad()), lengths(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const auto& sequence = sequences[order[first + size_t(i)]];
      std::copy(sequence.begin(), sequence.end(), tokens.begin() + i * longest);
      lengths[size_t(i)] = int32_t(sequence.size());
      tokens_done += int64_t(sequence.size());
    }
    const Tensor length = Tensor::from(lengths, {n}).to(device);
    const Variable hidden = (*bert_)(Tensor::from(tokens, {n, longest}).to(device), length, {false, &generator});
    const Tensor rows = l2_normalize(mean_over_length(cast(hidden, DType::float32), length)).value().to(Device::cpu);
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(rows.data<float>() + i * features(), features(),
                  out + int64_t(order[first + size_t(i)]) * features());
    if (after_batch) after_batch(int64_t(first) + n, tokens_done);
  }
  return all;
}

}  // namespace cairn::text_search
