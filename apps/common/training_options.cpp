#include "apps/common/training_options.h"

#include <utility>

#include "core/error.h"

namespace cairn {

std::unique_ptr<Schedule> TrainingOptions::make_schedule() const {
  if (schedule == TrainingOptions::Rate::constant) return std::make_unique<Constant>(learning_rate);
  return std::make_unique<DropOnPlateau>(learning_rate, plateau);
}

void TrainingOptions::fields(SettingFields& f) {
  f("iterations", iterations, {0, max_steps}, "maximum number of training steps", Keep::may_change);
  f("lr", learning_rate, {0, 1e6}, "learning rate of R-Adam");
  f("schedule", schedule, {{"constant", Rate::constant}, {"plateau", Rate::plateau}},
    "constant, or plateau: multiply the learning rate by --plateau-factor when more than --plateau-patience "
    "evaluations "
    "in a row have not improved the loss by 0.01%");
  f("plateau-factor", plateau.factor, {0, 1}, "with --schedule plateau: factor of the learning rate");
  f("plateau-patience", plateau.patience, {0, max_steps},
    "with --schedule plateau: evaluations to wait for an improvement");
  f("clip", clip, {0, 1e6}, "limit the norm of the gradient of all parameters to this; 0: no limit");
  f("weight-decay", weight_decay, {0, 1}, "each step first multiplies the weights by 1 - learning rate * this");
  f("evaluate-every", evaluate_every, {1, max_steps}, "steps between evaluations on fresh sequences");
  f("checkpoint-every", checkpoint_every, {0, max_steps}, "steps between checkpoints, with --out; 0: only at the end",
    Keep::may_change);
  f("average-every", average_every, {0, max_steps},
    "with several processes (mpirun): each trains alone on its part of every batch, and their weights are averaged "
    "every N steps; 0: gradients are summed in every step. --iterations, --evaluate-every and --checkpoint-every must "
    "be multiples of N");
  f("check-finite", check_finite,
    "check results and gradients of all operations; stop at the first NaN or infinity and name its operation; slow",
    Keep::may_change);
}

void TrainingOptions::validate() const {
  if (schedule == Rate::plateau) name_in_errors("--schedule plateau", [&] { make_schedule(); });
  if (average_every == 0) return;
  // Weights are evaluated and saved only when all processes have the same weights.
  for (const auto& [name, steps] :
       {std::pair("--iterations", iterations), std::pair("--evaluate-every", evaluate_every),
        std::pair("--checkpoint-every", checkpoint_every)})
    check<UsageError>(steps % average_every == 0, name, " ", steps, ": expected a multiple of --average-every ",
                      average_every);
}

}  // namespace cairn
