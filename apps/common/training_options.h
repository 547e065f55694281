#pragma once
// The settings of a training.
#include <cstdint>
#include <memory>

#include "apps/common/settings.h"
#include "nn/optim/schedule.h"

namespace cairn {

inline constexpr int64_t max_steps = INT32_MAX;

struct TrainingOptions {
  int64_t iterations = 5000;
  double learning_rate = 2e-4;
  enum class Rate { constant, plateau } schedule = Rate::constant;  // plateau: by the scores of the evaluations
  PlateauOptions plateau;
  double clip = 0, weight_decay = 0;  // the largest gradient norm (0: any); of R-Adam
  int64_t evaluate_every = 250;
  int64_t checkpoint_every = 250;  // 0: only at the end
  int64_t average_every = 0;       // steps between averages of the processes' weights; 0: gradients are summed
  bool check_finite = false;       // names the first operation that is not finite
  bool keep_best = false;          // saves the model with the best score in best/
  int64_t patience = 0;            // training ends after so many evaluations without a better score; 0: never

  // Declares all but keep_best and patience.
  void fields(SettingFields& f);
  // Error (UsageError): options contradict each other.
  void validate() const;
  std::unique_ptr<Schedule> make_schedule() const;
};

}  // namespace cairn
