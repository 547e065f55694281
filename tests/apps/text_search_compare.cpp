// What text-search compare measures, beside slow computations of the same, and the command as a user runs it.
#include "apps/text_search/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/text_search/labeled.h"
#include "tests/apps/text_search_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;
using Lists = std::vector<std::vector<int32_t>>;

namespace {

Tensor rows_of(const std::vector<float>& values) { return Tensor::from(values, {int64_t(values.size()) / 2, 2}); }

Tensor circle(const std::vector<double>& angles) {
  std::vector<float> values;
  for (const double angle : angles) values.insert(values.end(), {float(std::cos(angle)), float(std::sin(angle))});
  return rows_of(values);
}

}  // namespace

TEST_CASE("the nearest rows, of equal ones the first", "[text_search]") {
  const Tensor rows = rows_of({1, 0, 0.5, 0.25, 0, 1, 0.5, 0.25, -1, 0});
  CHECK(nearest_rows(rows, rows, 3, true) == Lists{{1, 3, 2}, {0, 3, 2}, {1, 3, 0}, {0, 1, 2}, {2, 1, 3}});
  CHECK(nearest_rows(rows, rows, 2, false) == Lists{{0, 1}, {0, 1}, {2, 1}, {0, 1}, {4, 2}});
  CHECK(nearest_rows(rows.slice(2, 4), rows, 1, false) == Lists{{2}, {0}});
  CHECK(nearest_rows(rows, rows, 9, true)[0] == std::vector<int32_t>{1, 3, 2, 4});
  CHECK(nearest_rows(rows.slice(0, 1), rows.slice(0, 1), 2, true) == Lists{{}});
}

TEST_CASE("embeddings beside those of full attention", "[text_search]") {
  // Twelve rows: the ten nearest are all others but the furthest one.
  std::vector<double> angles, moved;
  for (int i = 0; i < 12; ++i) angles.push_back(0.1 * i + 0.001 * i * i);
  moved = angles;
  moved[11] = 0.05;
  moved[3] += 0.02;
  const auto furthest = [](const std::vector<double>& all, size_t of) {
    size_t found = of;
    for (size_t j = 0; j < all.size(); ++j)
      if (std::abs(all[j] - all[of]) > std::abs(all[found] - all[of])) found = j;
    return found;
  };
  double kept = 0, mean = 0, largest = 0;
  for (size_t i = 0; i < 12; ++i) {
    kept += (furthest(angles, i) == furthest(moved, i) ? 1 : 0.9) / 12;
    const double error = 1 - std::cos(angles[i] - moved[i]);
    mean += error / 12;
    largest = std::max(largest, error);
  }
  REQUIRE((kept > 0.9 && kept < 0.999));
  const auto other = difference_of(circle(moved), circle(angles));
  CHECK(other["mean_error"].get<double>() == Approx(mean).margin(1e-6));
  CHECK(other["largest_error"].get<double>() == Approx(largest).margin(1e-6));
  CHECK(other["neighbors_kept"].get<double>() == Approx(kept));
  // Rounding is no error.
  for (double& angle : moved) angle = 0.7;
  moved[5] += 1e-4;
  const auto same = difference_of(circle(moved), circle(std::vector<double>(12, 0.7)));
  CHECK((same["mean_error"] == 0 && same["largest_error"] == 0));
  const auto itself = difference_of(circle(angles), circle(angles));
  CHECK((itself["largest_error"] == 0 && itself["neighbors_kept"] == 1));
}

TEST_CASE("variants to compare: full first, each once, each one that the model takes", "[text_search]") {
  Embedder embedder(small_options(2, "clustered-1"));
  CHECK(variants_of(embedder, "clustered-3,full,i-clustered-3:topk=4,bits=8,clustered-3") ==
        std::vector<std::string>{"full", "clustered-3", "i-clustered-3:topk=4,bits=8"});
  for (const char* wrong : {"clusterd-3", "full,shared-full", "clustered-3,,full", ","}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(variants_of(embedder, wrong), UsageError);
    CHECK_THROWS_WITH(variants_of(embedder, wrong), ContainsSubstring("--variants: "));
  }
}

