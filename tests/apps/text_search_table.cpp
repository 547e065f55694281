// What text-search table computes, by hand, and the command as a user runs it.
#include "apps/text_search/table.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "tests/apps/text_search_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;
using namespace cairn::text_search;
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::json;

TEST_CASE("texts with labels are read, or the line that is damaged is told", "[text_search]") {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    put_file(folder / "labeled", text);
    return read_examples(folder / "labeled");
  };
  const std::string good = R"({"text":"a\nb","label":"x","group":"g","more":1})";
  const Examples two = read(good + "\n" + R"({"group":"","label":"","text":""})");
  REQUIRE(two.all.size() == 2);
  CHECK((two.all[0].text == "a\nb" && two.all[0].label == "x" && two.all[0].group == "g"));
  CHECK(two.all[1].text.empty());
  CHECK(two.hash == xxh128(bytes_of_file(folder / "labeled")));
  CHECK(read("").all.empty());
  CHECK(read(good + "\n").all.size() == 1);
  const std::pair<const char*, const char*> wrong[] = {
      {"", ""},
      {"{", ""},
      {"\xff", ""},
      {"[1]", "expected an object, got array"},
      {R"({"text":"a","label":"x"})", "expected a string group"},
      {R"({"text":1,"label":"x","group":"g"})", "expected a string text"},
      {R"({"text":"a","label":null,"group":"g"})", "expected a string label"}};
  for (const auto& [line, message] : wrong) {
    CAPTURE(line);
    CHECK_THAT(data_error([&, text = line] { read(good + "\n" + text + "\n" + good); }),
               ContainsSubstring("labeled, line 2") && ContainsSubstring(message));
  }
  CHECK_THAT(data_error([&] { read_examples(folder / "none"); }), ContainsSubstring("none"));
}

TEST_CASE("examples are split by groups, in the order of their hashes", "[text_search]") {
  std::vector<Example> examples;
  std::map<std::string, std::vector<size_t>> by_hash;
  for (size_t i = 0; i < 40; ++i) {
    const std::string group = concat("group ", i * i % 13);
    examples.push_back({concat("text ", i), "label", group});
    by_hash[xxh128(group)].push_back(i);
  }
  int cut = 0;  // groups that are in part too many
  for (int64_t test = 1; test <= 15; ++test) {
    const int64_t train = 12;
    CAPTURE(test);
    std::vector<size_t> sides[2];
    for (const auto& [hash, members] : by_hash) {
      const bool is_train = int64_t(sides[0].size()) == test;
      auto& side = sides[is_train];
      for (const size_t i : members) {
        if (int64_t(side.size()) == (is_train ? train : test)) break;
        side.push_back(i);
      }
    }
    const Split split = split_by_group(examples, train, test);
    CHECK(split.test == sides[0]);
    CHECK(split.train == sides[1]);
    std::set<std::string> groups, other;
    for (const size_t i : split.test) groups.insert(examples[i].group);
    for (const size_t i : split.train) {
      other.insert(examples[i].group);
      CHECK(groups.count(examples[i].group) == 0);
    }
    CHECK(int64_t(split.test.size()) == test);
    CHECK(int64_t(split.train.size()) == train);
    size_t members = 0;
    for (const auto& example : examples) members += groups.count(example.group);
    cut += members > split.test.size();
  }
  CHECK(cut > 0);
  CHECK_THROWS_AS(split_by_group(examples, 35, 6), UsageError);
  CHECK_THROWS_WITH(split_by_group(examples, 35, 6),
                    ContainsSubstring("expected 35 examples and 6 others") && ContainsSubstring("got 40 in all"));
  CHECK_THROWS_AS(split_by_group({}, 1, 1), UsageError);
  CHECK_THROWS_AS(split_by_group({{"a", "x", "g"}, {"b", "x", "g"}}, 1, 1), UsageError);  // one group
}

namespace {

const WordPiece& tokenizer() {
  static const WordPiece made = read_wordpiece(small_model);
  return made;
}

// [CLS], the tokens of these words, [SEP].
std::vector<int32_t> sequence(const std::string& words) { return tokenizer().encode(words); }

}  // namespace

