#pragma once
// The settings of a training.
#include <cstdint>
#include <memory>
#include <vector>

#include "apps/common/settings.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"

namespace cairn {

inline constexpr int64_t max_steps = INT32_MAX;

struct TrainingOptions {
  int64_t iterations = 5000;
  double learning_rate = 2e-4;
  enum class Algorithm { r_adam, adam } optimizer = Algorithm::r_adam;
  // plateau: by the scores of the evaluations; linear: falls to 0 over the iterations
  enum class Rate { constant, plateau, linear } schedule = Rate::constant;
  int64_t warm_up = 0;  // steps over which the rate first rises
  PlateauOptions plateau;
  double clip = 0, weight_decay = 0;  // the largest gradient norm (0: any); of the optimizer
  int64_t evaluate_every = 250;
  int64_t checkpoint_every = 250;  // 0: only at the end
  int64_t average_every = 0;       // steps between averages of the processes' weights; 0: gradients are summed
  bool check_finite = false;       // names the first operation that is not finite
  bool keep_best = false;          // saves the model with the best score in best/
  int64_t patience = 0;            // training ends after so many evaluations without a better score; 0: never

  // Declares all but keep_best, patience and average_every.
  void fields(SettingFields& f);
  // Declares average_every, for a program that several processes may run.
  void fields_of_processes(SettingFields& f);
  // Error (UsageError): options contradict each other.
  void validate() const;
  std::unique_ptr<Schedule> make_schedule() const;
  std::unique_ptr<Optimizer> make_optimizer(std::vector<Variable> parameters) const;
};

}  // namespace cairn
