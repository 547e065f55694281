// A run that is stopped and resumed is the run that was never stopped, to the last bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/copy_task/settings.h"
#include "apps/copy_task/train.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/io/hash.h"
#include "tests/apps/markup.h"
#include "tests/apps/process.h"
#include "tests/attention/spec_of.h"
#include "tests/io/io_test.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

// Fields that tell times are not the same twice.
void drop_times(Json& json) {
  if (!json.is_object()) return;
  for (auto it = json.begin(); it != json.end();) {
    const std::string key = it.key();
    const auto ends = [&](const std::string& end) {
      return key.size() >= end.size() && key.compare(key.size() - end.size(), end.size(), end) == 0;
    };
    if (ends("seconds") || ends("per_second")) {
      it = json.erase(it);
    } else {
      drop_times(*it);
      ++it;
    }
  }
}

std::vector<Json> timeless_metrics(const std::filesystem::path& run) {
  std::vector<Json> records;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    records.push_back(Json::parse(line));
    drop_times(records.back());
  }
  return records;
}

void check_same_run(const std::filesystem::path& a, const std::filesystem::path& b) {
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
    CHECK(read_file(a / "checkpoint" / file) == read_file(b / "checkpoint" / file));
  CHECK(timeless_metrics(a) == timeless_metrics(b));
}

// Trains to `iterations` in `folder`, from its checkpoint if it has one.
void train_in(const std::filesystem::path& path, TrainOptions options, int64_t iterations) {
  RunFolder folder(path);
  auto found = find_checkpoint(path);
  const Json about = {{"program", "copy-task"}, {"configuration", Json::object()}, {"provenance", Json::object()}};
  const RunFiles files{folder, about, found ? &*found : nullptr};
  options.iterations = iterations;
  Progress progress(iterations, true);
  Communicator alone;
  train(options, progress, &files, alone);
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

}  // namespace

// Sanitizers are slow, and ask nothing of more steps, nor of variants that differ in nothing that is saved.
#if CAIRN_SANITIZED
constexpr int training_steps = 20;
const char* const sanitized_variants[] = {"full", "i-clustered", "inducing", "lsh"};
bool tried(const std::string& variant) { return std::ranges::count(sanitized_variants, variant) > 0; }
#else
constexpr int training_steps = 200;
bool tried(const std::string&) { return true; }
#endif

TEST_CASE("training with every attention variant resumes bit for bit", "[copy-task]") {
  const int before = threads();
  for (const auto* variant : attention_variants()) {
    if (!tried(variant->name)) continue;
    TrainOptions options;
    options.length = 9, options.batch = 3, options.evaluate_every = 4, options.checkpoint_every = 3;
    options.sequences_meanwhile = options.sequences_after = 20;  // they would take nearly all of the time
    options.model.layers = 2, options.model.heads = 3, options.model.head_size = 8, options.model.feed_forward = 24;
    options.model.dropout = options.model.attention_dropout = 0.1;
    options.model.attention = spec_of(*variant, 4, 5);
    INFO(options.model.attention);
    const TemporaryFolder whole, parts;
    set_threads(2);
    train_in(whole.path(), options, 11);
    train_in(parts.path(), options, 2);
    set_threads(3);
    train_in(parts.path(), options, 7);
    set_threads(1);
    train_in(parts.path(), options, 11);
    check_same_run(whole.path(), parts.path());
    CHECK(timeless_metrics(whole.path()).size() == 11);
  }
  set_threads(before);
}

static TrainOptions small_training() {
  TrainOptions options;
  options.length = 9, options.batch = 3, options.learning_rate = 1e-2, options.evaluate_every = 1;
  options.sequences_meanwhile = options.sequences_after = 8;
  options.model.layers = 1, options.model.heads = 2, options.model.head_size = 4, options.model.feed_forward = 8;
  return options;
}

