#include "apps/common/training_state.h"

#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "apps/common/program.h"
#include "core/trace.h"
#include "nn/io/json.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// The device, and on the CPU its vectors: what the bits of a run depend on.
std::string computed_on(const Json& provenance) {
  const std::string device = provenance.at("device");
  return device == "cpu" ? concat("the CPU with ", provenance.at("vectors").get<std::string>()) : device;
}

Json provenance_of(Module& model) { return provenance(parameters(model).front().value().device()); }

// Writes a checkpoint into the folder, which is the run's or lies in it.
void save_to(const fs::path& folder, RunFolder& run, Module& model, const Optimizer& optimizer,
             const TrainState& state) {
  const trace::Span span("checkpoint", "program");
  run.sync();
  save_checkpoint(folder, model, optimizer,
                  {{"program", program()}, {"provenance", provenance_of(model)}, {"progress", progress_of(state)}});
}

}  // namespace

Json progress_of(const TrainState& state) {
  return {{"step", state.step},        {"seconds", state.seconds},           {"latest", state.metrics},
          {"stopped", state.ended},    {"best", finite_or_null(state.best)}, {"since_best", state.since_best},
          {"schedule", state.schedule}};
}

TrainState state_from(const Json& progress) {
  const auto number = [](const Json& value) { return value.is_null() ? INFINITY : value.get<double>(); };
  TrainState state;
  state.step = progress.at("step");
  state.seconds = progress.at("seconds");
  state.metrics = progress.at("latest");
  state.ended = progress.at("stopped");
  state.best = number(progress.at("best"));
  state.since_best = progress.at("since_best");
  for (const Json& value : progress.at("schedule")) state.schedule.push_back(number(value));
  return state;
}

TrainState begin_training(RunFolder& run, Module& model, Optimizer& optimizer, int64_t iterations) try {
  TrainState state;
  if (!run.keeps()) return state;
  if (const auto found = newest_checkpoint(run.folder())) {
    state = state_of(*found);
    state.saved = state.step;
    check<UsageError>(state.step <= iterations, "--iterations ", iterations, ": the run has made ", state.step,
                      " steps already");
    run.lines();  // reports damage before training starts
    restore(*found, model, &optimizer);
    if (!found->damage.empty()) {  // otherwise the next save keeps the damaged one and drops this one
      std::error_code error;
      fs::remove_all(run / "checkpoint", error);
      check(!error, run / "checkpoint", ": is damaged, and cannot be removed: ", error);
    }
    const std::string was = computed_on(found->about->at("provenance")), is = computed_on(provenance_of(model));
    if (was != is)  // also with --quiet, for it changes the result
      note(concat(run.folder(), ": was trained on ", was, " and continues on ", is,
                  ", which rounds differently: the bits are not those of a run that never stopped"),
           false);
  }
  run.keep_lines(state.step);
  return state;
} catch (const Json::exception&) {
  throw DataError(concat(run.folder(), ": the provenance in its checkpoint is damaged"));
}

void save_training(RunFolder& run, Module& model, const Optimizer& optimizer, TrainState& state) {
  if (!run.keeps() || state.saved == state.step) return;
  save_to(run.folder(), run, model, optimizer, state);
  state.saved = state.step;
}

void save_best(RunFolder& run, Module& model, const Optimizer& optimizer, const TrainState& state) {
  if (run.keeps()) save_to(run / "best", run, model, optimizer, state);
}

std::optional<FoundCheckpoint> newest_checkpoint(const fs::path& run) try {
  std::optional<FoundCheckpoint> found = find_checkpoint(run);
  if (found && !found->damage.empty())  // also with --quiet, for it changes the result
    note(concat(found->damage, "; the checkpoint of step ", state_of(*found).step, " in ", found->folder, " is used"),
         false);
  return found;
} catch (const DataError& error) {
  throw DataError(concat(error.what(), "; restore a copy of it, or train again with --config ", run / "config.json",
                         " --out ANOTHER"));
}

FoundCheckpoint checkpoint_of(const char* option, const fs::path& run) {
  auto found = newest_checkpoint(has_checkpoint(run / "best") ? run / "best" : run);
  check<DataError>(found.has_value(), option, " ", run, ": the folder holds no checkpoint of a run");
  return std::move(*found);
}

void initialize(Module& model, const fs::path& run) {
  const FoundCheckpoint checkpoint = checkpoint_of("--init-from", run);
  try {
    restore(checkpoint, model, nullptr);
  } catch (const DataError& error) {
    throw DataError(concat("--init-from: ", error.what(), "; give the options of the run that made these weights"));
  }
}

TrainState state_of(const FoundCheckpoint& checkpoint) try {
  const Json& about = *checkpoint.about;
  check<DataError>(about.at("program") == program(), checkpoint.folder, ": the checkpoint of another program");
  return state_from(about.at("progress"));
} catch (const Json::exception&) {
  throw DataError(concat(checkpoint.folder, ": not the checkpoint of a run of ", program()));
}

}  // namespace cairn
