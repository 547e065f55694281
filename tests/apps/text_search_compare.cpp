// The measures of text-search compare against slow, simple computations.
#include "apps/text_search/compare.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

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
  const auto other = difference_of(circle(moved), circle(angles));
  const double first = 1 - std::cos(0.6), last = 1 - std::cos(0.01);
  CHECK(other["mean_error"].get<double>() == Approx((first + last) / 12).margin(1e-6));
  CHECK(other["largest_error"].get<double>() == Approx(first).margin(1e-6));
  CHECK(other["neighbors_kept"].get<double>() == Approx(1 - 7 * 0.1 / 12));
  // Rounding does not count as error.
  moved = angles;
  moved[5] += 1e-4;
  const auto same = difference_of(circle(moved), circle(angles));
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

TEST_CASE("texts with labels are read and split by groups", "[text_search]") {
  const std::string good = R"({"text":"a\nb","label":"x","group":"g","more":1})";
  const auto one = read_examples(good, "labeled");
  CHECK((one.at(0).text == "a\nb" && one.at(0).label == "x" && one.at(0).group == "g"));
  for (const char* line : {"", "[1]", R"({"text":"a","label":"x"})", R"({"text":1,"label":"x","group":""})"}) {
    CAPTURE(line);
    CHECK_THAT(data_error([&] { read_examples(good + "\n" + line + "\n" + good, "labeled"); }),
               ContainsSubstring("labeled, line 2"));
  }
  std::vector<Example> examples;
  for (size_t i = 0; i < 40; ++i) examples.push_back({concat("text ", i), "label", concat("group ", i * i % 13)});
  for (const int64_t maximum : {1, 7, 8, 12}) {
    const Split split = split_by_group(examples, maximum);
    CHECK(int64_t(split.queries.size()) == std::min<int64_t>(maximum, 8));
    std::set<std::string> asked;
    for (const Example& example : split.queries) asked.insert(example.group);
    const auto others = std::count_if(examples.begin(), examples.end(),
                                      [&](const Example& example) { return !asked.contains(example.group); });
    CHECK(split.references.size() == std::min(size_t(others), 4 * split.queries.size()));
    for (const Example& example : split.references) CHECK_FALSE(asked.contains(example.group));
  }
  CHECK_THROWS_AS(split_by_group(std::vector<Example>(10, {"a", "x", "one group"}), 5), UsageError);
}

TEST_CASE("a label is the majority of the five nearest; the nearer ones break ties", "[text_search]") {
  const auto is_right = [](const std::string& label, const std::vector<std::pair<double, std::string>>& given) {
    Split split{{{"", label, ""}}, {}};
    std::vector<double> angles{0};
    for (const auto& [angle, label_there] : given) {
      split.references.push_back({"", label_there, ""});
      angles.push_back(angle);
    }
    return knn_correct(split, circle(angles)) == "1";
  };
  CHECK(is_right("b", {{0.9, "b"}, {0.1, "a"}, {0.2, "a"}, {-0.8, "b"}, {0.7, "b"}, {1.0, "a"}, {1.1, "a"}}));
  CHECK(is_right("b", {{0.1, "a"}, {0.4, "b"}, {-0.5, "b"}, {0.9, "a"}, {1.0, "c"}}));
  CHECK_FALSE(is_right("a", {{0.1, "a"}, {0.4, "b"}, {-0.5, "b"}, {0.9, "a"}, {1.0, "c"}}));
  CHECK(is_right("a", {{0.1, "a"}}));
}

TEST_CASE("a 95% interval counts groups, not single examples", "[text_search]") {
  std::vector<Example> single, pairs;
  std::string right, none(400, '0');
  for (int i = 0; i < 400; ++i) {
    single.push_back({"", "", concat(i)});
    pairs.push_back({"", "", concat(i / 2)});
    right += i / 2 % 2 ? '1' : '0';
  }
  CHECK(interval_of(right, right, single) == std::vector<double>{0, 0, 0});
  // 1.96 standard deviations of a mean over 400 examples, or over 200 pairs.
  const auto of_400 = interval_of(right, none, single), of_200 = interval_of(none, right, pairs);
  CHECK((of_400[0] == 0.5 && of_200[0] == -0.5));
  CHECK(of_400[2] - 0.5 == Approx(1.96 * 0.5 / 20));
  CHECK(-0.5 - of_200[1] == Approx(1.96 * 0.5 / std::sqrt(200)));
}
