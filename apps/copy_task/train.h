#pragma once
// Training on the masked copy task.
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/run_folder.h"
#include "apps/copy_task/model.h"
#include "nn/io/checkpoint.h"
#include "nn/optim/schedule.h"

namespace cairn::copy_task {

inline constexpr int64_t max_steps = std::numeric_limits<int32_t>::max();

struct TrainOptions {
  int64_t length = 31;
  int64_t iterations = 5000, batch = 32;
  double learning_rate = 2e-4;
  // "constant" or "plateau", which observes "loss" or "masked-accuracy" of the evaluations in training.
  std::string schedule = "constant", plateau_metric = "loss";
  PlateauOptions plateau;
  double clip = 0, weight_decay = 0;                 // the largest gradient norm (0: any); R-Adam's
  std::shared_ptr<const FoundCheckpoint> init_from;  // whose weights training starts from; null: random weights
  TransformerOptions model;
  uint64_t seed = 1;
  int64_t evaluate_every = 250;    // steps
  double stop_at = 0;              // end when masked accuracy meanwhile reaches this; 0: never
  int64_t checkpoint_every = 250;  // steps; 0: only at the end
  std::vector<std::string> also_evaluate;
  bool explain = true;  // the plateau, where it comes
  // Of an evaluation in training, and of the one after it.
  int64_t sequences_meanwhile = 256, sequences_after = final_sequences;
  Compute compute;
};

// Where a run is kept, and what it continues from.
struct Keep {
  RunFolder& folder;
  const nlohmann::ordered_json& about;  // goes into every checkpoint: configuration, provenance
  FoundCheckpoint* from = nullptr;      // null: starts afresh
};

// What one variant makes of the trained weights.
struct VariantResult {
  std::string attention;
  Evaluation evaluation;
};

struct TrainResult {
  Evaluation evaluation;  // of the trained model; interrupted before: the last one in training, if any
  int64_t sequences = 0;  // of that evaluation; 0: there was none
  std::vector<VariantResult> also;
  int64_t iterations = 0, parameters = 0, peak_bytes = 0;
  int64_t graph_replays = 0;             // steps of this session that were replayed as a CUDA graph
  double replayed_steps_per_second = 0;  // of these alone, from the second on; 0: there were none
  // Of all sessions of a run together: seconds with the evaluations after training, steps a second without them.
  double seconds = 0, steps_per_second = 0;
  bool interrupted = false;
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

// Refuses, before anything is written, what could not be trained or evaluated. Errors: UsageError for options that make
// no sense, DeviceError for a model that memory cannot hold, DataError for weights in `init_from` that do not fit it.
void check_options(const TrainOptions& options);

// Trains, and evaluates the trained model. With `keep`, every step is recorded in metrics.jsonl and checkpoints are
// saved, from which another call on the same device continues bit for bit. Errors: as check_options, before anything
// runs; DivergedError for a loss, a weight or a moment that is not finite, says what is saved; Error for a folder that
// cannot be written.
TrainResult train(const TrainOptions& options, Progress& progress, const Keep* keep = nullptr);

// A number for JSON, which has none for NaN: null.
nlohmann::ordered_json number(double value);
nlohmann::ordered_json as_json(const Evaluation& evaluation);
Evaluation evaluation_from(const nlohmann::ordered_json& json);

}  // namespace cairn::copy_task
