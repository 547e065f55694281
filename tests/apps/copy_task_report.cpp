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
                      {NAN, 0.5, NAN},
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
TEST_CASE("pairs of a cluster are compared with pairs alike otherwise", "[copy-task]") {
  const std::vector<int32_t> input{0, 1, 2, 3, 11, 5, 6, 7, 0, 1, 2, 11, 4, 5, 6, 7};
  const auto lifts = [&](const std::vector<int32_t>& labels) {
    ClusterPairs pairs;
    pairs.add(labels.data(), input.data(), 16);
    return pairs;
  };
  const auto of = [](const ClusterPairs::Kind& kind) {
    return std::vector<int64_t>{kind.with.together, kind.with.all, kind.among.together, kind.among.all};
  };

  // One cluster: everything is as likely as anything else.
  const ClusterPairs one = lifts(std::vector<int32_t>(16, 0));
  for (const auto* kind : {&one.near, &one.token, &one.place}) {
    CHECK(kind->lift() == Approx(1));
    CHECK(kind->with.together == kind->with.all);
  }
  // 120 pairs; 7 of equal tokens (6 symbols at the same place, M at 4 and 11).
  CHECK(of(one.near) == std::vector<int64_t>{54, 54, 113, 113});
  CHECK(one.near.with.all == 15 + 14 + 13 + 12);
  // 66 pairs are more than 4 apart, 8 of them at the same place; 4 and 11 hold the same token.
  CHECK(of(one.token) == std::vector<int64_t>{1, 1, 58, 58});
  // One position in each copy, one of them masked: 7 for M at 4, 7 for M at 11; at the same place 4-12 and 3-11.
  CHECK(of(one.place) == std::vector<int64_t>{2, 2, 14, 14});

  // Content: clusters are the tokens.
  const ClusterPairs content = lifts(input);
  CHECK(content.near.with.together == 0);
  CHECK(std::isnan(content.near.lift()));  // no two different tokens share a cluster
  CHECK(of(content.token) == std::vector<int64_t>{1, 1, 1, 58});
  CHECK(content.token.lift() == Approx(58));
  CHECK(std::isnan(content.place.lift()));

  // Proximity: blocks of four.
  const ClusterPairs near = lifts({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3});
  CHECK(of(near.near) == std::vector<int64_t>{24, 54, 24, 113});
  CHECK(near.near.lift() == Approx(113.0 / 54));
  CHECK(std::isnan(near.token.lift()));

  // Place: the position in the copy. Tokens that are equal elsewhere share nothing.
  const ClusterPairs place = lifts({0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(of(place.place) == std::vector<int64_t>{2, 2, 2, 14});
  CHECK(place.place.lift() == Approx(7));
  CHECK(place.near.with.together == 0);
  CHECK(std::isnan(place.token.lift()));

  // Positions in no cluster are not counted.
  const ClusterPairs none = lifts(std::vector<int32_t>(16, -1));
  CHECK(none.near.among.all == 0);
  CHECK(std::isnan(none.near.lift()));
}

TEST_CASE("what a report says of weights and clusters", "[copy-task]") {
  const std::vector<int32_t> labels{7, 3, -1, 7, 5, 3, 7};
  CHECK(cluster_names(labels.data(), 7) == std::vector<int>{0, 1, -1, 0, -1, 1, 0});  // one alone, one in none
  CHECK(median({3, NAN, 1, 2}) == 2);
  CHECK(median({4, 1, 2, 3}) == 2.5);
  CHECK(std::isnan(median({NAN})));
  CHECK(verdict({1, NAN, 1.2}) == "none of the three stands out from chance");
  CHECK(verdict({1.3, 1, 1}) == "proximity plays a part");
  CHECK(verdict({2, 3, 4}) == "proximity, content and the place in the copy play a part");
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
}

TEST_CASE("the report of a long sequence and a deep model stays small", "[copy-task][slow]") {
  const std::string html = report_of("i-clustered-15", 255, {}, {}, 6);
  CHECK(html.size() < 3000000);
  CHECK(says(html, "Of 6 layers the first and the last are shown."));
  CHECK(says(html, "largest of 4 x 4 weights"));
}