TEST_CASE("a plateau of the loss drops the learning rate, and resumes bit for bit", "[copy-task]") {
  TrainOptions options = small_training();
  options.schedule = "plateau", options.plateau.factor = 0.5;
  options.plateau.patience = 1, options.clip = 0.5, options.weight_decay = 0.1;
  const TemporaryFolder whole, parts;
  train_in(whole.path(), options, 16);
  for (const int64_t iterations : {0, 5, 8, 16}) train_in(parts.path(), options, iterations);
  check_same_run(whole.path(), parts.path());

  double best = INFINITY, rate = options.learning_rate;
  int waited = 0, drops = 0;
  for (const Json& record : timeless_metrics(whole.path())) {
    const double loss = record.at("evaluation").at("loss");
    if (std::isinf(best) || loss < best - 1e-4 * std::abs(best)) {
      best = loss, waited = 0;
    } else if (++waited == 2) {
      rate /= 2, waited = 0, ++drops;
    }
    CHECK(record.at("learning_rate") == rate);
  }
  CHECK(drops > 1);
}

TEST_CASE("clipping and weight decay change a step as they say", "[copy-task]") {
  // The first step of R-Adam is momentum alone: the learning rate times the gradient.
  const auto weights_after = [](const TrainOptions& options, int64_t iterations) {
    const TemporaryFolder folder;
    train_in(folder.path(), options, iterations);
    const Tensor weights = find_checkpoint(folder.path())->weights.at("output.weight");
    const auto metrics = timeless_metrics(folder.path());
    return std::pair(weights.to_vector<float>(), metrics.empty() ? 0 : metrics[0].at("gradient_norm").get<double>());
  };
  TrainOptions options = small_training();
  const auto start = weights_after(options, 0).first;
  const auto [plain, norm] = weights_after(options, 1);
  options.clip = norm / 4;
  const auto clipped = weights_after(options, 1).first;
  options.clip = 0, options.weight_decay = 0.5;
  const auto decayed = weights_after(options, 1).first;
  double largest = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    const double step = double(plain[i]) - start[i];
    largest = std::max(largest, std::abs(step));
    CHECK(double(clipped[i]) - start[i] == Approx(step / 4).margin(1e-6));
    CHECK(double(decayed[i]) - plain[i] == Approx(-0.01 * 0.5 * start[i]).margin(1e-6));
  }
  CHECK(largest > 1e-4);  // more than the margins
}

TEST_CASE("copy-task resumes the quick model bit for bit, also with other threads", "[copy-task][slow]") {
  for (const char* attention : {"full", "clustered-15", "i-clustered-15", "oracle-top-8"}) {
    INFO(attention);
    const TemporaryFolder folder;
    const std::string settings =
        concat("train --quiet --quick --length 35 --batch 7 --attention ", attention, " --out ");
    const auto run = [&](const std::string& arguments) {
      const auto result = run_process("copy-task", settings + (folder / arguments).string());
      INFO(result.err);
      REQUIRE(result.exit_code == 0);
    };
    run(concat("whole --threads 2 --iterations ", training_steps));
    run(concat("parts --threads 2 --iterations ", training_steps / 2));
    run(concat("parts --threads 1 --resume --checkpoint-every 30 --iterations ", training_steps));
    check_same_run(folder / "whole", folder / "parts");
    REQUIRE(timeless_metrics(folder / "whole").size() == size_t(training_steps) + 1);
    CHECK(timeless_metrics(folder / "whole").back()["result"]["attention"] == attention);
  }
}

TEST_CASE("a finished run is resumed without a change", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string small =
      "train --json --length 3 --layers 1 --heads 1 --head-size 4 --feed-forward 4 --batch 2 --iterations 3 ";
  const auto first = run_process("copy-task", small + "--out " + (folder / "run").string());
  REQUIRE(first.exit_code == 0);
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "run"))
    if (entry.is_regular_file()) files[entry.path()] = read_file(entry.path());
  CHECK(files.size() == 8);  // .lock, config, metrics, report and four of the checkpoint
  const auto again = run_process("copy-task", "train --json --resume --out " + (folder / "run").string());
  CHECK(again.exit_code == 0);
  auto a = Json::parse(first.out), b = Json::parse(again.out);
  a.erase("peak_bytes");  // of the process
  CHECK(a == b);
  for (const auto& [name, bytes] : files) {
    INFO(name);
    CHECK(read_file(name) == bytes);
  }
  std::filesystem::remove(folder / "run/report.html");
  CHECK(run_process("copy-task", "train --quiet --resume --out " + (folder / "run").string()).exit_code == 0);
  CHECK(read_file(folder / "run/report.html") == files[folder / "run/report.html"]);
}

