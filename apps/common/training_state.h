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
};

// The newest good checkpoint of a run, if there is any. What is used in the place of a damaged one is said on standard
// error. Error (DataError): all are damaged.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& run);
// How far the run of a checkpoint had come. Error (DataError): it is not one of this program's.
TrainState state_of(const FoundCheckpoint& checkpoint);

// The checkpoints of one training.
class Keeper {
 public:
  Keeper(Artifact& run, Module& model, Optimizer& optimizer, Schedule& schedule)
      : run_(run), model_(model), optimizer_(optimizer), schedule_(schedule) {}

  // Continues from the newest checkpoint, if there is one. Errors: UsageError: the run has made more steps than
  // `iterations`; DataError: all checkpoints are damaged, or another model's.
  TrainState begin(int64_t iterations);
  // Saves where the training stands, unless it just did.
  void save(const TrainState& state);
  // Saves the model to best/.
  void save_best(const TrainState& state);
  // For the end of a message: what there is to go back to.
  std::string what_is_saved() const;

 private:
  void save_to(const std::filesystem::path& folder, const TrainState& state);

  Artifact& run_;
  Module& model_;
  Optimizer& optimizer_;
  Schedule& schedule_;
  int64_t saved_ = -1;  // the step of the newest checkpoint
};

}  // namespace cairn
