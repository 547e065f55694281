#include "apps/copy_task/journal.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/copy_task/result_format.h"
#include "core/trace.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

TrainState Journal::begin(int64_t iterations) {
  TrainState state;
  if (!files_) return state;
  if (files_->from) {
    state = train_state(*files_->from);
    check<UsageError>(state.step <= iterations, "--iterations ", iterations, ": the run has made ", state.step,
                      " steps already");
    try {
      schedule_.set_state(state.schedule);
    } catch (const DataError& error) {
      throw DataError(concat(files_->from->folder / "checkpoint.json", ": ", error.what()));
    }
    restore(*files_->from, model_, &optimizer_);
    adopt(*files_->from);
    saved_ = state.step;
  }
  files_->folder.remove("report.html");  // of a run that was shorter
  files_->folder.write("config.json", files_->about.at("configuration").dump(2) + "\n");
  if (!files_->folder.cut_metrics(state.metrics_bytes))
    // Also with --quiet, for it changes the report.
    note(concat(files_->folder.path() / "metrics.jsonl", ": some records of the first ", state.step,
                " steps are lost; the run goes on without them"),
         false);
  return state;
}

void Journal::record(const StepRecord& step) {
  if (!files_) return;
  Json line = {{"step", step.step}, {"loss", step.loss}, {"gradient_norm", finite_or_null(step.gradient_norm)}};
  if (step.evaluation) line["evaluation"] = as_json(*step.evaluation);
  if (step.learning_rate) line["learning_rate"] = *step.learning_rate;
  line["seconds"] = step.seconds;
  files_->folder.record(line);
}

void Journal::save(const TrainState& state) {
  if (!files_ || saved_ == state.step) return;
  const trace::Span span("checkpoint", "program");
  Json about = files_->about;
  about["progress"] = {{"step", state.step},
                       {"seconds", state.seconds},
                       {"latest", as_json(state.latest)},
                       {"stopped", state.stopped},
                       {"metrics_bytes", files_->folder.sync_metrics()}};
  for (const double value : schedule_.state()) about["progress"]["schedule"].push_back(finite_or_null(value));
  save_checkpoint(files_->folder.path(), model_, optimizer_, about);
  saved_ = state.step;
}

std::string Journal::saved() const {
  if (!files_) return "";
  if (saved_ < 0) return "; nothing was saved before";
  return concat("; the checkpoint of step ", saved_, " is in ", (files_->folder.path() / "checkpoint").string());
}

TrainState train_state(const FoundCheckpoint& checkpoint) {
  const std::string where = checkpoint.folder.string() + "/checkpoint.json";
  try {
    const Json &about = *checkpoint.about, &at = about.at("progress");
    check<DataError>(about.at("program") == "copy-task", where, ": the checkpoint of another program");
    check<DataError>(about.at("configuration").is_object() && about.at("provenance").is_object(), where,
                     ": expected the run's configuration and provenance as objects");
    check<DataError>(at.at("step").is_number_unsigned() && at.at("step").get<uint64_t>() <= max_steps &&
                         at.at("metrics_bytes").is_number_unsigned() &&
                         at.at("metrics_bytes").get<uint64_t>() <= uint64_t(1) << 60 && at.at("seconds").is_number() &&
                         at.at("seconds") >= 0,
                     where, ": impossible numbers in \"progress\"");
    TrainState state{at.at("step"),    at.at("seconds"),       evaluation_from(at.at("latest")),
                     at.at("stopped"), at.at("metrics_bytes"), {}};
    // Of a plateau before its first evaluation the best is infinite, which JSON cannot hold.
    for (const Json& value : at.value("schedule", Json::array()))
      state.schedule.push_back(value.is_null() ? INFINITY : value.get<double>());
    return state;
  } catch (const Json::exception&) {
    throw DataError(where + ": not that of a copy-task run");
  }
}

}  // namespace cairn::copy_task
