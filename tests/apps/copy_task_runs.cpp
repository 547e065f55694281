// copy-task as a user runs it: what it keeps, how it goes on, what it shows.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "tests/apps/markup.h"
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

// Changes what a run's newest checkpoint says about the run, its hash made right.
template <class F>
void change_checkpoint(const fs::path& run, F&& change) {
  Json json = Json::parse(bytes_of_file(run / "checkpoint/checkpoint.json"));
  change(json.at("about"));
  const std::string text = json.dump(2) + '\n', checksums = bytes_of_file(run / "checkpoint/checksums");
  put_file(run / "checkpoint/checkpoint.json", text);
  put_file(run / "checkpoint/checksums", xxh128(text) + checksums.substr(checksums.find(' ')));
}

template <class F>
void change_config(const fs::path& run, F&& change) {
  Json json = Json::parse(bytes_of_file(run / "config.json"));
  change(json);
  put_file(run / "config.json", json.dump());
}

}  // namespace

TEST_CASE("a finished run is resumed without a change", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string small =
      "train --json --length 3 --layers 1 --heads 1 --head-size 4 --feed-forward 4 --batch 2 --iterations 3 ";
  const auto first = run_process("copy-task", small + "--out " + (folder / "run").string());
  REQUIRE(first.exit_code == 0);
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "run"))
    if (entry.is_regular_file()) files[entry.path()] = read_file(entry.path());
  CHECK(files.size() == 9);  // .lock, config, metrics, result, report and four of the checkpoint
  const auto again = run_process("copy-task", "train --json --resume --out " + (folder / "run").string());
  CHECK(again.exit_code == 0);
  CHECK(Json::parse(first.out) == Json::parse(again.out));
  for (const auto& [name, bytes] : files) {
    INFO(name);
    CHECK(read_file(name) == bytes);
  }
  std::filesystem::remove(folder / "run/report.html");
  CHECK(run_process("copy-task", "train --quiet --resume --out " + (folder / "run").string()).exit_code == 0);
  CHECK(read_file(folder / "run/report.html") == files[folder / "run/report.html"]);
}

TEST_CASE("a training starts from the weights of another run", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), tuned = (folder / "tuned").string();
  json_of(tiny + "--out " + run);
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

TEST_CASE("a run made before a setting existed goes on with its default", "[copy-task]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  const std::string resume = "train --quiet --resume --iterations 8 --out " + run.string();
  REQUIRE(run_process("copy-task", tiny + "--out " + run.string()).exit_code == 0);
  change_config(run, [](Json& config) {
    for (const char* key : {"schedule", "plateau_factor", "plateau_patience", "clip", "weight_decay", "init_from"})
      REQUIRE(config.erase(key) == 1);
  });
  const auto other = run_process("copy-task", resume + " --clip 1");
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, ContainsSubstring("clip (0.0 in the run, 1.0 now)"));
  CHECK(run_process("copy-task", resume + " --clip 0 --schedule constant").exit_code == 0);
}

TEST_CASE("a run made with settings that no longer exist goes on if they had their defaults", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  REQUIRE(run_process("copy-task", tiny + "--out " + run.string()).exit_code == 0);
  const std::string evaluate = "evaluate --quiet --run " + run.string(),
                    resume = "train --quiet --resume --iterations 8 --out " + run.string();
  const auto set = [&](const char* key, const Json& value) {
    change_config(run, [&](Json& config) { config[key] = value; });
  };
  set("plateau_metric", "masked-accuracy");
  for (const std::string& command : {evaluate, resume}) {
    const auto refused = run_process("copy-task", command);
    CHECK(refused.exit_code == 3);
    CHECK_THAT(refused.err, ContainsSubstring("key 'plateau_metric': this setting no longer exists; "
                                              "only \"loss\", its old default, is accepted"));
  }
  set("plateau_metric", "loss");
  set("also_evaluate", "");
  CHECK(run_process("copy-task", evaluate).exit_code == 0);
  CHECK(run_process("copy-task", resume).exit_code == 0);
}