TEST_CASE("a task: each text is a document", "[text_search]") {
  const std::vector<Example> examples{
      {"the key of a query", "x", "g"}, {"a b c", "y", "h"}, {"", "x", "h"}, {"d e f g h", "y", "g"}, {"i", "z", "k"}};
  const Task task = make_task(examples, {{1, 0, 3}, {4, 2}}, tokenizer(), 5);
  CHECK(task.length == 5);
  REQUIRE(task.train.size() == 3);
  REQUIRE(task.test.size() == 2);
  CHECK(task.train[0].tokens == sequence("a b c"));
  CHECK(task.train[1].tokens == sequence("the key of"));
  CHECK(task.train[2].tokens == sequence("d e f"));
  CHECK(task.test[0].tokens == sequence("i"));
  CHECK(task.test[1].tokens == sequence(""));
  CHECK(task.train[0].label == task.train[2].label);
  CHECK(task.test[1].label == task.train[1].label);
  CHECK(std::set<int32_t>{task.train[0].label, task.train[1].label, task.test[0].label}.size() == 3);
  CHECK(task.train[1].group == task.train[2].group);
  CHECK(task.test[1].group == task.train[0].group);
  CHECK(std::set<int32_t>{task.train[0].group, task.train[1].group, task.test[0].group}.size() == 3);
}

TEST_CASE("a label is that of most of the nearest, then of the nearer", "[text_search]") {
  Task task;
  const std::vector<float> train{0.5f, 0, 0.95f, 0, 0.7f, 0, 0.9f, 0, 0.8f, 0, -1, 0};
  for (const int32_t label : {1, 3, 2, 1, 2, 4}) task.train.push_back({{}, label, 0});
  const auto found = [&](int64_t k) {  // the one label that is right
    int32_t label = -1;
    for (int32_t each = 0; each < 6; ++each) {
      task.test = {{{}, each, 0}};
      if (knn_correct(task, Tensor::from(train, {6, 2}), Tensor::from<float>({1, 0}, {1, 2}), k) ==
          std::vector<uint8_t>{1}) {
        CHECK(label == -1);
        label = each;
      }
    }
    return label;
  };
  CHECK(found(1) == 3);
  CHECK(found(3) == 3);    // one of each
  CHECK(found(4) == 2);    // two of 2
  CHECK(found(5) == 2);    // two of 1 and two of 2, which are nearer in sum
  CHECK(found(100) == 2);  // all there are
  task.test = {{{}, 4, 0}, {{}, 3, 0}, {{}, 3, 0}};
  CHECK(knn_correct(task, Tensor::from(train, {6, 2}), Tensor::from<float>({-1, 0, 1, 0, -1, 0}, {3, 2}), 1) ==
        std::vector<uint8_t>{1, 1, 0});
}

TEST_CASE("bootstrap intervals over groups", "[text_search]") {
  std::vector<Document> single, pairs;
  std::vector<double> values, opposite;
  for (int32_t i = 0; i < 400; ++i) {
    single.push_back({{}, 0, i}), pairs.push_back({{}, 0, i / 2});
    values.push_back(i / 2 % 2), opposite.push_back(1 - values.back());
  }
  const Interval constant = bootstrap(std::vector<double>(400, 0.25), single);
  CHECK((constant.mean == 0.25 && constant.low == 0.25 && constant.high == 0.25));
  // 1.96 standard deviations of a mean of 400, or of 200 pairs.
  const Interval of_400 = bootstrap(values, single), of_200 = bootstrap(values, pairs);
  CHECK(of_400.mean == 0.5);
  CHECK(of_400.high - 0.5 == Approx(1.96 * 0.5 / 20).margin(0.004));
  CHECK(0.5 - of_400.low == Approx(1.96 * 0.5 / 20).margin(0.004));
  CHECK(of_200.mean == 0.5);
  CHECK(of_200.high - 0.5 == Approx(1.96 * 0.5 / std::sqrt(200)).margin(0.005));
  CHECK(0.5 - of_200.low == Approx(1.96 * 0.5 / std::sqrt(200)).margin(0.005));
  // The same draws every time.
  const Interval mirrored = bootstrap(opposite, single);
  CHECK(mirrored.low == Approx(1 - of_400.high));
  CHECK(mirrored.high == Approx(1 - of_400.low));
  // A group's documents count each: one of three ones, one of a zero.
  const Interval uneven = bootstrap({1, 1, 1, 0}, {{{}, 0, 5}, {{}, 0, 5}, {{}, 0, 5}, {{}, 0, 2}});
  CHECK((uneven.mean == 0.75 && uneven.low == 0 && uneven.high == 1));
  CHECK(std::isnan(bootstrap({}, {}).mean));
}

