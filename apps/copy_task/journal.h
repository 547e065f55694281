#pragma once
// A run in its folder: what a training records there, saves there and continues from.
#include <cmath>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/run_folder.h"
#include "apps/copy_task/model.h"
#include "nn/io/checkpoint.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"

namespace cairn::copy_task {

// Where a run is kept, and what it continues from.
struct RunFiles {
  RunFolder& folder;
  const nlohmann::ordered_json& about;  // goes into every checkpoint: configuration, provenance
  FoundCheckpoint* from = nullptr;      // null: starts afresh
};

// How far training has come: all of it that is neither the weights' nor the optimizer's.
struct TrainState {
  int64_t step = 0;
  double seconds = 0;  // of training and evaluation so far
  Evaluation latest{NAN, NAN, NAN};
  bool stopped = false;  // reached stop_at
  uint64_t metrics_bytes = 0;
  std::vector<double> schedule;  // its state()
};
// Of a checkpoint. Error (DataError): it is not one of this program's.
TrainState train_state(const FoundCheckpoint& checkpoint);

// A line of metrics.jsonl.
struct StepRecord {
  int64_t step;
  double loss, gradient_norm = NAN;
  std::optional<Evaluation> evaluation{};  // where the step ended with one
  std::optional<double> learning_rate{};   // of the steps after it, where a schedule changes it
  double seconds = 0;                      // of the run until then
};

// Keeps a run in its folder; without one, it does nothing.
class Journal {
 public:
  Journal(const RunFiles* files, Model& model, Optimizer& optimizer, Schedule& schedule)
      : files_(files), model_(model), optimizer_(optimizer), schedule_(schedule) {}

  // Begins the run in its folder, or continues it where its checkpoint was saved. Nothing is changed before all of the
  // checkpoint is known to fit. Errors: UsageError: the run has made more steps than `iterations`; as restore().
  TrainState begin(int64_t iterations);
  void record(const StepRecord& step);
  // Saves a checkpoint, unless that of this step is there.
  void save(const TrainState& state);
  // For the end of a message: what there is to go back to.
  std::string saved() const;

 private:
  const RunFiles* files_;
  Model& model_;
  Optimizer& optimizer_;
  Schedule& schedule_;
  int64_t saved_ = -1;  // the step of the newest checkpoint
};

}  // namespace cairn::copy_task
