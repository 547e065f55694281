#include "apps/copy_task/report_page.h"

#include <algorithm>
#include <cmath>

#include "tests/apps/markup.h"
#include "tests/catch.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only

namespace {

std::vector<EvaluationRecord> evaluations(const std::vector<std::pair<double, double>>& accuracies) {
  std::vector<EvaluationRecord> result;
  for (const auto& [all, masked] : accuracies) result.push_back({100 * int64_t(result.size() + 1), {0.5, all, masked}});
  return result;
}

std::string report_of(const char* attention, int64_t length, const std::vector<EvaluationRecord>& records,
                      std::vector<LossRecord> losses, int64_t layers = 2) {
  TransformerOptions options;
  options.layers = layers, options.heads = 2, options.head_size = 8, options.feed_forward = 16;
  options.attention = attention;
  Generator generator(3);
  Model model(options, sequence_length(length), generator);
  const int64_t steps = std::max(losses.empty() ? 0 : losses.back().step, records.empty() ? 0 : records.back().step);
  return make_report({model,
                      options,
                      length,
                      5,
                      attention,
                      std::move(losses),
                      records,
                      Metrics{NAN, 0.5, NAN},
                      {{"a", "<b>"}},
                      {{"c", "&"}},
                      61,
                      steps});
}

bool says(const std::string& html, const std::string& text) { return html.find(text) != std::string::npos; }

}  // namespace

TEST_CASE("a plateau is the longest run where symbols are copied and masked ones guessed", "[copy-task]") {
  CHECK(!find_plateau({}));
  CHECK(!find_plateau(evaluations({{0.5, 0.1}, {0.7, 0.1}, {0.99, 0.95}})));
  CHECK(!find_plateau(evaluations({{0.5, 0.1}, {0.83, 0.1}, {0.99, 0.95}})));  // one evaluation is none
  CHECK(!find_plateau(evaluations({{0.9, NAN}, {0.9, NAN}})));                 // nothing is masked
  const auto plateau = find_plateau(
      evaluations({{0.81, 0.1}, {0.5, 0.1}, {0.82, 0.1}, {0.84, 0.14}, {0.83, 0.12}, {0.9, 0.5}, {0.82, 0.1}}));
  REQUIRE(plateau);
  CHECK(plateau->first == 300);
  CHECK(plateau->last == 500);
  CHECK(plateau->accuracy == Approx(0.83));
  CHECK(plateau->masked_accuracy == Approx(0.12));
  CHECK(plateau->over == 600);
  const auto open = find_plateau(evaluations({{0.82, 0.1}, {0.84, 0.14}}));
  REQUIRE(open);
  CHECK(open->last == 200);
  CHECK(!open->over);
  const auto unlearned = find_plateau(evaluations({{0.82, 0.1}, {0.84, 0.14}, {0.7, 0.1}}));
  REQUIRE(unlearned);
  CHECK(!unlearned->over);  // it forgot, it did not find the other copy
}

