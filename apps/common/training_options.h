#pragma once
// The settings of a training, and of the encoder that it trains.
#include <cstdint>
#include <memory>
#include <vector>

#include "apps/common/settings.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"
#include "nn/transformer.h"

namespace cairn {

inline constexpr int64_t max_steps = INT32_MAX;

struct TrainingOptions {
  int64_t iterations = 5000;
  double learning_rate = 2e-4;
  enum class Algorithm { r_adam, adam } optimizer = Algorithm::r_adam;
  // plateau: by the scores of the evaluations; linear: falls to 0 over the iterations
  enum class Rate { constant, plateau, linear } schedule = Rate::constant;
  int64_t warm_up = 0;  // steps over which the rate first rises
  PlateauOptions plateau{};
  double clip = 0, weight_decay = 0;  // the largest gradient norm (0: any); of the optimizer
  double beta2 = 0.999;               // of the optimizer
  int64_t evaluate_every = 250;
  int64_t checkpoint_every = 250;  // 0: only at the end
  int64_t average_every = 0;       // steps between averages of the processes' weights; 0: gradients are summed
  bool check_finite = false;       // names the first operation that is not finite
  bool keep_best = false;          // saves the model with the best score in best/
  int64_t patience = 0;            // training ends after so many evaluations without a better score; 0: never

  // Declares all but beta2, keep_best and average_every.
  void fields(SettingFields& f);
  // Call it before the model is made. Errors: UsageError: options contradict each other; DeviceError: the model does
  // not fit in memory.
  void validate(const TransformerOptions& model, Device device) const;
  std::unique_ptr<Schedule> make_schedule() const;
  std::unique_ptr<Optimizer> make_optimizer(std::vector<Variable> parameters) const;
};

// Declares the encoder's sizes, dropout, norm and activation; a program declares --attention itself.
void model_fields(SettingFields& f, TransformerOptions& model);

}  // namespace cairn
