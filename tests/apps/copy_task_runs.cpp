// copy-task as a user runs it: what it keeps, how it goes on, what it shows.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "tests/apps/process.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

const std::string tiny =
    "train --quiet --json --length 5 --layers 1 --heads 1 --head-size 4 --feed-forward 4 --batch 2 --iterations 6 ";

// A command that ends well; its result.
Json json_of(const std::string& arguments) {
  const auto result = run_process("copy-task", arguments);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  return Json::parse(last_line(result.out));
}

bool same_weights(const fs::path& a, const fs::path& b) {
  return std::ranges::all_of(std::array{"weights.safetensors", "optimizer.safetensors"}, [&](const char* file) {
    return read_file(a / "checkpoint" / file) == read_file(b / "checkpoint" / file);
  });
}

}  // namespace

TEST_CASE("a finished run is resumed without a change", "[copy-task]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  const Json first = json_of(tiny + "--out " + run.string());
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(run))
    if (entry.is_regular_file()) files[entry.path()] = read_file(entry.path());
  CHECK(files.size() == 9);  // .lock, config, metrics, result, report and four of the checkpoint
  fs::remove(run / "report.html");
  CHECK(json_of("train --json --resume --out " + run.string()) == first);
  for (const auto& [name, bytes] : files) {
    INFO(name);
    CHECK(read_file(name) == bytes);
  }
}

TEST_CASE("a training starts from the weights of another run", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), tuned = (folder / "tuned").string();
  const Json trained = json_of(tiny + "--seed 3 --out " + run);
  const Json judged = json_of("evaluate --quiet --json --run " + run);  // as its training did
  for (const char* key : {"loss", "accuracy", "masked_accuracy", "sequences"}) CHECK(judged[key] == trained[key]);
  const std::string tune = "train --quiet --json --config " + run + "/config.json --init-from " + run +
                           " --attention clustered-3 --lr 1e-3 --out ";
  const Json untouched = json_of(tune + tuned + " --iterations 0");
  const Json evaluated = json_of("evaluate --quiet --json --attention clustered-3 --run " + run);
  for (const char* key : {"loss", "accuracy", "masked_accuracy"}) CHECK(untouched[key] == evaluated[key]);
  const char* const weights = "checkpoint/weights.safetensors";
  CHECK(read_file(folder / "tuned" / weights) == read_file(folder / "run" / weights));
  // Positions are no weights.
  CHECK(run_process("copy-task", tune + (folder / "longer").string() + " --length 7").exit_code == 0);

  json_of(tune + (folder / "whole").string() + " --iterations 9");
  fs::rename(run, run + ".moved");  // resuming needs it no more
  json_of("train --quiet --json --resume --iterations 9 --out " + tuned);
  CHECK(same_weights(folder / "tuned", folder / "whole"));
  CHECK(read_file(folder / "tuned" / weights) != read_file(folder / "run.moved" / weights));
}

TEST_CASE("a run that goes on elsewhere says that it is no longer bit for bit", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  json_of(tiny + "--out " + run.string());
  const std::string resume = "train --quiet --resume --out " + run.string() + " --iterations ";
  CHECK(run_process("copy-task", resume + "7").err == "");  // on the same machine
  // The checkpoint says so, and its hash is right.
  Json json = Json::parse(bytes_of_file(run / "checkpoint/checkpoint.json"));
  json.at("about").at("provenance").at("vectors") = "other vectors";
  const std::string text = json.dump(2) + '\n', checksums = bytes_of_file(run / "checkpoint/checksums");
  put_file(run / "checkpoint/checkpoint.json", text);
  put_file(run / "checkpoint/checksums", xxh128(text) + checksums.substr(checksums.find(' ')));
  const auto elsewhere = run_process("copy-task", resume + "8");
  CHECK(elsewhere.exit_code == 0);
  CHECK_THAT(elsewhere.err, ContainsSubstring("was trained on the CPU with other vectors") &&
                                ContainsSubstring("no longer bit for bit"));
}

TEST_CASE("show fills in a sequence that is given, and says where the model looks", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), show = "show --run " + run + " ";
  json_of(tiny + "--layers 2 --heads 2 --out " + run);
  const Json json = json_of(show + "--json 0 3 M 7 4 5 '0 3 5 7 M 5'");
  CHECK(json["input"] == Json({0, 3, 11, 7, 4, 5, 0, 3, 5, 7, 11, 5}));
  CHECK(json["target"] == Json({0, 3, 5, 7, 4, 5, 0, 3, 5, 7, 4, 5}));
  CHECK(json["answer"].size() == 12);
  const std::string text = run_process("copy-task", show + "--layer 2 0 3 M 7 4 5 0 3 5 7 M 5").out;
  const Json& shares = json["attention_on_the_other_copy"][1];
  CHECK_THAT(text, ContainsSubstring(shares[0] < shares[1] ? "of layer 2, head 2 look" : "of layer 2, head 1 look"));

  // What an example is given, it answers as it does the example.
  const Json example = json_of(show + "--json --example 2");
  std::string words;
  for (const Json& symbol : example["input"]) words += symbol == 11 ? "M " : symbol.dump() + " ";
  CHECK(json_of(show + "--json " + words) == example);
}

