#pragma once
// Compares the embeddings of attention variants with those of full attention: the error, the nearest neighbors, and on
// labeled texts (the paper's table 4) the accuracy of labels predicted from the nearest texts.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/text_search/embedder.h"

namespace cairn::text_search {

// Cuts texts into consecutive sequences of exactly `length` tokens (at least 3): [CLS], length - 2 tokens of one text,
// [SEP]. If there are more than `maximum`, keeps that many, evenly spaced. Error (UsageError): fewer than two.
Sequences cut_sequences(const Sequences& texts, const WordPiece& tokenizer, int64_t length, int64_t maximum);

struct Neighbor {
  int32_t row;
  float cosine;
};
// For each row of `a`, the `k` nearest rows of `b`, nearest first; among equals, the lower row first. `same` says that
// b is a: then no row is its own neighbor. [n][min(k, rows)].
std::vector<std::vector<Neighbor>> nearest_rows(const Tensor& a, const Tensor& b, int64_t k, bool same);

// Compares embeddings with those of full attention: mean_error and largest_error (1 - cosine; 0 below 1e-6, which is
// rounding), and neighbors_kept, the share of each sequence's ten nearest neighbors that stay the same.
nlohmann::ordered_json difference_of(const Tensor& mine, const Tensor& full);

// A labeled text. Texts of one group share wording, so all of them are on the same side of the split.
struct Example {
  std::string text, label, group;
};
// Reads JSON lines, each an object with the strings text, label and group. Error (DataError): something else.
std::vector<Example> read_examples(const std::string& text, const std::string& where);

// The labels of `queries` are predicted from the labels of `references`.
struct Split {
  std::vector<Example> queries, references;
};
// Orders the groups by the xxh128 of their names. The first examples become queries (a fifth of all, at most
// `maximum`), the next ones references (at most four times as many). No group is in both. Error (UsageError): one is
// empty.
Split split_by_group(std::vector<Example> examples, int64_t maximum);

// For each query, "1" if the majority label of its five nearest references is its own label, else "0". A tie goes to
// the label with the larger sum of cosines. `rows` are the embeddings of the queries, then of the references.
std::string knn_correct(const Split& split, const Tensor& rows);

// The mean of right - other, which hold "1" or "0" for each example, and its 95% interval: {mean, low, high}. Examples
// of a group are not independent, so the standard error is computed from sums over groups.
std::vector<double> interval_of(const std::string& right, const std::string& other,
                                const std::vector<Example>& examples);

}  // namespace cairn::text_search
