#include "apps/text_search/labeled.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "apps/text_search/compare.h"
#include "apps/text_search/files.h"
#include "core/error.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::text_search {
namespace {

constexpr int64_t nearest = 5;

}  // namespace

std::vector<Example> read_examples(const std::string& text, const std::string& where) {
  std::vector<Example> examples;
  for (const std::string& line : lines_of(text)) {
    const std::string here = concat(where, ", line ", examples.size() + 1);
    const nlohmann::ordered_json json = parse_json(line, here);
    check<DataError>(json.is_object(), here, ": expected an object, got ", json.type_name());
    const auto text_of = [&](const char* key) {
      check<DataError>(json.contains(key) && json[key].is_string(), here, ": expected a string ", key);
      return json[key].get<std::string>();
    };
    examples.push_back({text_of("text"), text_of("label"), text_of("group")});
  }
  return examples;
}

Split split_by_group(const std::vector<Example>& examples, int64_t maximum) {
  const auto asked = size_t(std::min(maximum, int64_t(examples.size()) / 5));
  std::map<std::pair<std::string, std::string>, std::vector<Example>> groups;  // in the order of hashes
  for (const Example& example : examples) groups[{xxh128(example.group), example.group}].push_back(example);
  Split split;
  for (const auto& [group, members] : groups) {
    const bool is_asked = split.asked.size() < asked;
    for (const Example& example : members) {
      auto& side = is_asked ? split.asked : split.given;
      if (side.size() < (is_asked ? asked : 4 * asked)) side.push_back(example);
    }
  }
  check<UsageError>(!split.asked.empty() && !split.given.empty(),
                    "--labeled: expected at least 5 texts of several groups, got ", examples.size(), " of ",
                    groups.size());
  return split;
}

std::string knn_correct(const Split& split, const Tensor& rows) {
  const auto count = int64_t(split.asked.size());
  const Tensor asked = rows.slice(0, count), given = rows.slice(count, rows.size(0));
  const auto nearest_given = nearest_rows(asked, given, nearest, false);
  const int64_t features = given.size(1);
  std::string right;
  for (int64_t i = 0; i < count; ++i) {
    std::map<std::string, std::pair<int64_t, double>> votes;  // of a label: how many, and the sum of their cosines
    const float* x = asked.data<float>() + i * features;
    for (const int32_t j : nearest_given[size_t(i)]) {
      const float* y = given.data<float>() + j * features;
      auto& [votes_of, nearness] = votes[split.given[size_t(j)].label];
      ++votes_of;
      nearness += std::inner_product(x, x + features, y, 0.0);
    }
    const auto best =
        std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    right += best->first == split.asked[size_t(i)].label ? '1' : '0';
  }
  return right;
}

Interval interval_of(const std::vector<double>& values, const std::vector<Example>& examples) {
  const auto n = double(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  std::map<std::string, double> deviations;  // of a group, in sum
  for (size_t i = 0; i < values.size(); ++i) deviations[examples[i].group] += values[i] - mean;
  double square = 0;
  for (const auto& [group, deviation] : deviations) square += deviation * deviation;
  const double half = 1.96 * std::sqrt(square) / n;
  return {mean, mean - half, mean + half};
}

}  // namespace cairn::text_search
