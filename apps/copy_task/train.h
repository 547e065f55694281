#pragma once
// Training on the masked copy task.
#include "apps/common/progress.h"
#include "apps/copy_task/journal.h"
#include "apps/copy_task/train_options.h"
#include "nn/parallel/communicator.h"

namespace cairn::copy_task {

struct TrainResult {
  Evaluation evaluation;  // of the trained model
  int64_t sequences = 0;  // of that evaluation
  int64_t iterations = 0, parameters = 0, peak_bytes = 0;
  // Of all sessions of a run together: seconds with the evaluation after training, steps a second without it.
  double seconds = 0, steps_per_second = 0;
};

// Trains, and evaluates the trained model. With `files`, every step is recorded in metrics.jsonl and checkpoints are
// saved, from which another call on the same device continues bit for bit. Where the user interrupts, it saves and
// throws Interrupted: there is no result. Errors: as check_options, before anything runs; DivergedError for a loss, a
// weight or a moment that is not finite, says what is saved; Error for a folder that cannot be written.
//
// With several ranks, all call it, and all return the result; each computes its part of every batch. Only rank 0 has
// files, evaluates and is asked to stop: the others begin with what it has, and stop at the same step.
TrainResult train(const TrainOptions& options, Progress& progress, const RunFiles* files, Communicator& ranks);

}  // namespace cairn::copy_task
