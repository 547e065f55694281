#include "apps/text_search/table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/ops.h"
#include "core/random.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"
#include "nn/purpose.h"

namespace cairn::text_search {
namespace {

using Json = nlohmann::ordered_json;

// A number for each text, in the order of the texts.
class Numbers {
 public:
  int32_t operator[](const std::string& text) {
    return numbers_.try_emplace(text, int32_t(numbers_.size())).first->second;
  }

 private:
  std::map<std::string, int32_t> numbers_;
};

}  // namespace

Examples read_examples(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  Examples examples{{}, xxh128(text)};
  size_t line = 1;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1, ++line) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string where = concat(file, ", line ", line);
    const Json json = parse_json(std::string_view(text).substr(begin, end - begin), where);
    Example example;
    check<DataError>(json.is_object(), where, ": expected an object, got ", json.type_name());
    for (auto [key, value] : {std::pair("text", &example.text), {"label", &example.label}, {"group", &example.group}}) {
      check<DataError>(json.contains(key) && json[key].is_string(), where, ": expected a string ", key);
      *value = json[key].get<std::string>();
    }
    examples.all.push_back(std::move(example));
  }
  return examples;
}

Split split_by_group(const std::vector<Example>& examples, int64_t train, int64_t test) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> groups;  // in the order of hashes
  for (size_t i = 0; i < examples.size(); ++i) groups[{xxh128(examples[i].group), examples[i].group}].push_back(i);
  Split split;
  for (const auto& [group, members] : groups) {
    const bool is_test = int64_t(split.test.size()) < test;
    auto& side = is_test ? split.test : split.train;
    for (const size_t i : members)
      if (int64_t(side.size()) < (is_test ? test : train)) side.push_back(i);
  }
  check<UsageError>(int64_t(split.test.size()) == test && int64_t(split.train.size()) == train, "expected ", train,
                    " examples and ", test, " others of other groups, got ", examples.size(), " in all, in ",
                    groups.size(), " groups");
  return split;
}

Task make_task(const std::vector<Example>& examples, const Split& split, const WordPiece& tokenizer, int64_t length) {
  Task task{length, {}, {}};
  Numbers labels, groups;
  for (const bool is_test : {false, true})
    for (const size_t i : is_test ? split.test : split.train) {
      const Example& example = examples[i];
      (is_test ? task.test : task.train)
          .push_back({tokenizer.encode(example.text, length), labels[example.label], groups[example.group]});
    }
  return task;
}

std::vector<uint8_t> knn_correct(const Task& task, const Tensor& train, const Tensor& test, int64_t k) {
  std::vector<uint8_t> right;
  const auto nearest = nearest_rows(test, train, k, false);
  const int64_t features = train.size(1);
  for (size_t i = 0; i < task.test.size(); ++i) {
    struct Vote {
      int64_t count = 0;
      double nearness = 0;
    };
    std::map<int32_t, Vote> votes;
    const float* x = test.data<float>() + int64_t(i) * features;
    for (const int32_t j : nearest[i]) {
      const float* y = train.data<float>() + j * features;
      Vote& vote = votes[task.train[size_t(j)].label];
      ++vote.count, vote.nearness += std::inner_product(x, x + features, y, 0.0);
    }
    const auto best = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.count, a.second.nearness) < std::pair(b.second.count, b.second.nearness);
    });
    right.push_back(best != votes.end() && best->first == task.test[i].label);
  }
  return right;
}

Interval bootstrap(const std::vector<double>& values, const std::vector<Document>& documents) {
  constexpr int resamplings = 10000;
  std::map<int32_t, std::pair<double, double>> by_group;  // sum, count
  for (size_t i = 0; i < values.size(); ++i)
    by_group[documents[i].group].first += values[i], ++by_group[documents[i].group].second;
  std::vector<std::pair<double, double>> groups;
  for (const auto& each : by_group) groups.push_back(each.second);
  if (groups.empty()) return {NAN, NAN, NAN};
  RandomStream random(0, 0, Purpose::data, 4);
  std::vector<double> means;
  for (int r = 0; r < resamplings; ++r) {
    double sum = 0, count = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto& drawn = groups[random.below(uint32_t(groups.size()))];
      sum += drawn.first, count += drawn.second;
    }
    means.push_back(sum / count);
  }
  std::sort(means.begin(), means.end());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
  return {mean, means[resamplings / 40], means[resamplings - 1 - resamplings / 40]};
}

}  // namespace cairn::text_search
