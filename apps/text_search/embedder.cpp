#include "apps/text_search/embedder.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "autograd/ops.h"
#include "core/trace.h"
#include "nn/attention/attention.h"
#include "nn/io/bert_folder.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/safetensors.h"

namespace cairn::text_search {

void EmbedderOptions::fields(SettingFields& f) {
  f("model", model, Text::folder, "folder of a published BERT model", Keep::not_in_config);
  f("batch", batch, {1, 4096}, "texts embedded at once");
  compute.fields(f);
}

Embedder::Embedder(const EmbedderOptions& options)
    : options_(options),
      compute_(options.compute.apply()),
      tokenizer_(read_wordpiece(options.model)),
      bert_(read_bert(options.model)) {
  const std::filesystem::path folder = options.model;
  check<DataError>(tokenizer_.size() <= bert_->options.vocabulary, folder / "vocab.txt", ": ", tokenizer_.size(),
                   " tokens, but the model has embeddings for ", bert_->options.vocabulary);
  name_in_errors("--attention", [&] { set_attention(options.attention); });
  place(*bert_, compute_);
  std::string hashes;
  for (const std::string name :
       {"config.json", "model.safetensors", "sentence_bert_config.json", "tokenizer_config.json", "vocab.txt"})
    if (is_there(folder / name))
      hashes += name == "model.safetensors" ? TensorReader(folder / name).hash() : xxh128(read_file(folder / name));
  fingerprint_ = xxh128(hashes);
}

void Embedder::set_attention(const std::string& spec) {
  bert_->encoder.swap_attention(spec);
  options_.attention = spec;
}

Sequences Embedder::encode(const std::vector<std::string>& texts) const {
  Sequences sequences;
  int64_t longer = 0;
  for (const std::string& text : texts) {
    if (interrupted()) throw Interrupted();
    std::vector<int32_t> tokens = tokenizer_.encode(text);
    if (int64_t(tokens.size()) > max_tokens()) {
      ++longer;
      tokens.erase(tokens.begin() + max_tokens() - 1, tokens.end() - 1);  // the last one is [SEP]
    }
    sequences.push_back(std::move(tokens));
  }
  if (longer > 0)
    note(concat("texts with more than ", max_tokens(), " tokens, whose ends are ignored: ", longer, " of ",
                texts.size(), "; cut them into shorter ones"),
         false);
  return sequences;
}

Tensor Embedder::embed(const Sequences& sequences, bool quiet, const AfterEach& after_each) const {
  const trace::Span span("embed", "program");
  const NoGrad no_grad;
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sequences[a].size() > sequences[b].size(); });
  Tensor all({int64_t(sequences.size()), features()});
  float* out = all.mutable_data<float>();
  const Generator generator(uint64_t(options_.compute.seed));
  const int64_t most = order.empty() ? 0 : int64_t(sequences[order[0]].size());
  note(full_attention_note(*make_attention(options_.attention), most, most), quiet);
  Progress progress(int64_t(sequences.size()), quiet || sequences.empty());
  for (size_t first = 0; first < order.size(); first += size_t(options_.batch)) {
    if (interrupted()) throw Interrupted();
    const size_t end = std::min(order.size(), first + size_t(options_.batch));
    const std::vector<size_t> batch(order.begin() + int64_t(first), order.begin() + int64_t(end));
    const auto n = int64_t(batch.size()), longest = int64_t(sequences[batch[0]].size());
    std::vector<int32_t> tokens(size_t(n * longest), tokenizer_.pad()), lengths;
    for (const size_t i : batch) {
      std::copy(sequences[i].begin(), sequences[i].end(), tokens.begin() + int64_t(lengths.size()) * longest);
      lengths.push_back(int32_t(sequences[i].size()));
    }
    const Tensor length = Tensor::from(lengths, {n}).to(compute_.device);
    const Tensor input = Tensor::from(tokens, {n, longest}).to(compute_.device);
    const Variable hidden = (*bert_)(input, length, {.generator = &generator});
    const Tensor rows = l2_normalize(mean_over_length(cast(hidden, DType::float32), length)).value().to(Device::cpu);
    const float* row = rows.data<float>();
    for (const size_t i : batch) {
      std::copy_n(row, features(), out + int64_t(i) * features());
      if (after_each) after_each(i, row);
      row += features();
    }
    progress.update(int64_t(end), options_.attention);
  }
  progress.finish();
  return all;
}

}  // namespace cairn::text_search
