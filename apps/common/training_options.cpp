#include "apps/common/training_options.h"

#include <utility>

#include "core/error.h"

namespace cairn {

std::unique_ptr<Schedule> TrainingOptions::make_schedule() const {
  if (schedule == TrainingOptions::Rate::constant) return std::make_unique<Constant>(learning_rate);
  return std::make_unique<DropOnPlateau>(learning_rate, plateau);
}

void TrainingOptions::fields(SettingFields& f) {
  f("iterations", iterations, {0, max_steps}, "training steps, at most", Keep::may_change);
  f("lr", learning_rate, {0, 1e6}, "learning rate of R-Adam");
  f("schedule", schedule, {{"constant", Rate::constant}, {"plateau", Rate::plateau}},
    "learning rate: plateau multiplies it by --plateau-factor when the evaluations have not improved by 0.01% for more "
    "than --plateau-patience of them");
  f("plateau-factor", plateau.factor, {0, 1}, "what --schedule plateau multiplies the rate by");
  f("plateau-patience", plateau.patience, {0, max_steps},
    "evaluations without improvement that --schedule plateau waits");
  f("clip", clip, {0, 1e6}, "scale larger gradient norms, over all parameters, down to this; 0: never");
  f("weight-decay", weight_decay, {0, 1}, "each step first scales the weights by 1 - learning rate times this");
  f("evaluate-every", evaluate_every, {1, max_steps}, "steps between evaluations on fresh sequences");
  f("checkpoint-every", checkpoint_every, {0, max_steps}, "steps between checkpoints, with --out; 0: only at the end",
    Keep::may_change);
  f("average-every", average_every, {0, max_steps},
    "with several processes (mpirun): each trains by itself on its part of every batch, and every N steps their "
    "weights "
    "become their mean; 0: gradients are summed in every step. --iterations, --evaluate-every and --checkpoint-every "
    "must be multiples of N");
  f("check-finite", check_finite,
    "look at the result and the gradient of each operation, and end at the first NaN or infinity, naming it; slow",
    Keep::may_change);
}

void TrainingOptions::validate() const {
  if (schedule == Rate::plateau) name_in_errors("--schedule plateau", [&] { make_schedule(); });
  if (average_every == 0) return;
  // Weights are evaluated and saved where all processes have the same.
  for (const auto& [name, steps] :
       {std::pair("--iterations", iterations), std::pair("--evaluate-every", evaluate_every),
        std::pair("--checkpoint-every", checkpoint_every)})
    check<UsageError>(steps % average_every == 0, name, " ", steps, ": expected a multiple of --average-every ",
                      average_every);
}

}  // namespace cairn