// ---- the command

namespace {

struct TableCommand {
  TemporaryFolder folder;

  TableCommand() {
    // What is in a text of each label; six texts of a group.
    const char* words[] = {"the cluster of attention ", "a key in a query ", "0 1 2 3 4 "};
    std::string lines;
    for (int i = 0; i < 90; ++i) {
      std::string text;
      for (int j = 0; j < 2 + i % 4; ++j) text += words[(i + (i % 7 == 0 && j > 0)) % 3];
      lines += Json{{"text", text + std::to_string(i)},
                    {"label", concat("label ", i % 3)},
                    {"group", concat("group ", i / 6)}}
                   .dump() +
               "\n";
    }
    put_file(folder / "labeled.jsonl", lines);
  }
  ProcessResult run(const std::string& more = "", const std::string& variants = "clustered-2,oracle-top-2") const {
    return run_process(
        "text-search",
        concat("table --quiet --labeled labeled.jsonl --length 16 --train 40 --test 20 --nearest 3 --seeds 2 "
               "--batch 8 --variants ",
               variants, " --model ", small_model, ' ', more),
        concat("cd ", folder.path(), " && "));
  }
  Json table(const std::string& more = "") const {
    const auto result = run("--json --out out " + more);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.out);
  }
  std::vector<std::string> cells() const {
    std::istringstream in(bytes_of_file(folder / "out/cells.jsonl"));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  void put_cells(const std::vector<std::string>& lines) const {
    std::string text;
    for (const auto& line : lines) text += line + "\n";
    put_file(folder / "out/cells.jsonl", text);
  }
};

// Without what no two runs share.
Json without_times(Json table) {
  for (auto& variant : table["variants"]) variant.erase("seconds_per_token");
  return table;
}

}  // namespace

