#include "apps/text_search/compare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "apps/text_search/files.h"
#include "autograd/ops.h"
#include "core/error.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t compared_neighbors = 10, voting_neighbors = 5;
constexpr double rounding = 1e-6;

}  // namespace

Sequences cut_sequences(const Sequences& texts, const WordPiece& tokenizer, int64_t length, int64_t maximum) {
  Sequences all;
  const int64_t step = length - 2;
  for (const auto& text : texts)
    for (int64_t begin = 0; begin + step <= int64_t(text.size()); begin += step) {
      std::vector<int32_t>& sequence = all.emplace_back();
      sequence.push_back(tokenizer.cls());
      sequence.insert(sequence.end(), text.begin() + begin, text.begin() + begin + step);
      sequence.push_back(tokenizer.sep());
    }
  const auto found = int64_t(all.size()), n = std::min(found, maximum);
  check<UsageError>(n >= 2, "expected at least 2 sequences of ", length, " tokens, found ", found,
                    "; give more text, or shorter --lengths");
  Sequences kept;
  for (int64_t i = 0; i < n; ++i) kept.push_back(std::move(all[size_t(i * found / n)]));
  return kept;
}

std::vector<std::vector<Neighbor>> nearest_rows(const Tensor& a, const Tensor& b, int64_t k, bool same) {
  std::vector<std::vector<Neighbor>> result;
  for (int64_t i = 0; i < a.size(0); ++i) {
    const Tensor cosines = matmul(a.slice(i, i + 1), b, false, true).value();
    std::vector<Neighbor> all;
    for (int64_t j = 0; j < b.size(0); ++j)
      if (!same || j != i) all.push_back({int32_t(j), cosines.data<float>()[j]});
    const auto end = all.begin() + std::min(k, int64_t(all.size()));
    std::partial_sort(all.begin(), end, all.end(), [](const Neighbor& x, const Neighbor& y) {
      return x.cosine != y.cosine ? x.cosine > y.cosine : x.row < y.row;
    });
    result.emplace_back(all.begin(), end);
  }
  return result;
}

Json difference_of(const Tensor& mine, const Tensor& full) {
  const int64_t n = full.size(0), features = full.size(1);
  const auto my_nearest = nearest_rows(mine, mine, compared_neighbors, true),
             nearest = nearest_rows(full, full, compared_neighbors, true);
  double sum = 0, largest = 0;
  int64_t kept = 0, all = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float *x = mine.data<float>() + i * features, *y = full.data<float>() + i * features;
    const double error = 1 - std::inner_product(x, x + features, y, 0.0);
    sum += error;
    largest = std::max(largest, error);
    const auto& wanted = nearest[size_t(i)];
    for (const Neighbor& found : my_nearest[size_t(i)])
      kept += std::count_if(wanted.begin(), wanted.end(), [&](const Neighbor& each) { return each.row == found.row; });
    all += int64_t(wanted.size());
  }
  const double mean = sum / double(n);
  return {{"mean_error", mean < rounding ? 0 : mean},
          {"largest_error", largest < rounding ? 0 : largest},
          {"neighbors_kept", double(kept) / double(all)}};
}

std::vector<Example> read_examples(const std::string& text, const std::string& where) {
  std::vector<Example> examples;
  for (const std::string& line : lines_of(text)) {
    const std::string here = concat(where, ", line ", examples.size() + 1);
    const Json json = parse_json(line, here);
    try {
      examples.push_back({json.at("text"), json.at("label"), json.at("group")});
    } catch (const Json::exception&) {
      throw DataError(concat(here, ": expected an object with the strings text, label and group"));
    }
  }
  return examples;
}

Split split_by_group(std::vector<Example> examples, int64_t maximum) {
  const auto place_of = [](const Example& example) { return std::pair(xxh128(example.group), example.group); };
  std::stable_sort(examples.begin(), examples.end(),
                   [&](const Example& a, const Example& b) { return place_of(a) < place_of(b); });
  const auto size = int64_t(examples.size()), queries = std::min(maximum, size / 5);
  int64_t first = queries;  // the first reference
  while (first > 0 && first < size && examples[size_t(first)].group == examples[size_t(first) - 1].group) ++first;
  check<UsageError>(queries > 0 && first < size, "--labeled: expected at least 5 texts of several groups, got ", size);
  const auto begin = examples.begin();
  return {{begin, begin + queries}, {begin + first, begin + std::min(size, first + 4 * queries)}};
}

std::string knn_correct(const Split& split, const Tensor& rows) {
  const auto count = int64_t(split.queries.size());
  const auto nearest = nearest_rows(rows.slice(0, count), rows.slice(count, rows.size(0)), voting_neighbors, false);
  std::string right;
  for (size_t i = 0; i < split.queries.size(); ++i) {
    std::map<std::string, std::pair<int64_t, double>> votes;  // by label: votes, sum of cosines
    for (const Neighbor& neighbor : nearest[i]) {
      auto& vote = votes[split.references[size_t(neighbor.row)].label];
      ++vote.first;
      vote.second += neighbor.cosine;
    }
    const auto best =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    right += best->first == split.queries[i].label ? '1' : '0';
  }
  return right;
}

std::vector<double> interval_of(const std::string& right, const std::string& other,
                                const std::vector<Example>& examples) {
  const auto n = double(examples.size());
  const double mean =
      double(std::count(right.begin(), right.end(), '1') - std::count(other.begin(), other.end(), '1')) / n;
  std::map<std::string, double> deviations;  // the sum for each group
  for (size_t i = 0; i < examples.size(); ++i) deviations[examples[i].group] += right[i] - other[i] - mean;
  double square = 0;
  for (const auto& [group, deviation] : deviations) square += deviation * deviation;
  const double half = 1.96 * std::sqrt(square) / n;
  return {mean, mean - half, mean + half};
}

}  // namespace cairn::text_search
