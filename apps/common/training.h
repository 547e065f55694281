#pragma once
// The training loop of all programs. A program gives it a task: a model, its data, its loss and its evaluation.
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/common/artifact.h"
#include "apps/common/training_options.h"
#include "apps/common/training_state.h"
#include "autograd/variable.h"
#include "nn/module.h"
#include "nn/parallel/communicator.h"

namespace cairn {

struct Evaluation {
  nlohmann::ordered_json metrics;  // names and numbers, or null: for the display and metrics.jsonl
  double score = NAN;              // less is better: for a schedule on plateau, early stopping and the best model
  bool solved = false;             // training may end here
  std::string note;                // what a reader should know now
};

struct Task {
  virtual ~Task() = default;
  virtual Module& model() = 0;
  // Puts a step's examples where loss() reads them; how many there are. Depends on the step alone, or a resumed run has
  // other bits.
  virtual int64_t load(int64_t step) = 0;
  // The mean loss of examples [begin, end) of them.
  virtual Variable loss(int64_t begin, int64_t end) = 0;
  // After so many steps.
  virtual Evaluation evaluate(int64_t step) = 0;
};

// Trains from where the run stands until the iterations are done, the task is solved, or the user interrupts; then it
// is saved. Each step is a line of metrics.jsonl. Another call on the same device continues bit for bit, for any number
// of threads. With several processes all call it, each with its own task; only rank 0 has a folder, evaluates and is
// asked to stop. Errors: UsageError: the run has made more steps; DataError: its checkpoint is damaged or another
// model's; DivergedError: a loss, a weight or a moment is not finite, says what is saved.
TrainState train(Task& task, const TrainingOptions& options, Artifact& run, bool quiet, Communicator& ranks);

}  // namespace cairn
