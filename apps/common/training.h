#pragma once
// The training loop of all programs. A program gives it a task: a model, its data, its loss and its evaluation.
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/run_folder.h"
#include "apps/common/training_options.h"
#include "apps/common/training_state.h"
#include "autograd/variable.h"
#include "core/random.h"
#include "nn/module.h"
#include "nn/parallel/communicator.h"

namespace cairn {

struct Evaluation {
  nlohmann::ordered_json metrics;  // names and numbers, or null; shown, and written to metrics.jsonl
  double score = NAN;              // less is better; for the plateau schedule, early stopping and the best model
  bool solved = false;             // training may end here
  std::string note;                // a line to show; empty: none
};

struct Task {
  virtual ~Task() = default;
  virtual Module& model() = 0;
  // Loads the examples of a step for loss(), and returns their number. They depend on the step alone; otherwise a
  // resumed run has other bits.
  virtual int64_t load(int64_t step) = 0;
  // The mean loss of the examples [begin, end).
  virtual Variable loss(int64_t begin, int64_t end) = 0;
  // Evaluates the model after this many steps.
  virtual Evaluation evaluate(int64_t step) = 0;
};

// Trains from the newest checkpoint until the iterations are done, the task is solved, or the user interrupts. Then it
// saves. Each step is a line of metrics.jsonl. Another call on the same device continues with the same bits, for any
// number of threads. With several processes, all call it, each with its own task; only rank 0 has a folder, evaluates,
// and can be interrupted. Errors: UsageError: the run has made more steps; DataError: its checkpoint is damaged or
// another model's; DivergedError: a loss, a weight or a moment is not finite; the message says what is saved.
TrainState train(Task& task, const TrainingOptions& options, RunFolder& run, bool quiet, Communicator& ranks);

}  // namespace cairn
