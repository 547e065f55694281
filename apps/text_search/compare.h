#pragma once
// What attention variants make of a model's embeddings, beside full attention: the error, the nearest neighbors, the
// time, and on texts with labels (the paper's table 4) how often the nearest texts tell the label.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/text_search/embedder.h"

namespace cairn::text_search {

// "full,..." as specifications, full first and each once; the embedder has the last one then. Errors (UsageError): as
// make_attention and the weights allow.
std::vector<std::string> variants_of(Embedder& embedder, const std::string& list);

// Sequences of exactly `length` tokens: [CLS], length - 2 tokens of one text, [SEP], one behind another. If there are
// more than `maximum`, so many of them at even distances. Error (UsageError): fewer than two.
Sequences cut_sequences(const Sequences& texts, const WordPiece& tokenizer, int64_t length, int64_t maximum);

// The `k` rows of `b` that are nearest to each row of `a`, the nearest first; of equal ones the first. With `same`, b
// is a, and no row is its own neighbor. [n][min(k, rows)].
std::vector<std::vector<int32_t>> nearest_rows(const Tensor& a, const Tensor& b, int64_t k, bool same);

// Embeddings beside those by full attention: mean_error and largest_error (1 - cosine; below 1e-6, rounding, 0), and
// neighbors_kept, the share of a sequence's ten nearest neighbors that stay.
nlohmann::ordered_json difference_of(const Tensor& mine, const Tensor& full);

// Error against time as SVG, a chart for each length. A variant with several options is a curve. A row has length,
// attention, mean_error and seconds_per_token.
std::string comparison_picture(const nlohmann::ordered_json& rows);

}  // namespace cairn::text_search
