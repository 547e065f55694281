#include "apps/copy_task/run_report.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "apps/copy_task/results.h"
#include "nn/io/file.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

Report::Pairs pairs(const Json& object) {
  Report::Pairs result;
  for (const auto& [key, value] : object.items())
    result.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return result;
}

}  // namespace

Json about_run(const Options& options, const TrainOptions& train) {
  return {{"program", "copy-task"},
          {"configuration", options.configuration()},
          {"provenance", provenance(std::string(name(train.compute.device)))}};
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
  write_report(*read_run(folder.path()), folder.path(), folder.path() / "report.html");
}

ReportInput report_input(const Trained& trained, const std::filesystem::path& run) {
  const TrainOptions& train = trained.settings.train;
  const Json& about = *trained.checkpoint.about;
  const TrainState state = train_state(trained.checkpoint);
  // The latest evaluation stands in until there is a result.
  ReportInput input{*trained.model,
                    train.model,
                    train.length,
                    train.seed,
                    train.model.attention,
                    {},
                    {},
                    state.latest,
                    pairs(about.at("configuration")),
                    pairs(about.at("provenance")),
                    state.seconds,
                    state.step};
  try {
    for (const Json& record : read_metrics(run, state.metrics_bytes)) {
      if (record.contains("result")) {
        if (record.at("result").at("iterations") != state.step) continue;  // of weights that are lost
        input.final_evaluation = evaluation_from(record.at("result"));
        input.seconds = record.at("result").at("seconds");
      } else if (const int64_t step = record.at("step"); step <= state.step) {
        input.losses.push_back({step, record.at("loss")});
        if (record.contains("evaluation"))
          input.evaluations.push_back({step, evaluation_from(record.at("evaluation"))});
      }
    }
  } catch (const Json::exception&) {
    throw DataError(concat((run / "metrics.jsonl").string(), ": not the metrics of a copy-task run"));
  }
  return input;
}

void write_report(const Trained& trained, const std::filesystem::path& run, const std::filesystem::path& file) {
  write_file(file, {make_report(report_input(trained, run))});
}

}  // namespace cairn::copy_task
