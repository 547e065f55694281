#pragma once
// How far a training has come, and how that is kept in the run's folder: in the checkpoints.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "nn/io/checkpoint.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"

namespace cairn {

// How far training has come: all of it that is neither the weights' nor the optimizer's.
struct TrainState {
  int64_t step = 0;
  double seconds = 0;              // of training and evaluation so far
  nlohmann::ordered_json metrics;  // of the latest evaluation; null: none yet
  bool ended = false;              // by itself: solved, or nothing improved any more
  double best = INFINITY;          // the least score, and how many evaluations ago
  int64_t since_best = 0;
  std::vector<double> schedule;  // its state()
  int64_t saved = -1;            // the step of the newest checkpoint; -1: there is none
};

// All of it but `saved` as JSON, in which infinity is null, and read back. Error (Json::exception): it is not that.
nlohmann::ordered_json progress_of(const TrainState& state);
TrainState state_from(const nlohmann::ordered_json& progress);

// The newest good checkpoint of a run, if there is any. What is used in the place of a damaged one is said on standard
// error. Error (DataError): all are damaged.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& run);
// How far the run of a checkpoint had come. Error (DataError): it is not one of this program's.
TrainState state_of(const FoundCheckpoint& checkpoint);

// Continues from the newest checkpoint of a run, if there is one. Errors: UsageError: the run has made more steps than
// `iterations`; DataError: all checkpoints are damaged, or another model's.
TrainState begin_training(Artifact& run, Module& model, Optimizer& optimizer, Schedule& schedule, int64_t iterations);
// Saves where training stands, unless it just did.
void save_training(Artifact& run, Module& model, const Optimizer& optimizer, TrainState& state);
// Saves it to best/.
void save_best(Artifact& run, Module& model, const Optimizer& optimizer, const TrainState& state);
// For the end of a message: what there is to go back to.
std::string what_is_saved(const Artifact& run, const TrainState& state);

}  // namespace cairn