TEST_CASE("texts are cut into sequences of the same length", "[text_search]") {
  Sequences texts;
  for (const int n : {100, 51, 5, 34}) {
    texts.emplace_back();
    for (int i = 0; i < n; ++i) texts.back().push_back(int32_t(1000 * texts.size()) + i);
  }
  const WordPiece tokenizer = read_wordpiece(small_model);
  const Sequences all = cut_sequences(texts, tokenizer, 13, 1000);
  REQUIRE(all.size() == 9 + 4 + 0 + 3);
  CHECK((all[9].front() == 2 && all[9][1] == 2000 && all[9][11] == 2010 && all[9].back() == 3));
  const Sequences kept = cut_sequences(texts, tokenizer, 13, 4);
  REQUIRE(kept.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(kept[i] == all[4 * i]);
  CHECK_THROWS_WITH(cut_sequences(texts, tokenizer, 64, 5),
                    ContainsSubstring("only 1 sequences of 64 tokens in 4 files"));
}

TEST_CASE("texts with labels are read, or the line that is damaged is told", "[text_search]") {
  const std::string good = R"({"text":"a\nb","label":"x","group":"g","more":1})";
  const auto two = read_examples(good + "\n" + R"({"group":"","label":"","text":""})", "labeled");
  REQUIRE(two.size() == 2);
  CHECK((two[0].text == "a\nb" && two[0].label == "x" && two[0].group == "g"));
  CHECK(read_examples("", "labeled").empty());
  for (const char* line :
       {"", "{", "\xff", "[1]", R"({"text":"a","label":"x"})", R"({"text":1,"label":"x","group":""})"}) {
    CAPTURE(line);
    CHECK_THAT(data_error([&] { read_examples(good + "\n" + line + "\n" + good, "labeled"); }),
               ContainsSubstring("labeled, line 2"));
  }
}

TEST_CASE("examples are split by groups", "[text_search]") {
  std::vector<Example> examples;
  for (size_t i = 0; i < 40; ++i) examples.push_back({concat("text ", i), "label", concat("group ", i * i % 13)});
  for (int64_t maximum = 1; maximum <= 12; ++maximum) {
    const Split split = split_by_group(examples, maximum);
    CHECK(int64_t(split.asked.size()) == std::min<int64_t>(maximum, 8));
    std::set<std::string> asked, texts;
    for (const Example& example : split.asked) asked.insert(example.group);
    const auto others = std::count_if(examples.begin(), examples.end(),
                                      [&](const Example& example) { return !asked.contains(example.group); });
    CHECK(split.given.size() == std::min(size_t(others), 4 * split.asked.size()));
    for (const Example& example : split.given) CHECK_FALSE(asked.contains(example.group));
    for (const auto* side : {&split.asked, &split.given})
      for (const Example& example : *side) CHECK(texts.insert(example.text).second);
  }
  CHECK_THROWS_AS(split_by_group({}, 5), UsageError);
  CHECK_THROWS_AS(split_by_group(std::vector<Example>(10, {"a", "x", "one group"}), 5), UsageError);
}

TEST_CASE("a label is that of most of the nearest, then of the nearer: as a slow count has it", "[text_search]") {
  RandomStream random(3, 0, Purpose::test);
  for (int round = 0; round < 20; ++round) {
    Split split;
    std::vector<double> angles;
    for (int i = 0; i < 60; ++i) {
      angles.push_back(double(random.below(10000)) * 6e-4);
      (i < 20 ? split.asked : split.given).push_back({"", concat("label ", random.below(3)), ""});
    }
    const std::string right = knn_correct(split, circle(angles));
    REQUIRE(right.size() == 20);
    for (size_t i = 0; i < 20; ++i) {
      std::vector<std::pair<double, size_t>> near;
      for (size_t j = 20; j < 60; ++j) near.emplace_back(-std::cos(angles[i] - angles[j]), j);
      std::sort(near.begin(), near.end());
      std::map<std::string, double> votes;  // a vote counts more than all nearness
      for (size_t v = 0; v < 5; ++v) votes[split.given[near[v].second - 20].label] += 100 - near[v].first;
      const auto best = std::max_element(votes.begin(), votes.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      CHECK((right[i] == '1') == (best->first == split.asked[i].label));
    }
  }
}

TEST_CASE("an interval is that of a mean of groups", "[text_search]") {
  std::vector<Example> single, pairs;
  std::vector<double> values;
  for (int i = 0; i < 400; ++i) {
    single.push_back({"", "", concat(i)});
    pairs.push_back({"", "", concat(i / 2)});
    values.push_back(i / 2 % 2);
  }
  const Interval constant = interval_of(std::vector<double>(400, 0.25), single);
  CHECK((constant.mean == 0.25 && constant.low == 0.25 && constant.high == 0.25));
  // 1.96 standard deviations of a mean of 400, or of 200 pairs.
  const Interval of_400 = interval_of(values, single), of_200 = interval_of(values, pairs);
  CHECK((of_400.mean == 0.5 && of_200.mean == 0.5));
  CHECK(of_400.high - 0.5 == Approx(1.96 * 0.5 / 20));
  CHECK(0.5 - of_200.low == Approx(1.96 * 0.5 / std::sqrt(200)));
}

// ---- the command

namespace {

struct CompareCommand : InFolder {
  CompareCommand() {
    const char* words[] = {"the cluster of attention ", "a key in a query ", "0 1 2 3 4 "};  // of each label
    std::string lines, text;
    for (int i = 0; i < 90; ++i) {
      std::string example;
      for (int j = 0; j < 2 + i % 4; ++j) example += words[(i + (i % 7 == 0 && j > 0)) % 3];
      text += example + "\n";
      const Json json = {{"text", example + std::to_string(i)},
                         {"label", concat("label ", i % 3)},
                         {"group", concat("group ", i / 6)}};
      lines += json.dump() + "\n";
    }
    put_file(folder / "labeled", lines);
    put_file(folder / "text", text);
  }
  std::string on(const std::string& what, const std::string& more = "") const {
    return concat("compare --quiet --model ", small_model, " --batch 4 ", what, ' ', more);
  }
  Json rows(const std::string& what, const std::string& more) const {
    const ProcessResult result = run(on(what, "--json " + more));
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.out)["rows"];
  }
};

}  // namespace

TEST_CASE("text-search compare on files, with what is finished kept", "[text_search]") {
  const CompareCommand command;
  const std::string more = "--lengths 16,32 --sequences 25 --variants i-clustered-2:topk=64,clustered-1 --out rows";
  const Json rows = command.rows("text", more);
  REQUIRE(rows.size() == 6);
  for (size_t i = 0; i < 6; i += 3) {
    const Json &full = rows[i], &all_keys = rows[i + 1], &clustered = rows[i + 2];
    CHECK(full["length"] == (i == 0 ? 16 : 32));
    CHECK((full["attention"] == "full" && full["largest_error"] == 0 && full["neighbors_kept"] == 1));
    // As many top keys as there are keys: it is full attention.
    CHECK(all_keys["attention"] == "i-clustered-2:topk=64");
    CHECK((all_keys["largest_error"] == 0 && all_keys["neighbors_kept"] == 1));
    CHECK((clustered["mean_error"] > 1e-4 && clustered["largest_error"] > clustered["mean_error"]));
    CHECK((clustered["neighbors_kept"] < 1 && clustered["seconds_per_token"] > 0));
  }
  const std::string kept = bytes_of_file(command.folder / "rows");
  CHECK(std::count(kept.begin(), kept.end(), '\n') == 6);
  CHECK(command.rows("text", more) == rows);  // times too: nothing is measured again
  put_file(command.folder / "rows", kept.substr(0, kept.find('\n', kept.size() / 2) + 1));
  const Json again = command.rows("text", more);
  for (size_t i = 0; i < 6; ++i)
    for (const char* key : {"key", "attention", "mean_error", "neighbors_kept"}) CHECK(again[i][key] == rows[i][key]);
  CHECK(command.rows("text", more + " --seed 2")[0]["key"] != rows[0]["key"]);
  const ProcessResult told = command.run(command.on("text", more + " --picture p.svg"));
  CHECK_THAT(told.out, ContainsSubstring("32 tokens\n") && ContainsSubstring("i-clustered-2:topk=64 "));
  CHECK_THAT(bytes_of_file(command.folder / "p.svg"), ContainsSubstring(">clustered-1<"));
}

TEST_CASE("text-search compare --labeled: accuracy by each variant", "[text_search]") {
  const CompareCommand command;
  const std::string more = "--lengths 16 --variants clustered-2,oracle-top-2 --out rows";
  const Json rows = command.rows("--labeled labeled", more);
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["minus_full"] == Json{0.0, 0.0, 0.0});
  CHECK(rows[0]["accuracy"][0] > 0.5);  // words tell the label
  for (const Json& row : rows) {
    const std::string right = row["right"];
    CHECK(right.size() == 18);
    CHECK(row["accuracy"][0].get<double>() == Approx(double(std::count(right.begin(), right.end(), '1')) / 18));
    CHECK(row["minus_full"][0].get<double>() ==
          Approx(row["accuracy"][0].get<double>() - rows[0]["accuracy"][0].get<double>()).margin(1e-12));
  }
  CHECK(command.rows("--labeled labeled", more) == rows);
  const ProcessResult told = command.run(command.on("--labeled labeled", more));
  CHECK_THAT(told.out, ContainsSubstring("16 tokens at most\n") && ContainsSubstring("minus full [95%]"));
}
