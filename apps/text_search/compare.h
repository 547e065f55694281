#pragma once
// What attention variants make of a model's embeddings, beside full attention: the error and the nearest neighbors; and
// on texts with labels (the paper's table 4) how often the nearest texts tell the label.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/text_search/embedder.h"

namespace cairn::text_search {

// Sequences of exactly `length` tokens, at least 3: [CLS], length - 2 tokens of one text, [SEP], one behind another. If
// there are more than `maximum`, so many of them at even distances. Error (UsageError): fewer than two.
Sequences cut_sequences(const Sequences& texts, const WordPiece& tokenizer, int64_t length, int64_t maximum);

struct Neighbor {
  int32_t row;
  float cosine;
};
// The `k` rows of `b` that are nearest to each row of `a`, the nearest first; of equal ones the first. With `same`, b
// is a, and no row is its own neighbor. [n][min(k, rows)].
std::vector<std::vector<Neighbor>> nearest_rows(const Tensor& a, const Tensor& b, int64_t k, bool same);

// Embeddings beside those by full attention: mean_error and largest_error (1 - cosine; below 1e-6, rounding, 0), and
// neighbors_kept, the share of a sequence's ten nearest neighbors that stay.
nlohmann::ordered_json difference_of(const Tensor& mine, const Tensor& full);

// A text whose label somebody else wrote. Texts of one group share wording, so they stay on one side of the split.
struct Example {
  std::string text, label, group;
};
// JSON lines with the strings text, label and group. Error (DataError): they are not.
std::vector<Example> read_examples(const std::string& text, const std::string& where);

// Examples whose label is asked for, and those whose label is given.
struct Split {
  std::vector<Example> asked, given;
};
// The groups in the order of their names' xxh128 give their examples first to those asked for, a fifth of all and at
// most `maximum`, then to the others, four times as many; no group to both. Error (UsageError): one side is empty.
Split split_by_group(std::vector<Example> examples, int64_t maximum);

// For each example that is asked for, "1" where k-nearest-neighbor classification gives its label, else "0": the label
// of most of the five nearest; of labels with as many, the one whose examples are nearer in sum. `rows` are the
// embeddings of those asked for, then of the others.
std::string knn_correct(const Split& split, const Tensor& rows);

// The mean of right - other, which have "1" or "0" for each example, and its 95% interval: {mean, low, high}. Examples
// of a group are not independent: the standard error is that of sums over groups.
std::vector<double> interval_of(const std::string& right, const std::string& other,
                                const std::vector<Example>& examples);

}  // namespace cairn::text_search