// 0w0w with w of 7 symbols: positions 0..15, the copies 8 apart.
TEST_CASE("pairs of positions are counted by the one thing that they have in common", "[copy-task]") {
  const std::vector<int32_t> input{0, 1, 2, 3, 11, 5, 6, 7, 0, 1, 2, 11, 4, 5, 6, 7};
  const auto pairs_of = [&](const std::vector<int32_t>& labels) {
    ClusterPairs pairs;
    pairs.add(labels.data(), input.data(), 16);
    return pairs;
  };
  const auto of = [](const PairCount& count) { return std::vector<int64_t>{count.together, count.all}; };

  // One cluster of 120 pairs. At most 4 apart are 15 + 14 + 13 + 12 pairs, all of different tokens; of the 7 pairs of
  // equal tokens, 6 are the same place, and of the 8 pairs of the same place 2 hold different tokens.
  const ClusterPairs one = pairs_of(std::vector<int32_t>(16, 0));
  CHECK(of(one.none) == std::vector<int64_t>{57, 57});
  CHECK(of(one.near) == std::vector<int64_t>{54, 54});
  CHECK(of(one.token) == std::vector<int64_t>{1, 1});
  CHECK(of(one.place) == std::vector<int64_t>{2, 2});
  CHECK(one.none.share() == 1);

  const ClusterPairs content = pairs_of(input);  // clusters are the tokens
  CHECK(of(content.none) == std::vector<int64_t>{0, 57});
  CHECK(of(content.near) == std::vector<int64_t>{0, 54});
  CHECK(of(content.token) == std::vector<int64_t>{1, 1});
  CHECK(of(content.place) == std::vector<int64_t>{0, 2});

  const ClusterPairs near = pairs_of({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  CHECK(of(near.near) == std::vector<int64_t>{24, 54});
  CHECK(of(near.token) == std::vector<int64_t>{0, 1});
  CHECK(of(near.place) == std::vector<int64_t>{0, 2});
  CHECK(near.near.share() == Approx(24.0 / 54));

  const ClusterPairs place = pairs_of({0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(of(place.place) == std::vector<int64_t>{2, 2});
  CHECK(of(place.near) == std::vector<int64_t>{0, 54});
  CHECK(of(place.token) == std::vector<int64_t>{0, 1});

  // Positions in no cluster are not counted.
  const ClusterPairs none = pairs_of(std::vector<int32_t>(16, -1));
  CHECK(none.none.all == 0);
  CHECK(std::isnan(none.none.share()));
}

TEST_CASE("pairs that share a cluster are looked up in the next layer", "[copy-task]") {
  const std::vector<int32_t> here{0, 0, 0, 1, -1, 1, -1}, there{5, 5, 6, 7, 7, 7, 7};
  ClusterPairs pairs;
  pairs.add_next(here.data(), there.data(), 7);
  CHECK((pairs.next.all == 4 && pairs.next.together == 2));  // 0-1 and 3-5; 0-2 and 1-2 are parted
  pairs.add_next(here.data(), here.data(), 7);               // in the heads of a layer, added up
  CHECK((pairs.next.all == 8 && pairs.next.together == 6));
}

TEST_CASE("what a report says of weights and clusters", "[copy-task]") {
  const std::vector<int32_t> labels{7, 3, -1, 7, 5, 3, 7};
  CHECK(cluster_names(labels.data(), 7) == std::vector<int>{0, 1, -1, 0, -1, 1, 0});  // one alone, one in none
  CHECK(median({3, NAN, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(std::isnan(median({NAN})));
  CHECK(l1_distance({1, 0, 0.5, 0.5}, {0, 1, 0.5, 0.5}, 2) == 1);
  // Position 1 is masked; its place in the other copy is 3.
  const float weights[16] = {1, 0, 0, 0, 0, 0.25f, 0, 0.75f, 0, 0, 1, 0, 0, 1, 0, 0};
  CHECK(to_other_copy(weights, {0, mask_token, 0, 4}) == 0.75);
  CHECK(std::isnan(to_other_copy(weights, {0, 4, 0, 4})));
}

TEST_CASE("reports are well-formed and the same for the same input", "[copy-task]") {
  std::vector<LossRecord> losses;
  for (int64_t i = 1; i <= 700; ++i) losses.push_back({i, i % 50 == 0 ? NAN : 3.0 / double(i)});
  for (const char* attention : {"full", "shared-full", "clustered-3", "i-clustered-3:topk=2", "oracle-top-2"})
    for (int64_t length : {1, 7, 40}) {
      INFO(attention << " length " << length);
      const std::string html = report_of(attention, length, evaluations({{0.9, 0.1}, {NAN, NAN}}), losses);
      CHECK(markup_error(html.substr(html.find("<html"))) == "");
      for (const char* bad : {" nan", "nan ", "\"nan", "Mnan", "Lnan", ">nan"}) CHECK(!says(html, bad));
      CHECK(html == report_of(attention, length, evaluations({{0.9, 0.1}, {NAN, NAN}}), losses));
      const bool clustered = says(attention, "clustered");
      CHECK(says(html, "What shares a cluster") == clustered);
      CHECK(says(html, "apart in the next layer") == clustered);
    }
}

TEST_CASE("a report says of a plateau only what the run had", "[copy-task]") {
  const auto ended = report_of("full", 7, evaluations({{0.83, 0.12}, {0.84, 0.13}, {0.99, 0.97}}), {});
  CHECK(says(ended, "From step 100 to step 200 training stood on a plateau"));
  CHECK(says(ended, "about 1 in 8"));
  CHECK(says(ended, "By step 300 it had begun to."));
  CHECK(says(report_of("full", 7, evaluations({{0.83, 0.12}, {0.84, 0.13}}), {}), "had not done so"));
  CHECK(!says(report_of("full", 7, evaluations({{0.5, 0.1}, {0.99, 0.97}}), {}), "plateau"));
  CHECK(!says(report_of("full", 7, {}, {}), "plateau"));
  CHECK(says(report_of("full", 7, evaluations({{0.5, 0.1}}), {}), "no data"));
  CHECK(!says(report_of("full", 7, evaluations({{0.5, 0.1}}), {{1, 2.5}, {2, 2.25}}), "no data"));
}

TEST_CASE("the report of a long sequence and a deep model stays small", "[copy-task][slow]") {
  const std::string html = report_of("i-clustered-15", 255, {}, {}, 6);
  CHECK(html.size() < 3000000);
  CHECK(says(html, "Of 6 layers the first and the last are shown."));
  CHECK(says(html, "largest of 4 x 4 weights"));
}
