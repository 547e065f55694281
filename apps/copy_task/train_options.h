#pragma once
// What a training is to do.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "apps/common/program.h"
#include "apps/copy_task/model.h"
#include "nn/io/checkpoint.h"
#include "nn/optim/schedule.h"

namespace cairn::copy_task {

inline constexpr int64_t max_steps = std::numeric_limits<int32_t>::max();

struct TrainOptions {
  int64_t length = 31;
  int64_t iterations = 5000, batch = 32;
  double learning_rate = 2e-4;
  std::string schedule = "constant";  // or "plateau", which observes the loss of the evaluations in training
  PlateauOptions plateau;
  double clip = 0, weight_decay = 0;                 // the largest gradient norm (0: any); R-Adam's
  std::shared_ptr<const FoundCheckpoint> init_from;  // whose weights training starts from; null: random weights
  TransformerOptions model;
  uint64_t seed = 1;
  int64_t evaluate_every = 250;    // steps
  double stop_at = 0;              // end when masked accuracy meanwhile reaches this; 0: never
  int64_t checkpoint_every = 250;  // steps; 0: only at the end
  int64_t average_every = 0;  // steps that processes train by themselves before their weights become their mean; 0: no
  bool explain = true;        // the plateau, where it comes
  // Of an evaluation in training, and of the one after it.
  int64_t sequences_meanwhile = 256, sequences_after = final_sequences;
  Compute compute;
};

// Refuses, before anything is written, what could not be trained or evaluated. Errors: UsageError for options that make
// no sense, DeviceError for a model that memory cannot hold, DataError for weights in `init_from` that do not fit it.
void check_options(const TrainOptions& options);

// The schedule of `schedule` and `plateau`. Error (UsageError): options that make no sense.
std::unique_ptr<Schedule> make_schedule(const TrainOptions& options);
// Gives the model the weights of a checkpoint. Error (DataError): weights of another model.
void initialize(Model& model, const FoundCheckpoint& from);

}  // namespace cairn::copy_task
