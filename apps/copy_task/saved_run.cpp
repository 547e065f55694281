#include "apps/copy_task/saved_run.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/common/program.h"
#include "apps/copy_task/journal.h"
#include "apps/copy_task/result_format.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

Report::Pairs pairs(const Json& object) {
  Report::Pairs result;
  for (const auto& [key, value] : object.items())
    result.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return result;
}

// What metrics.jsonl has of the steps up to the checkpoint's. Errors (DataError): damage; not a copy-task's.
struct Records {
  std::vector<LossRecord> losses;
  std::vector<EvaluationRecord> evaluations;
};
Records records_of(const std::filesystem::path& run, const TrainState& state) {
  Records records;
  try {
    for (const Json& record : read_metrics(run, state.metrics_bytes)) {
      if (record.contains("result")) continue;
      if (const int64_t step = record.at("step"); step <= state.step) {
        records.losses.push_back({step, record.at("loss")});
        if (record.contains("evaluation"))
          records.evaluations.push_back({step, evaluation_from(record.at("evaluation"))});
      }
    }
  } catch (const Json::exception&) {
    throw DataError(concat(run / "metrics.jsonl", ": not the metrics of a copy-task run"));
  }
  return records;
}

// Where a run computes, as far as its bits depend on it.
std::string computed_on(const Json& provenance) {
  const std::string device = provenance.value("device", "");
  return device == "cpu" ? concat("the CPU with ", provenance.value("vectors", "unknown vectors")) : device;
}

}  // namespace

void Trained::swap_attention(const std::string& spec) {
  model->encoder.swap_attention(spec, settings.train.model.attention_defaults);
}

std::optional<FoundCheckpoint> find_checkpoint_of(const std::filesystem::path& run, bool to_train) {
  std::optional<FoundCheckpoint> found;
  try {
    found = find_checkpoint(run);
  } catch (const DataError& error) {
    throw DataError(concat(error.what(), "; put a copy of one back, or train again: --config ",
                           (run / "config.json").string(), " --out ANOTHER"));
  }
  if (!found || found->passed_over.empty()) return found;
  // Also with --quiet, for it changes the result.
  note(concat(joined(found->passed_over), "; the checkpoint of step ", train_state(*found).step, " in ", found->folder,
              " is used", to_train ? ", and the damaged one is moved to " + (run / "checkpoint.damaged").string() : ""),
       false);
  return found;
}

FoundCheckpoint checkpoint_of_run(const char* option, const std::filesystem::path& run) {
  std::error_code ignored;
  const auto status = std::filesystem::status(run, ignored);
  check<DataError>(!std::filesystem::exists(status) || std::filesystem::is_directory(status), option, " ", run,
                   ": is a file, expected the folder of a run");
  check<DataError>(std::filesystem::exists(status), option, " ", run, ": there is no such folder");
  auto found = find_checkpoint_of(run, false);
  check<DataError>(found.has_value(), option, " ", run, ": the folder holds no checkpoint of a run");
  return std::move(*found);
}

std::unique_ptr<Trained> read_run(const std::filesystem::path& run) {
  auto trained = std::make_unique<Trained>();
  trained->checkpoint = checkpoint_of_run("--run", run);
  const std::string where = (trained->checkpoint.folder / "checkpoint.json").string();
  Settings& settings = trained->settings;
  trained->step = train_state(trained->checkpoint).step;
  Options options;
  settings.define(options);
  of_a_run([&] {
    options.load(trained->checkpoint.about->at("configuration"), where);
    options.assign();
    about_option(where, [&] { settings.finish(); });
  });
  Generator generator(settings.train.seed);
  trained->model = std::make_unique<Model>(settings.train.model, sequence_length(settings.train.length), generator);
  restore(trained->checkpoint, *trained->model, nullptr);
  return trained;
}

void check_resumed(const std::filesystem::path& run, const FoundCheckpoint& found, const TrainOptions& train) {
  records_of(run, train_state(found));
  const Json& before = found.about->at("provenance");
  if (!before.contains("device") || !before.contains("vectors")) return;
  const std::string was = computed_on(before), is = computed_on(provenance(std::string(name(train.compute.device))));
  // Also with --quiet, for it changes the result.
  if (was != is)
    note(concat(run, ": was trained on ", was, " and goes on with ", is,
                ", which rounds differently: no longer bit for bit as if it had never stopped"),
         false);
}

TrainResult train_run(const Options& options, const TrainOptions& train, RunFolder* folder,
                      std::optional<FoundCheckpoint>& found, bool quiet, Communicator& ranks) {
  Progress progress(train.iterations, quiet);
  if (!folder) return copy_task::train(train, progress, nullptr, ranks);
  const Json about = {{"program", "copy-task"},
                      {"configuration", options.configuration()},
                      {"provenance", provenance(std::string(name(train.compute.device)))}};
  const RunFiles files{*folder, about, found ? &*found : nullptr};
  return copy_task::train(train, progress, &files, ranks);
}

std::optional<Json> finished_result(const std::filesystem::path& run, const FoundCheckpoint& found,
                                    int64_t iterations) {
  const TrainState state = train_state(found);
  if (!(state.stopped ? state.step <= iterations : state.step == iterations)) return {};
  const auto records = read_metrics(run, state.metrics_bytes);
  if (records.empty() || !records.back().contains("result")) return {};
  const Json& result = records.back().at("result");
  if (!is_result(result) || result.at("iterations") != state.step) return {};
  return std::make_optional(result);  // (JSON can be made of anything, an optional too)
}

void finish_run(RunFolder& folder, const Json& result) {
  folder.record({{"result", result}});
  folder.sync_metrics();
  write_report(folder, result);
}

void write_report(RunFolder& folder, const Json& result) {
  const std::unique_ptr<Trained> trained = read_run(folder.path());
  const TrainOptions& train = trained->settings.train;
  const Json& about = *trained->checkpoint.about;
  Records records = records_of(folder.path(), train_state(trained->checkpoint));
  folder.write("report.html",
               make_report({*trained->model, train.model, train.length, train.seed, train.model.attention,
                            std::move(records.losses), std::move(records.evaluations), evaluation_from(result),
                            pairs(about.at("configuration")), pairs(about.at("provenance")),
                            result.at("seconds").get<double>(), trained->step}));
}

}  // namespace cairn::copy_task