TEST_CASE("what is refused leaves nothing behind", "[copy-task][fault]") {
  const TemporaryFolder folder;
  for (const char* wrong : {"--device tpu", "--trace /no/such/trace", "--layers 1024 --feed-forward 1048576",
                            "--attention full-3", "--init-from /nowhere"}) {
    INFO(wrong);
    CHECK(run_process("copy-task", tiny + wrong + " --out " + (folder / "new").string()).exit_code != 0);
    CHECK_FALSE(std::filesystem::exists(folder / "new"));
  }
  CHECK(run_process("copy-task", "train --resume --quiet --out " + folder.path().string()).exit_code == 3);
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("evaluate judges a run as its training did", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  const auto trained = Json::parse(run_process("copy-task", tiny + "--seed 3 --out " + run + "/").out);
  const auto evaluated = Json::parse(run_process("copy-task", "evaluate --quiet --json --run " + run).out);
  for (const char* key : {"loss", "accuracy", "masked_accuracy", "sequences"}) CHECK(trained[key] == evaluated[key]);
}

TEST_CASE("records that are lost or damaged are told before a run goes on", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", metrics = run / "metrics.jsonl";
  REQUIRE(run_process("copy-task", tiny + "--out " + run.string()).exit_code == 0);
  const std::string text = read_file(metrics), resume = "train --quiet --resume --out " + run.string();
  put_file(metrics, "x" + text);
  const auto damaged = run_process("copy-task", resume + " --iterations 8");
  CHECK(damaged.exit_code == 3);
  CHECK_THAT(damaged.err, ContainsSubstring("metrics.jsonl: line 1: expected a JSON object"));
  CHECK(read_file(metrics) == "x" + text);
  put_file(metrics, text.substr(0, text.find('\n') + 9));  // cut off by a crash
  CHECK(run_process("copy-task", resume + " --iterations 8").exit_code == 0);
  CHECK_THAT(read_file(run / "report.html"), ContainsSubstring("Of 8 steps metrics.jsonl has the records of 3 alone"));
}

TEST_CASE("a run that goes on elsewhere says that it is no longer bit for bit", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  REQUIRE(run_process("copy-task", tiny + "--out " + run.string()).exit_code == 0);
  const std::string resume = "train --quiet --resume --out " + run.string() + " --iterations ";
  CHECK(run_process("copy-task", resume + "7").err == "");  // on the same machine
  const auto resumed_after = [&](const char* key, const char* value, const char* iterations) {
    change_checkpoint(run, [&](Json& about) { about["provenance"][key] = value; });
    const auto elsewhere = run_process("copy-task", resume + iterations);
    CHECK(elsewhere.exit_code == 0);
    CHECK_THAT(elsewhere.err, ContainsSubstring("no longer bit for bit"));
    return elsewhere.err;
  };
  CHECK_THAT(resumed_after("vectors", "other vectors", "8"),
             ContainsSubstring("was trained on the CPU with other vectors"));
  CHECK_THAT(resumed_after("device", "cuda", "9"), ContainsSubstring("was trained on cuda and goes on with the CPU"));
}

TEST_CASE("a training that diverges keeps what was good", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), trace = (folder / "trace.json").string();
  const auto diverged = run_process(
      "copy-task", tiny + "--iterations 300 --lr 1e6 --checkpoint-every 1 --trace " + trace + " --out " + run);
  INFO(diverged.err);
  CHECK(diverged.exit_code == 5);
  CHECK_THAT(diverged.err,
             ContainsSubstring("; the checkpoint of step ") && ContainsSubstring(" is in " + run + "/checkpoint\n"));
  CHECK(run_process("copy-task", "evaluate --quiet --run " + run).exit_code == 0);
  CHECK(Json::parse(read_file(trace)).contains("traceEvents"));
}

TEST_CASE("show fills in a sequence that is given", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  REQUIRE(run_process("copy-task", tiny + "--out " + run).exit_code == 0);
  const std::string show = "show --run " + run + " ";
  const auto json = Json::parse(run_process("copy-task", show + "--json 0 3 M 7 4 5 '0 3 5 7 M 5'").out);
  CHECK(json["input"] == Json({0, 3, 11, 7, 4, 5, 0, 3, 5, 7, 11, 5}));
  CHECK(json["target"] == Json({0, 3, 5, 7, 4, 5, 0, 3, 5, 7, 4, 5}));
  CHECK(json["answer"].size() == 12);
  const std::string text = run_process("copy-task", show + "0 3 M 7 4 5 0 3 5 7 M 5").out;
  CHECK_THAT(text, ContainsSubstring("input   0  3  M  7  4  5\n") && ContainsSubstring("target   0  3  5  7  4  5\n"));

  // What an example is given, it answers as it does the example.
  const auto example = Json::parse(run_process("copy-task", show + "--json --example 2").out);
  std::string words;
  for (const Json& symbol : example["input"]) words += symbol == 11 ? "M " : symbol.dump() + " ";
  CHECK(Json::parse(run_process("copy-task", show + "--json " + words).out) == example);
}

