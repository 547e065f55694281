#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/train.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only

namespace {

// The report of a run with an evaluation every 100 steps: the accuracies of all and of masked symbols.
std::string report_of(const char* attention, int64_t length, int64_t steps,
                      const std::vector<std::pair<double, double>>& accuracies, int64_t layers = 2) {
  Settings settings;
  settings.length = length;
  settings.model.layers = layers;
  settings.model.heads = 2;
  settings.model.head_size = 8;
  settings.model.feed_forward = 16;
  settings.model.attention = attention;
  Generator generator(1);
  Model model(settings, generator);
  const TemporaryFolder folder;
  RunFolder run(folder.path(), {{"a", "<b>"}, {"c", "&"}});
  for (int64_t step = 1; step <= steps; ++step) {
    Json line = {{"step", step}, {"loss", 3.0 / double(step)}};
    if (const auto k = size_t(step) / 100; step % 100 == 0 && k <= accuracies.size())
      line["evaluation"] = as_json({0.5, accuracies[k - 1].first, accuracies[k - 1].second});
    run.append(line);
  }
  TrainState state;
  state.step = steps;
  state.seconds = 61;
  write_report(run, state, as_json({NAN, 0.5, NAN}), settings, model);
  return bytes_of_file(folder / "report.html");
}

bool says(const std::string& html, const std::string& text) { return html.find(text) != std::string::npos; }

}  // namespace

// 0w0w with w of 7 symbols: positions 0..15, the copies 8 apart.
TEST_CASE("pairs of positions are counted by the one property that they share", "[copy-task]") {
  const std::vector<int32_t> input{0, 1, 2, 3, 11, 5, 6, 7, 0, 1, 2, 11, 4, 5, 6, 7};
  // There are 120 pairs. 15 + 14 + 13 + 12 are at most 4 apart, all with different tokens. 7 pairs have equal tokens, 6
  // of them at the same place. 8 pairs have the same place, 2 of them with different tokens.
  std::vector<ClusterPairs> heads;
  const auto together = [&](const std::vector<int32_t>& labels) {
    ClusterPairs& pairs = heads.emplace_back();
    pairs.add(labels.data(), input.data(), input.data(), 16);
    const bool has_clusters = labels[0] >= 0;
    CHECK(pairs.any.all == (has_clusters ? 120 : 0));
    CHECK(pairs.none.all == (has_clusters ? 57 : 0));
    CHECK(pairs.near.all == (has_clusters ? 54 : 0));
    CHECK(pairs.token.all == (has_clusters ? 1 : 0));
    CHECK(pairs.place.all == (has_clusters ? 2 : 0));
    return std::vector{pairs.any.together, pairs.none.together, pairs.near.together, pairs.token.together,
                       pairs.place.together};
  };
  using Counts = std::vector<int64_t>;
  CHECK(together(std::vector<int32_t>(16, -1)) == Counts{0, 0, 0, 0, 0});  // no position is in a cluster
  CHECK(together(std::vector<int32_t>(16, 0)) == Counts{120, 57, 54, 1, 2});
  CHECK(together(input) == Counts{7, 0, 0, 1, 0});
  CHECK(together({0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}) == Counts{8, 0, 0, 0, 2});
  CHECK(together({0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3})[2] == 24);

  CHECK(median_share(heads, &ClusterPairs::near) == Approx(12.0 / 54));  // the median of 1, 0, 0 and 24 / 54
  heads.pop_back();
  CHECK(median_share(heads, &ClusterPairs::near) == 0);
  CHECK(std::isnan(median_share(heads, &ClusterPairs::next)));
}

