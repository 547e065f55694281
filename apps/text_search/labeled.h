#pragma once
// The paper's table 4 with embeddings: the label of a text, by the labels of the nearest ones.
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace cairn::text_search {

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
Split split_by_group(const std::vector<Example>& examples, int64_t maximum);

// For each example that is asked for, "1" where k-nearest-neighbor classification gives its label, else "0": the label
// of most of the five nearest; of labels with as many, the one whose examples are nearer in sum. `rows` are the
// embeddings of those asked for, then of the others.
std::string knn_correct(const Split& split, const Tensor& rows);

// A mean with its 95% interval.
struct Interval {
  double mean, low, high;
};
// Of values, one an example. Examples of a group are not independent: the standard error is that of sums over groups.
Interval interval_of(const std::vector<double>& values, const std::vector<Example>& examples);

}  // namespace cairn::text_search