TEST_CASE("show looks where it is asked to, and says what it leaves out", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  REQUIRE(run_process("copy-task", tiny + "--layers 2 --heads 2 --out " + run).exit_code == 0);
  const std::string layer = run_process("copy-task", "show --run " + run + " --layer 2 --threads 1").out;
  CHECK_THAT(layer, ContainsSubstring("masked symbols of layer 2, head "));
  const auto json = Json::parse(run_process("copy-task", "show --json --run " + run).out);
  const auto& shares = json["attention_on_the_other_copy"][1];
  CHECK_THAT(layer, ContainsSubstring(shares[0] < shares[1] ? "layer 2, head 2 look" : "layer 2, head 1 look"));
  const std::string wide = (folder / "wide").string();
  REQUIRE(run_process("copy-task", tiny + "--length 150 --attention clustered-200 --iterations 0 --out " + wide)
              .exit_code == 0);
  const std::string text = run_process("copy-task", "show --run " + wide).out;
  CHECK_THAT(text, ContainsSubstring("Where they look is left out: 302 positions"));
  // Clusters from 100 on keep their distance.
  std::istringstream lines(text.substr(text.find("The clusters of")));
  for (std::string text_line; std::getline(lines, text_line);)
    if (text_line.find("cluster  ") != std::string::npos)
      CHECK(text_line.find_first_of("0123456789") + 4 * 21 >= text_line.size());
}

TEST_CASE("an interrupted run is saved and goes on", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), whole = (folder / "whole").string();
  const std::string settings =
      "train --quiet --length 15 --layers 1 --heads 1 --head-size 8 --feed-forward 8 --evaluate-every 50 ";
  // `timeout` signals when the metrics have grown: no guess at how fast this machine is.
  const std::string wait = "sh -c 'p=\"$0\"; \"$p\" \"$@\" & while [ $(wc -c <" + run +
                           "/metrics.jsonl 2>/dev/null || echo 0) -lt 9000 ]; do sleep 0.05; done; kill -s TERM $!; "
                           "wait $!' ";
  const auto stopped = run_process("copy-task", settings + "--iterations 100000000 --out " + run, wait);
  INFO(stopped.err);
  CHECK(stopped.exit_code == 130);
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
  REQUIRE(run_process("copy-task", settings + "--iterations 10 --out " + grid).exit_code == 0);
  std::filesystem::remove_all(folder / "grid/cells/full,length=7");  // as if that had not been begun
  const auto more = run_process("copy-task", settings + "--iterations 30 --out " + grid);
  REQUIRE(more.exit_code == 0);
  REQUIRE(run_process("copy-task", settings + "--iterations 30 --out " + whole).exit_code == 0);

  const Json cells = Json::parse(last_line(more.out)).at("cells");
  REQUIRE(cells.size() == 4);
  for (const Json& cell : cells) {
    const std::string name =
        concat("cells/", cell.at("attention").get<std::string>(), ",length=", cell.at("length").get<int64_t>());
    INFO(name);
    CHECK(cell.at("iterations") == 30);
    CHECK(cell.at("masked_accuracy").is_number());
    CHECK(run_process("copy-task", "evaluate --run '" + (folder / "grid" / name).string() + "' --attention full")
              .exit_code == 0);
    // The one that was stopped has another result on its way.
    for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
      CHECK(read_file(folder / "grid" / name / "checkpoint" / file) ==
            read_file(folder / "whole" / name / "checkpoint" / file));
  }
  const std::string page = read_file(folder / "grid/report.html");
  CHECK(markup_error(page.substr(page.find("<html"))).empty());
  CHECK_THAT(page, ContainsSubstring("All trainings: 4 of 4 finished"));
  CHECK(markup_error(read_file(folder / "grid/figure.svg")).empty());

  // Nothing is left to do, and nothing of it changes.
  const auto again = run_process("copy-task", settings + "--iterations 30 --out " + grid);
  CHECK(last_line(again.out) == last_line(more.out));
  // Not with other settings.
  const auto other = run_process("copy-task", settings + "--iterations 30 --seed 2 --out " + grid);
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, ContainsSubstring("seed (1 in the run, 2 now)"));
  fs::remove(folder / "grid/config.json");  // as in the figures of older versions: each run has its own
  const auto older = run_process("copy-task", settings + "--iterations 30 --seed 2 --out " + grid);
  CHECK(older.exit_code == 2);
  CHECK_THAT(older.err, ContainsSubstring("this run of the figure has other settings: seed (1 in the run, 2 now)"));
}

TEST_CASE("an interrupted grid says how it goes on, and what is refused leaves nothing behind", "[copy-task][fault]") {
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

  for (const std::string arguments : {"--variants ful", "--lengths 5,x", "--lengths 7,5", "--variants ''"}) {
    const auto run = run_process("copy-task", "figure --out " + (folder / "none").string() + " " + arguments);
    INFO(arguments << ": " << run.err);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.err, Catch::Matchers::StartsWith("copy-task: error: " + arguments.substr(0, arguments.find(' '))));
    CHECK_FALSE(std::filesystem::exists(folder / "none"));
  }
}
