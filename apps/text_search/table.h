#pragma once
// The paper's table 4 with embeddings: the label of a text, by the labels of the nearest ones, under each variant of
// attention.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/text_search/measure.h"

namespace cairn::text_search {

// A text whose label somebody else wrote. Texts of one group share wording, so they stay on one side of the split.
struct Example {
  std::string text, label, group;
};

struct Examples {
  std::vector<Example> all;
  std::string hash;  // xxh128 of the file
};
// JSON lines with the strings text, label and group. Error (DataError): they are not.
Examples read_examples(const std::filesystem::path& file);

// Numbers of examples.
struct Split {
  std::vector<size_t> train, test;
};
// The groups in the order of their names' xxh128 give their examples first to `test`, then to `train`; no group to
// both. Error (UsageError): there are too few examples.
Split split_by_group(const std::vector<Example>& examples, int64_t train, int64_t test);

// What is embedded: a sequence of tokens, its label's number and its group's.
struct Document {
  std::vector<int32_t> tokens;
  int32_t label = 0, group = 0;
};
struct Task {
  int64_t length = 0;
  std::vector<Document> train, test;
};
// Each example is a document of at most `length` tokens.
Task make_task(const std::vector<Example>& examples, const Split& split, const WordPiece& tokenizer, int64_t length);

// Which documents of the test k-nearest-neighbor classification gives their label: that of most of the `k` nearest
// documents of the training side; of labels with as many, the one whose documents are nearer in sum. A bit a document.
std::vector<uint8_t> knn_correct(const Task& task, const Tensor& train, const Tensor& test, int64_t k);

// A mean with its 95% interval.
struct Interval {
  double mean, low, high;
};
// The mean of values, one a document, over 10,000 resamplings of the groups. The same draws whenever the groups are the
// same, so what is compared is paired.
Interval bootstrap(const std::vector<double>& values, const std::vector<Document>& documents);

struct VariantScore {
  std::string spec;
  int64_t seeds = 1;    // 1 where no random number is drawn
  Interval accuracy;    // mean over the seeds
  Interval difference;  // to full attention's
  double seconds_per_token = 0;
};
struct TaskScore {
  int64_t tokens = 0;                  // of all documents
  std::vector<VariantScore> variants;  // full first
};

}  // namespace cairn::text_search