static const std::string tiny =
    "train --quiet --json --length 5 --layers 1 --heads 1 --head-size 4 --feed-forward 4 --batch 2 --iterations 6 ";

TEST_CASE("a training starts from the weights of another run", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), tuned = (folder / "tuned").string();
  const auto json_of = [](const std::string& arguments) {
    const auto result = run_process("copy-task", arguments);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return Json::parse(result.out);
  };
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
  check_same_run(folder / "tuned", folder / "whole");
  CHECK(read_file(folder / "tuned" / weights) != read_file(folder / "run.moved" / weights));
}

TEST_CASE("a run made before a setting existed goes on with its default", "[copy-task]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  const std::string resume = "train --quiet --resume --iterations 8 --out " + run.string();
  REQUIRE(run_process("copy-task", tiny + "--out " + run.string()).exit_code == 0);
  change_checkpoint(run, [](Json& about) {
    Json& configuration = about.at("configuration");
    for (const char* key : {"schedule", "plateau_factor", "plateau_patience", "clip", "weight_decay", "init_from"})
      REQUIRE(configuration.erase(key) == 1);
  });
  const auto other = run_process("copy-task", resume + " --clip 1");
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, Catch::Matchers::ContainsSubstring("clip (unset in the run, 1.0 now)"));
  CHECK(run_process("copy-task", resume + " --clip 0 --schedule constant").exit_code == 0);
}

TEST_CASE("a run made with settings that no longer exist goes on if they had their defaults", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  REQUIRE(run_process("copy-task", tiny + "--out " + run.string()).exit_code == 0);
  const std::string evaluate = "evaluate --quiet --run " + run.string(),
                    resume = "train --quiet --resume --iterations 8 --out " + run.string();
  const auto set = [&](const char* key, const Json& value) {
    change_checkpoint(run, [&](Json& about) { about.at("configuration")[key] = value; });
  };
  set("plateau_metric", "masked-accuracy");
  for (const std::string& command : {evaluate, resume}) {
    const auto refused = run_process("copy-task", command);
    CHECK(refused.exit_code == 3);
    CHECK_THAT(refused.err, Catch::Matchers::ContainsSubstring("key 'plateau_metric': this setting no longer exists; "
                                                               "only \"loss\", its old default, is accepted"));
  }
  set("plateau_metric", "loss");
  set("also_evaluate", "");
  CHECK(run_process("copy-task", evaluate).exit_code == 0);
  CHECK(run_process("copy-task", resume).exit_code == 0);
}

TEST_CASE("a folder with somebody's files is no place for a run", "[copy-task][fault]") {
  for (const char* name : {"config.json", "metrics.jsonl", "report.html"}) {
    INFO(name);
    const TemporaryFolder folder;
    put_file(folder / name, "mine");
    for (const char* resumed : {"", " --resume"}) {
      const auto refused = run_process("copy-task", tiny + "--out " + folder.path().string() + resumed);
      INFO(refused.err);
      CHECK((refused.exit_code == 2 || *resumed));
      CHECK(refused.exit_code != 0);
      CHECK_THAT(refused.err, Catch::Matchers::ContainsSubstring(name));
    }
    CHECK(read_file(folder / name) == "mine");
  }
  // Files that a run does not write are none of its business.
  const TemporaryFolder folder;
  put_file(folder / "notes.txt", "mine");
  CHECK(run_process("copy-task", tiny + "--out " + folder.path().string()).exit_code == 0);
  CHECK(read_file(folder / "notes.txt") == "mine");
}

