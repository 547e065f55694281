#pragma once
// The progress of a training, and its checkpoints in the run's folder.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "apps/common/run_folder.h"
#include "nn/io/checkpoint.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace cairn {

// The state of a training, without the weights and the optimizer.
struct TrainState {
  int64_t step = 0;
  double seconds = 0;      // of training and evaluation so far
  Json metrics;            // of the latest evaluation; null: none yet
  bool ended = false;      // solved, or out of patience (TrainingOptions)
  double best = INFINITY;  // the best score, and the evaluations since then
  int64_t since_best = 0;
  std::vector<double> schedule;  // its state()
  int64_t saved = -1;            // the step of the newest checkpoint; -1: there is none
};

// All but `saved` to JSON, in which infinity is null, and back. Error (Json::exception): the JSON has another form.
Json progress_of(const TrainState& state);
TrainState state_from(const Json& progress);

// The newest good checkpoint of a run, if there is any. A line on standard error says if a newer one is damaged. Error
// (DataError): all are damaged.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& run);
// The best model of a run, or else the newest; `option` names the run. Error (DataError): there is none; or as above.
FoundCheckpoint checkpoint_of(const char* option, const std::filesystem::path& run);
// Gives the model the weights of checkpoint_of(), of the run that --init-from names. Errors (DataError): there is no
// checkpoint; all are damaged; the weights are another model's.
void initialize(Module& model, const std::filesystem::path& run);
// The training state in a checkpoint. Error (DataError): another program wrote it.
TrainState state_of(const FoundCheckpoint& checkpoint);

// Continues from the newest checkpoint of a run, if there is one. Errors: UsageError: the run has made more steps than
// `iterations`; DataError: all checkpoints are damaged, or another model's.
TrainState begin_training(RunFolder& run, Module& model, Optimizer& optimizer, int64_t iterations);
// Saves a checkpoint, unless there is one of this step.
void save_training(RunFolder& run, Module& model, const Optimizer& optimizer, TrainState& state);
// Saves a checkpoint to best/.
void save_best(RunFolder& run, Module& model, const Optimizer& optimizer, const TrainState& state);

}  // namespace cairn