TEST_CASE("a masked position is crowded beside a masked position of another symbol", "[copy-task]") {
  // Masked: 1 (symbol 4), 3 (symbol 4), 4 (symbol 7), 5 (symbol 2); position 2 has another symbol and is not masked.
  const std::vector<int32_t> input{0, mask_token, 9, mask_token, mask_token, mask_token}, target{0, 4, 9, 4, 7, 2};
  const auto crowded = [&](const std::vector<int32_t>& labels) {
    ClusterPairs pairs;
    pairs.add(labels.data(), input.data(), target.data(), 6);
    return std::pair(pairs.crowded.together, pairs.crowded.all);
  };
  CHECK(crowded({0, 0, 0, 0, 0, 0}) == std::pair<int64_t, int64_t>(4, 4));
  CHECK(crowded({0, 1, 1, 1, 2, 3}) == std::pair<int64_t, int64_t>(0, 4));   // the same symbol twice
  CHECK(crowded({0, 1, 2, 3, 3, 2}) == std::pair<int64_t, int64_t>(2, 4));   // 3 and 4
  CHECK(crowded({0, 1, 2, 1, 1, -1}) == std::pair<int64_t, int64_t>(3, 3));  // 5 has no cluster
}

TEST_CASE("pairs that share a cluster are looked up in the next layer", "[copy-task]") {
  const std::vector<int32_t> here{0, 0, 0, 1, -1, 1, -1}, there{5, 5, 6, 7, 7, 7, 7};
  ClusterPairs pairs;
  pairs.add_next(here.data(), there.data(), 7);
  CHECK((pairs.next.all == 4 && pairs.next.together == 2));  // 0-1 and 3-5 stay together; 0-2 and 1-2 do not
  pairs.add_next(here.data(), here.data(), 7);               // sums over the heads of a layer
  CHECK((pairs.next.all == 8 && pairs.next.together == 6));
}

TEST_CASE("attention on the other copy is the mean over masked positions", "[copy-task]") {
  // Position 1 is masked; its counterpart in the other copy is 3.
  Example example{{0, mask_token, 0, 4}, {0, 4, 0, 4}, {}, {}};
  example.layers.resize(1);
  const std::vector<float> weights{1, 0, 0, 0, 0, 0.25f, 0, 0.75f, 0, 0, 1, 0, 0, 1, 0, 0};
  example.layers[0].weights = Tensor::from(weights, {1, 1, 4, 4});
  CHECK(other_copy_shares(example) == std::vector<std::vector<double>>{{0.75}});
  example.input[1] = 4;
  CHECK(std::isnan(other_copy_shares(example)[0][0]));
}

TEST_CASE("reports are well-formed", "[copy-task]") {
  for (const char* attention : {"full", "shared-full", "clustered-3", "i-clustered-3:topk=2", "oracle-top-2"})
    for (int64_t length : {1, 7, 40}) {
      INFO(attention << " length " << length);
      const std::string html = report_of(attention, length, 400, {{0.9, 0.1}, {NAN, NAN}});
      CHECK(markup_error(html.substr(html.find("<html"))) == "");
      for (const char* bad : {" nan", "nan ", "\"nan", "Mnan", "Lnan", ">nan"}) CHECK(!says(html, bad));
      const bool clustered = says(attention, "clustered");
      CHECK(says(html, "What do the positions of a cluster share") == clustered);
      for (const char* text : {"apart in the next layer", "any pair (chance)", "Layer 1: "})
        CHECK(says(html, text) == clustered);
    }
}

TEST_CASE("a plateau: visible symbols are copied, masked ones guessed", "[copy-task]") {
  const auto has_plateau = [](const std::vector<std::pair<double, double>>& accuracies) {
    return says(report_of("full", 7, int64_t(100 * accuracies.size()), accuracies), ">plateau<");
  };
  CHECK(has_plateau({{0.7, 0.1}, {0.83, 0.12}, {0.84, 0.13}, {0.99, 0.97}}));
  CHECK(!has_plateau({{0.5, 0.1}, {0.83, 0.1}, {0.99, 0.97}}));  // one evaluation is no plateau
  CHECK(!has_plateau({{0.9, NAN}, {0.9, NAN}}));                 // nothing is masked
}

TEST_CASE("the report of a long sequence and a deep model stays small", "[copy-task][slow]") {
  const std::string html = report_of("i-clustered-15", 255, 0, {}, 6);
  CHECK(html.size() < 3000000);
  CHECK(says(html, "largest of 4 x 4 weights"));
}
