// A run that is stopped and resumed is the run that was never stopped, to the last bit.
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/copy_task/settings.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "tests/apps/process.h"
#include "tests/attention/spec_of.h"
#include "tests/io/io_test.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only
using Json = nlohmann::ordered_json;

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
  const Keep keep{folder, about, found ? &*found : nullptr};
  options.iterations = iterations;
  Progress progress(iterations, true);
  train(options, progress, &keep);
}

}  // namespace

TEST_CASE("training with every attention variant resumes bit for bit", "[copy-task]") {
  const int before = threads();
  for (const auto* variant : attention_variants()) {
    TrainOptions options;
    options.length = 9, options.batch = 3, options.evaluate_every = 4, options.checkpoint_every = 3;
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

// Sanitizers are slow, and ask nothing of more steps.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int training_steps = 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int training_steps = 20;
#else
constexpr int training_steps = 200;
#endif
#else
constexpr int training_steps = 200;
#endif

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
