// The measures of text-search compare against slow, simple computations.
#include "apps/text_search/compare.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/io/io_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;

namespace {

Tensor circle(const std::vector<double>& angles) {
  std::vector<float> values;
  for (const double angle : angles) values.insert(values.end(), {float(std::cos(angle)), float(std::sin(angle))});
  return Tensor::from(values, {int64_t(angles.size()), 2});
}

}  // namespace

TEST_CASE("embeddings are compared with those of full attention", "[text_search]") {
  // The ten nearest of twelve are all others except the farthest.
  std::vector<double> angles, moved;
  for (int i = 0; i < 12; ++i) angles.push_back(0.1 * i);
  moved = angles;
  moved[11] = 1.09;
  moved[0] = 0.6;  // changes which one is the farthest from itself and from the last six
  const auto other = embedding_difference(circle(moved), circle(angles));
  const double first = 1 - std::cos(0.6), last = 1 - std::cos(0.01);
  CHECK(other["mean_error"].get<double>() == Approx((first + last) / 12).margin(1e-6));
  CHECK(other["largest_error"].get<double>() == Approx(first).margin(1e-6));
  CHECK(other["neighbors_kept"].get<double>() == Approx(1 - 7 * 0.1 / 12));
  // Rounding does not count as error.
  moved = angles;
  moved[5] += 1e-4;
  const auto same = embedding_difference(circle(moved), circle(angles));
  CHECK((same["mean_error"] == 0 && same["largest_error"] == 0 && same["neighbors_kept"] == 1));
}

TEST_CASE("texts are cut into sequences of the same length", "[text_search]") {
  const WordPiece tokenizer = read_wordpiece(CAIRN_SOURCE_DIR "/tests/golden/bert");
  Sequences texts;
  for (const int n : {100, 51, 5, 34}) {
    texts.emplace_back();
    for (int i = 0; i < n; ++i) texts.back().push_back(int32_t(1000 * texts.size()) + i);
  }
  const Sequences all = cut_sequences(texts, tokenizer, 13, 1000);
  REQUIRE(all.size() == 9 + 4 + 0 + 3);
  CHECK((all[9].front() == 2 && all[9][1] == 2000 && all[9][11] == 2010 && all[9].back() == 3));
  const Sequences kept = cut_sequences(texts, tokenizer, 13, 4);
  REQUIRE(kept.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(kept[i] == all[4 * i]);
  CHECK_THROWS_WITH(cut_sequences(texts, tokenizer, 64, 5),
                    ContainsSubstring("expected at least 2 sequences of 64 tokens, found 1;"));
}