TEST_CASE("an interrupted run is saved and goes on", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), whole = (folder / "whole").string();
  const std::string settings =
      "train --length 15 --layers 1 --heads 1 --head-size 8 --feed-forward 8 --evaluate-every 50 ";
  // `timeout` signals when the metrics have grown: no guess at how fast this machine is.
  const std::string wait = "sh -c 'p=\"$0\"; \"$p\" \"$@\" & while [ $(wc -c <" + run +
                           "/metrics.jsonl 2>/dev/null || echo 0) -lt 9000 ]; do sleep 0.05; done; kill -s TERM $!; "
                           "wait $!' ";
  const auto stopped = run_process("copy-task", settings + "--iterations 100000000 --out " + run, wait);
  INFO(stopped.err);
  CHECK(stopped.exit_code == 130);
  CHECK(stopped.out.empty());
  CHECK_THAT(stopped.err, ContainsSubstring("stopping after this step; once more to stop at once\n") &&
                              ContainsSubstring("Saved; continue with: copy-task train --out " + run + " --resume\n"));
  const std::string records = read_file(run + "/metrics.jsonl");
  const auto steps = int64_t(std::ranges::count(records, '\n'));
  const std::string page = read_file(run + "/report.html");
  CHECK(markup_error(page.substr(page.find("<html"))).empty());
  CHECK_THAT(page, ContainsSubstring("The run was interrupted after "));
  REQUIRE(steps > 50);
  const std::string more = " --iterations " + std::to_string(steps + 20);
  REQUIRE(run_process("copy-task", "train --quiet --resume --out " + run + more).exit_code == 0);
  REQUIRE(run_process("copy-task", settings + "--out " + whole + more).exit_code == 0);
  CHECK(same_weights(whole, run));
}

TEST_CASE("the grid of figure 5 is runs that go on where they were stopped", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string grid = (folder / "grid").string(), whole = (folder / "whole").string();
  const std::string settings =
      "figure --quiet --json --variants full,clustered-3 --lengths 5,7 --layers 1 --heads 1 --head-size 8 "
      "--feed-forward 8 --batch 4 --evaluate-every 10 --checkpoint-every 0 ";
  json_of(settings + "--iterations 10 --out " + grid);
  fs::remove_all(folder / "grid/cells/full,length=7");  // as if that had not been begun
  const Json more = json_of(settings + "--iterations 30 --out " + grid);
  json_of(settings + "--iterations 30 --out " + whole);
  REQUIRE(more.at("cells").size() == 4);
  for (const Json& cell : more.at("cells")) {
    const std::string name =
        concat("cells/", cell.at("attention").get<std::string>(), ",length=", cell.at("length").get<int64_t>());
    INFO(name);
    CHECK(cell.at("iterations") == 30);
    CHECK(cell.at("masked_accuracy").is_number());
    CHECK(run_process("copy-task", "evaluate --run '" + (folder / "grid" / name).string() + "' --attention full")
              .exit_code == 0);
    CHECK(same_weights(folder / "grid" / name, folder / "whole" / name));
  }
  const std::string page = read_file(folder / "grid/report.html");
  CHECK(markup_error(page.substr(page.find("<html"))).empty());
  CHECK_THAT(page, ContainsSubstring("All trainings: 4 of 4 finished"));
  CHECK(markup_error(read_file(folder / "grid/figure.svg")).empty());

  // Nothing is left to do, and nothing of it changes.
  CHECK(json_of(settings + "--iterations 30 --out " + grid) == more);
  // Not with other settings.
  const auto other = run_process("copy-task", settings + "--iterations 30 --seed 2 --out " + grid);
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, ContainsSubstring("seed (1 in the run, 2 now)"));
  fs::remove(folder / "grid/config.json");  // as in the figures of older versions: each run has its own
  const auto older = run_process("copy-task", settings + "--iterations 30 --seed 2 --out " + grid);
  CHECK(older.exit_code == 2);
  CHECK_THAT(older.err, ContainsSubstring("this run of the figure has other settings: seed (1 in the run, 2 now)"));
  CHECK_FALSE(fs::exists(folder / "grid/config.json"));
}

TEST_CASE("an interrupted grid says how it goes on", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string grid = (folder / "grid").string();
  const std::string wait = "sh -c 'p=\"$0\"; \"$p\" \"$@\" & while [ ! -s \"" + grid +
                           "/cells/full,length=5/metrics.jsonl\" ]; do sleep 0.05; done; kill -s TERM $!; wait $!' ";
  const auto stopped = run_process("copy-task",
                                   "figure --variants full,clustered-3 --lengths 5 --layers 1 --heads 1 --head-size 8 "
                                   "--feed-forward 8 --iterations 100000000 --out " +
                                       grid,
                                   wait);
  INFO(stopped.err);
  CHECK(stopped.exit_code == 130);
  CHECK_THAT(stopped.err, ContainsSubstring("Saved; the same command continues"));
}
