#pragma once
// Training on the masked copy task.
#include <cmath>
#include <string>
#include <vector>

#include "apps/common/progress.h"
#include "apps/copy_task/model.h"

namespace cairn::copy_task {

struct TrainOptions {
  int64_t length = 31;
  int64_t iterations = 5000, batch = 32;
  double learning_rate = 2e-4;
  TransformerOptions model;
  uint64_t seed = 1;
  int64_t evaluate_every = 250;  // steps
  double stop_at = 0;            // end when masked accuracy on 256 fresh sequences reaches this; 0: never
  std::vector<std::string> also_evaluate;
};

// What one variant makes of the trained weights.
struct VariantResult {
  std::string attention;
  Evaluation evaluation;
};

struct TrainResult {
  Evaluation evaluation;  // on 1024 fresh sequences; interrupted before: the last one made
  std::vector<VariantResult> also;
  int64_t iterations = 0, parameters = 0, peak_bytes = 0;
  double seconds = 0, steps_per_second = 0;
  bool interrupted = false;
};

// Errors: UsageError for options that make no sense, before anything runs; DivergedError for a loss that is not finite.
TrainResult train(const TrainOptions& options, Progress& progress);

}  // namespace cairn::copy_task
