#include "apps/common/training_state.h"

#include <cmath>
#include <filesystem>
#include <system_error>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "core/trace.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

// Where a run computes, as far as its bits depend on it.
std::string computed_on(const Json& provenance) {
  const std::string device = provenance.value("device", "");
  return device == "cpu" ? concat("the CPU with ", provenance.value("vectors", "unknown vectors")) : device;
}

Json provenance_of(Module& model) { return provenance(std::string(name(parameters(model).front().value().device()))); }

}  // namespace

TrainState Keeper::begin(int64_t iterations) {
  TrainState state;
  if (!run_.keeps()) return state;
  if (auto found = newest_checkpoint(run_.folder())) {
    state = state_of(*found);
    check<UsageError>(state.step <= iterations, "--iterations ", iterations, ": the run has made ", state.step,
                      " steps already");
    schedule_.set_state(state.schedule);
    run_.lines();  // damage is told before anything is trained
    restore(*found, model_, &optimizer_);
    if (!found->damage.empty()) {  // or the next save would keep the damaged one, and drop this
      std::error_code error;
      std::filesystem::remove_all(run_ / "checkpoint", error);
      check(!error, run_ / "checkpoint", ": is damaged, and cannot be removed: ", error);
    }
    saved_ = state.step;
    const std::string was = computed_on(found->about->at("provenance")), is = computed_on(provenance_of(model_));
    if (was != is)  // also with --quiet, for it changes the result
      note(concat(run_.folder(), ": was trained on ", was, " and goes on with ", is,
                  ", which rounds differently: no longer bit for bit as if it had never stopped"),
           false);
  }
  run_.keep_lines(state.step);
  return state;
}

void Keeper::save(const TrainState& state) {
  if (run_.keeps() && saved_ != state.step) save_to(run_.folder(), state);
  saved_ = state.step;
}

void Keeper::save_best(const TrainState& state) {
  if (run_.keeps()) save_to(run_ / "best", state);
}

void Keeper::save_to(const std::filesystem::path& folder, const TrainState& state) {
  const trace::Span span("checkpoint", "program");
  run_.sync();
  Json progress = {{"step", state.step},     {"seconds", state.seconds},           {"latest", state.metrics},
                   {"stopped", state.ended}, {"best", finite_or_null(state.best)}, {"since_best", state.since_best}};
  for (const double value : schedule_.state()) progress["schedule"].push_back(finite_or_null(value));
  save_checkpoint(folder, model_, optimizer_,
                  {{"program", program()}, {"provenance", provenance_of(model_)}, {"progress", progress}});
}

std::string Keeper::what_is_saved() const {
  if (!run_.keeps()) return "";
  if (saved_ < 0) return "; nothing was saved before";
  return concat("; the checkpoint of step ", saved_, " is in ", run_ / "checkpoint");
}

std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& run) try {
  std::optional<FoundCheckpoint> found = find_checkpoint(run);
  if (found && !found->damage.empty())  // also with --quiet, for it changes the result
    note(concat(found->damage, "; the checkpoint of step ", state_of(*found).step, " in ", found->folder, " is used"),
         false);
  return found;
} catch (const DataError& error) {
  throw DataError(concat(error.what(), "; put a copy of one back, or train again: --config ", run / "config.json",
                         " --out ANOTHER"));
}

TrainState state_of(const FoundCheckpoint& checkpoint) try {
  const Json &about = *checkpoint.about, &at = about.at("progress");
  check<DataError>(about.at("program") == program(), checkpoint.folder, ": the checkpoint of another program");
  // Before the first evaluation the best is infinite, which JSON cannot hold.
  const auto number = [](const Json& value) { return value.is_null() ? INFINITY : value.get<double>(); };
  TrainState state{at.at("step"),
                   at.at("seconds"),
                   at.at("latest"),
                   at.at("stopped"),
                   number(at.value("best", Json())),
                   at.value("since_best", int64_t(0)),
                   {}};
  for (const Json& value : at.value("schedule", Json::array())) state.schedule.push_back(number(value));
  return state;
} catch (const Json::exception&) {
  throw DataError(concat(checkpoint.folder, ": not the checkpoint of a run of ", program()));
}

}  // namespace cairn