TEST_CASE("what is refused leaves nothing behind", "[copy-task][fault]") {
  const TemporaryFolder folder;
  for (const char* wrong :
       {"--device tpu", "--trace /no/such/trace", "--layers 1024 --feed-forward 1048576", "--attention full-3"}) {
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
  // One rate for all sessions: steps and seconds are those of all.
  const auto more =
      Json::parse(run_process("copy-task", "train --quiet --json --resume --iterations 7 --out " + run).out);
  CHECK(more["steps_per_second"].get<double>() >= 7 / more["seconds"].get<double>());
  CHECK(more["steps_per_second"].get<double>() < 3 * trained["steps_per_second"].get<double>());
}

TEST_CASE("the records that a save covers are whole, or that is said", "[copy-task][fault]") {
  const TemporaryFolder folder;
  REQUIRE(run_process("copy-task", tiny + "--out " + (folder / "run").string()).exit_code == 0);
  const std::string text = read_file(folder / "run/metrics.jsonl");
  const auto resumed = [&](const std::string& metrics) {
    put_file(folder / "run/metrics.jsonl", metrics);
    return run_process("copy-task", "train --resume --quiet --out " + (folder / "run").string());
  };
  const size_t second = text.find('\n') + 1;
  const auto damaged = resumed(text.substr(0, second) + "x" + text.substr(second));
  CHECK(damaged.exit_code == 3);
  CHECK_THAT(damaged.err, Catch::Matchers::ContainsSubstring("metrics.jsonl: line 2: expected a record"));
  CHECK(resumed(text.substr(0, second + 5)).exit_code == 0);  // cut off by a crash
  CHECK_THAT(read_file(folder / "run/report.html"),
             Catch::Matchers::ContainsSubstring("Of 6 steps metrics.jsonl has the records of 1 alone") &&
                 Catch::Matchers::ContainsSubstring("<dd>6 steps</dd>"));
  // Behind the save, a crash may have left anything.
  CHECK(resumed(text + "x\n").exit_code == 0);
  std::filesystem::remove(folder / "run/metrics.jsonl");
  CHECK(read_metrics(folder / "run", 100).empty());
  std::filesystem::create_directory(folder / "run/metrics.jsonl");
  CHECK_THAT(data_error([&] { read_metrics(folder / "run", 0); }), Catch::Matchers::ContainsSubstring("is a folder"));
}

TEST_CASE("records that are cut off anywhere are dropped, and those behind them are whole", "[copy-task][fault]") {
  const TemporaryFolder folder;
  std::string text;
  for (int step = 1; step <= 5; ++step) text += Json({{"step", step}, {"loss", 0.5 / step}}).dump() + '\n';
  for (size_t size = 0; size <= text.size(); ++size) {
    put_file(folder / "metrics.jsonl", text.substr(0, size));
    const auto whole = size_t(std::count(text.begin(), text.begin() + long(size), '\n'));
    // A report of the run as it is.
    CHECK(read_metrics(folder.path(), text.size()).size() - whole <= 1);
    RunFolder run(folder.path());
    CHECK(run.cut_metrics(text.size()) == (size == text.size()));
    run.record({{"step", 6}});
    CHECK(timeless_metrics(folder.path()).size() == whole + 1);
    CHECK(read_metrics(folder.path(), UINT64_MAX).size() == whole + 1);
  }
}

TEST_CASE("a run whose records are damaged ends before it trains, not after", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  REQUIRE(run_process("copy-task", tiny + "--out " + run).exit_code == 0);
  const std::string text = read_file(folder / "run/metrics.jsonl");
  const auto resumed = [&](const std::string& metrics) {
    put_file(folder / "run/metrics.jsonl", metrics);
    return run_process("copy-task", "train --quiet --resume --iterations 8 --out " + run);
  };
  const auto damaged = resumed("x" + text);
  CHECK(damaged.exit_code == 3);
  CHECK_THAT(damaged.err, Catch::Matchers::ContainsSubstring("metrics.jsonl: line 1"));
  CHECK(read_file(folder / "run/metrics.jsonl") == "x" + text);
  CHECK(train_state(*find_checkpoint(run)).step == 6);
  const auto cut = resumed(text.substr(0, text.find('\n') + 9));
  CHECK(cut.exit_code == 0);
  CHECK_THAT(cut.err, Catch::Matchers::ContainsSubstring("some records of the first 6 steps are lost"));
  CHECK_THAT(read_file(folder / "run/report.html"),
             Catch::Matchers::ContainsSubstring("Of 8 steps metrics.jsonl has the records of 3 alone"));
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
    CHECK_THAT(elsewhere.err, Catch::Matchers::ContainsSubstring("no longer bit for bit"));
    return elsewhere.err;
  };
  CHECK_THAT(resumed_after("vectors", "other vectors", "8"),
             Catch::Matchers::ContainsSubstring("was trained on the CPU with other vectors"));
  CHECK_THAT(resumed_after("device", "cuda", "9"),
             Catch::Matchers::ContainsSubstring("was trained on cuda and goes on with the CPU"));
}

