#include "apps/text_search/compare.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "core/error.h"

namespace cairn::text_search {
namespace {

constexpr double rounding = 1e-6;

// For each row, which are of unit length, the ten nearest other rows; of equally near ones, the lower ones.
std::vector<std::set<int64_t>> nearest_rows(const Tensor& rows) {
  std::vector<std::set<int64_t>> result;
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const Tensor cosines = matmul(rows.slice(i, i + 1), rows, false, true).value();
    std::vector<std::pair<float, int64_t>> others;
    for (int64_t j = 0; j < rows.size(0); ++j)
      if (j != i) others.emplace_back(-cosines.data<float>()[j], j);
    std::sort(others.begin(), others.end());
    std::set<int64_t>& nearest = result.emplace_back();
    for (size_t j = 0; j < std::min<size_t>(10, others.size()); ++j) nearest.insert(others[j].second);
  }
  return result;
}

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

Json embedding_difference(const Tensor& mine, const Tensor& full) {
  const int64_t n = full.size(0), features = full.size(1);
  const auto my_nearest = nearest_rows(mine), nearest = nearest_rows(full);
  double sum = 0, largest = 0;
  int64_t kept = 0, all = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float *x = mine.data<float>() + i * features, *y = full.data<float>() + i * features;
    const double error = 1 - std::inner_product(x, x + features, y, 0.0);
    sum += error;
    largest = std::max(largest, error);
    for (const int64_t row : my_nearest[size_t(i)]) kept += nearest[size_t(i)].count(row);
    all += int64_t(nearest[size_t(i)].size());
  }
  const double mean = sum / double(n);
  return {{"mean_error", mean < rounding ? 0 : mean},
          {"largest_error", largest < rounding ? 0 : largest},
          {"neighbors_kept", double(kept) / double(all)}};
}

}  // namespace cairn::text_search