TEST_CASE("text-search table: accuracy by each variant, with what is finished kept", "[text_search]") {
  const TableCommand command;
  const Json first = command.table();
  CHECK(first["labeled_hash"] == xxh128(bytes_of_file(command.folder / "labeled.jsonl")));
  CHECK(first["length"] == 16);
  CHECK(first["train"] == 40);
  CHECK(first["test"] == 20);
  REQUIRE(first["variants"].size() == 3);
  const auto& full = first["variants"][0];
  CHECK(full["attention"] == "full");
  CHECK(full["difference"] == Json{{"mean", 0.0}, {"low", 0.0}, {"high", 0.0}});
  CHECK(full["accuracy"]["mean"].get<double>() > 0.5);  // words tell the label
  for (size_t v = 0; v < 3; ++v) {
    const auto& variant = first["variants"][v];
    CHECK(variant["seeds"] == (v == 1 ? 2 : 1));  // only clustering draws random numbers
    CHECK(variant["accuracy"]["low"] <= variant["accuracy"]["mean"]);
    CHECK(variant["accuracy"]["mean"] <= variant["accuracy"]["high"]);
    CHECK(variant["difference"]["mean"].get<double>() ==
          Approx(variant["accuracy"]["mean"].get<double>() - full["accuracy"]["mean"].get<double>()).margin(1e-12));
    CHECK(variant["seconds_per_token"] > 0);
  }
  CHECK(Json::parse(bytes_of_file(command.folder / "out/table.json")) == first);
  const auto cells = command.cells();
  REQUIRE(cells.size() == 4);  // 1 + 2 + 1
  for (const std::string& cell : cells) CHECK(Json::parse(cell)["right"].get<std::string>().size() == 20);
  const std::string right = Json::parse(cells[0])["right"];
  CHECK(double(std::count(right.begin(), right.end(), '1')) / 20 == Approx(full["accuracy"]["mean"].get<double>()));

  SECTION("again, nothing is computed") {
    auto edited = cells;
    Json cell = Json::parse(edited[0]);
    cell["right"] = std::string(20, '0');
    edited[0] = cell.dump();
    command.put_cells(edited);
    const Json again = command.table();
    CHECK(command.cells() == edited);
    const auto& variants = again["variants"];
    CHECK(variants[0]["accuracy"] == Json{{"mean", 0.0}, {"low", 0.0}, {"high", 0.0}});
    CHECK(variants[2]["difference"] == variants[2]["accuracy"]);
    CHECK(variants[1]["accuracy"] == first["variants"][1]["accuracy"]);
  }
  SECTION("what a stop left is gone on with") {
    command.put_cells({cells[0], cells[2]});
    CHECK(without_times(command.table()) == without_times(first));
    auto now = command.cells(), all = cells;
    std::sort(now.begin(), now.end()), std::sort(all.begin(), all.end());
    CHECK(now == all);
  }
  SECTION("other settings have cells of their own") {
    std::vector<std::string> zeros;
    for (const auto& line : cells) {
      Json cell = Json::parse(line);
      cell["right"] = std::string(cell["right"].get<std::string>().size(), '0');
      zeros.push_back(cell.dump());
    }
    command.put_cells(zeros);
    size_t count = 4;
    for (const std::string other : {"--nearest 1", "--batch 4", "--seed 7", "--train 39", "--length 12"}) {
      CAPTURE(other);
      const Json table = command.table(other);
      CHECK(table["variants"][0]["accuracy"]["mean"].get<double>() > 0.5);
      CHECK(command.cells().size() == (count += 4));
    }
    CHECK(command.table()["variants"][0]["accuracy"]["mean"] == 0);
  }
  SECTION("a damaged cell is an error") {
    Json cell = Json::parse(cells[2]);
    cell["right"] = 7;
    Json letters = Json::parse(cells[2]);
    letters["right"] = std::string(19, '1') + "x";
    for (const std::string& wrong : {std::string("garbage"), cells[2].substr(0, 30), cell.dump(), letters.dump(),
                                     std::string("[]"), std::string()}) {
      CAPTURE(wrong);
      auto damaged = cells;
      damaged[2] = wrong;
      command.put_cells(damaged);
      check_one_line(command.run("--out out"), 3, "cells.jsonl, line 3");
      CHECK(command.cells() == damaged);
    }
  }
}

TEST_CASE("text-search table without a folder, and what it refuses", "[text_search]") {
  const TableCommand command;
  const auto plain = command.run();
  INFO(plain.err);
  REQUIRE(plain.exit_code == 0);
  CHECK_THAT(plain.out, ContainsSubstring("20 texts by 40, of 16 tokens at most") && ContainsSubstring("oracle-top-2"));
  CHECK(std::distance(std::filesystem::directory_iterator(command.folder.path()), {}) == 1);
  const auto run = [&](const std::string& arguments) {
    return run_process("text-search", "table --quiet " + arguments, concat("cd ", command.folder.path(), " && "));
  };
  const std::string with_model = "--model " + small_model;
  check_one_line(run(with_model), 2, "expected --labeled");
  check_one_line(run("--labeled labeled.jsonl"), 2, "expected --model");
  check_one_line(run("--labeled none --model " + small_model), 3, "none");
  check_one_line(run("--labeled labeled.jsonl --model none --train 40 --test 20"), 3, "none/vocab.txt");
  check_one_line(run("--labeled labeled.jsonl --model " + small_model), 2, "expected 4000 examples and 1000 others");
  check_one_line(command.run("--length 513"), 2, "--length: the model has 512 positions");
  check_one_line(command.run("", "clusterd-1"), 2, "--variants");
  check_one_line(command.run("--out labeled.jsonl"), 2, "labeled.jsonl");
  put_file(command.folder / "bad.jsonl", "{}\n");
  check_one_line(run("--labeled bad.jsonl " + with_model), 3, "bad.jsonl, line 1: expected a string text");
}