TEST_CASE("a training that diverges keeps what was good", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string(), trace = (folder / "trace.json").string();
  const auto diverged = run_process(
      "copy-task", tiny + "--iterations 300 --lr 1e6 --checkpoint-every 1 --trace " + trace + " --out " + run);
  INFO(diverged.err);
  CHECK(diverged.exit_code == 5);
  CHECK_THAT(diverged.err, Catch::Matchers::ContainsSubstring("; the checkpoint of step ") &&
                               Catch::Matchers::ContainsSubstring(" is in " + run + "/checkpoint\n"));
  CHECK(run_process("copy-task", "evaluate --quiet --run " + run).exit_code == 0);
  CHECK(Json::parse(read_file(trace)).contains("traceEvents"));
}

TEST_CASE("a finished run says why it ended", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "a run").string(), resume = "train --resume --out '" + run + "'";
  REQUIRE(run_process("copy-task", tiny + "--evaluate-every 2 --stop-at 1e-9 --iterations 50 --out '" + run + "'")
              .exit_code == 0);
  const auto stopped = run_process("copy-task", resume + " --trace '" + run + "/trace'");
  CHECK_THAT(stopped.err,
             Catch::Matchers::ContainsSubstring("reached --stop-at 1e-09 at step ") &&
                 Catch::Matchers::ContainsSubstring("--config '" + run + "/config.json' --set stop_at=0") &&
                 Catch::Matchers::ContainsSubstring("--trace: nothing ran"));
  CHECK_FALSE(std::filesystem::exists(run + "/trace"));
  const auto fewer = run_process("copy-task", resume + " --iterations 1");
  CHECK(fewer.exit_code == 2);
  CHECK_THAT(fewer.err, Catch::Matchers::ContainsSubstring("--iterations 1: the run has made"));
}

TEST_CASE("a checkpoint that is passed over is told, also to who wants quiet", "[copy-task][fault]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  REQUIRE(run_process("copy-task", tiny + "--checkpoint-every 2 --out " + run).exit_code == 0);
  put_file(run + "/checkpoint/weights.safetensors", "x");
  const auto evaluated = run_process("copy-task", "evaluate --quiet --run " + run);
  CHECK_THAT(evaluated.err, Catch::Matchers::ContainsSubstring("the checkpoint of step 4 in " + run +
                                                               "/checkpoint.previous is used\n"));
  const auto resumed = run_process("copy-task", "train --resume --quiet --out " + run);
  CHECK(resumed.exit_code == 0);
  CHECK_THAT(resumed.err,
             Catch::Matchers::ContainsSubstring("the damaged one is moved to " + run + "/checkpoint.damaged\n"));
  CHECK(std::filesystem::exists(run + "/checkpoint.damaged"));
  for (const char* which : {"/checkpoint", "/checkpoint.previous"}) put_file(run + which + "/weights.safetensors", "x");
  CHECK_THAT(run_process("copy-task", "evaluate --run " + run).err,
             Catch::Matchers::ContainsSubstring("or train again: --config " + run + "/config.json --out ANOTHER"));
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
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("input   0  3  M  7  4  5\n") &&
                       Catch::Matchers::ContainsSubstring("target   0  3  5  7  4  5\n"));

  // What an example is given, it answers as it does the example.
  const auto example = Json::parse(run_process("copy-task", show + "--json --example 2").out);
  std::string words;
  for (const Json& symbol : example["input"]) words += symbol == 11 ? "M " : symbol.dump() + " ";
  CHECK(Json::parse(run_process("copy-task", show + "--json " + words).out) == example);

  const std::pair<const char*, const char*> wrong[] = {
      {"'0;3'", "SEQUENCE: symbol 1: expected a number from 0 to 10 or M for a masked one, got \"0;3\"; separate"},
      {"0 11", "SEQUENCE: symbol 2: expected a number from 0 to 10 or M"},
      {"0 3 0 3", "SEQUENCE: expected the 12 symbols 0w0w with 5 symbols in w, as the run was trained on, got 4"},
      {"0 3 0 7 4 5 0 3 5 7 4 5", "SEQUENCE: symbol 3: expected a symbol from 1 to 10 or M, got 0"},
      {"0 3 5 7 4 5 M 3 5 7 4 5", "SEQUENCE: symbol 7: expected the separator 0, got M"},
      {"0 3 5 7 4 5 0 3 5 7 4 6", "SEQUENCE: symbol 6: expected the same as in the other copy, 6, got 5"},
      {"0 3 5 7 4 M 0 3 5 7 4 M", "SEQUENCE: symbol 6: is masked in both copies; leave it unmasked in one"},
      {"0 3 5 7 4 5 0 3 5 7 4 5 --seed 1", "--example and --seed name an example"},
  };
  for (const auto& [sequence, message] : wrong) {
    const auto refused = run_process("copy-task", show + sequence);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, Catch::Matchers::ContainsSubstring(message));
  }
  CHECK_THAT(run_process("copy-task", "show 0 3 0 3").err,
             Catch::Matchers::ContainsSubstring("expected --run with it"));
}

TEST_CASE("show looks where it is asked to, and says what it leaves out", "[copy-task]") {
  const TemporaryFolder folder;
  const std::string run = (folder / "run").string();
  REQUIRE(run_process("copy-task", tiny + "--layers 2 --heads 2 --out " + run).exit_code == 0);
  const std::string layer = run_process("copy-task", "show --run " + run + " --layer 2 --threads 1").out;
  CHECK_THAT(layer, Catch::Matchers::ContainsSubstring("masked symbols of layer 2, head "));
  const auto json = Json::parse(run_process("copy-task", "show --json --run " + run).out);
  const auto& shares = json["attention_on_the_other_copy"][1];
  CHECK_THAT(layer, Catch::Matchers::ContainsSubstring(shares[0] < shares[1] ? "layer 2, head 2 look"
                                                                             : "layer 2, head 1 look"));
  const std::string wide = (folder / "wide").string();
  REQUIRE(run_process("copy-task", tiny + "--length 150 --attention clustered-200 --iterations 0 --out " + wide)
              .exit_code == 0);
  const std::string text = run_process("copy-task", "show --run " + wide).out;
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("Where they look is left out: 302 positions"));
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
  const int64_t steps = int64_t(timeless_metrics(run).size());
  REQUIRE(steps > 50);
  const std::string more = " --iterations " + std::to_string(steps + 20);
  REQUIRE(run_process("copy-task", "train --quiet --resume --out " + run + more).exit_code == 0);
  REQUIRE(run_process("copy-task", settings + "--out " + whole + more).exit_code == 0);
  check_same_run(whole, run);
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
  CHECK_THAT(page, Catch::Matchers::ContainsSubstring("All trainings: 4 of 4 finished"));
  CHECK(markup_error(read_file(folder / "grid/figure.svg")).empty());

  // Nothing is left to do, and nothing of it changes.
  const auto again = run_process("copy-task", settings + "--iterations 30 --out " + grid);
  CHECK(last_line(again.out) == last_line(more.out));
  // Not with other settings.
  const auto other = run_process("copy-task", settings + "--iterations 30 --seed 2 --out " + grid);
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.err, Catch::Matchers::ContainsSubstring("seed (1 in the run, 2 now)"));
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
  CHECK_THAT(stopped.err,
             Catch::Matchers::ContainsSubstring("the same command continues: 0 of 2 trainings are finished"));

  for (const std::string arguments : {"--variants ful", "--lengths 5,x", "--lengths 7,5", "--variants ''"}) {
    const auto run = run_process("copy-task", "figure --out " + (folder / "none").string() + " " + arguments);
    INFO(arguments << ": " << run.err);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.err, Catch::Matchers::StartsWith("copy-task: error: " + arguments.substr(0, arguments.find(' '))));
    CHECK_FALSE(std::filesystem::exists(folder / "none"));
  }
}
