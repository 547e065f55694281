#include "apps/common/training_options.h"

#include <algorithm>
#include <utility>

#include "apps/common/format.h"
#include "core/error.h"
#include "core/storage.h"
#include "nn/optim/adam.h"

namespace cairn {

std::unique_ptr<Schedule> TrainingOptions::make_schedule() const {
  if (schedule == Rate::plateau) return std::make_unique<DropOnPlateau>(learning_rate, plateau);
  if (schedule == Rate::constant) return std::make_unique<WarmUp>(learning_rate, warm_up);
  return std::make_unique<LinearDecay>(learning_rate, std::max(iterations, warm_up + 1), warm_up);
}

std::unique_ptr<Optimizer> TrainingOptions::make_optimizer(std::vector<Variable> parameters) const {
  const AdamOptions options{.beta2 = beta2, .weight_decay = weight_decay};
  std::unique_ptr<Optimizer> made;
  if (optimizer == Algorithm::adam)
    made = std::make_unique<Adam>(std::move(parameters), learning_rate, options);
  else
    made = std::make_unique<RAdam>(std::move(parameters), learning_rate, options);
  made->set_max_gradient_norm(clip);
  return made;
}

void TrainingOptions::fields(SettingFields& f) {
  f("iterations", iterations, {0, max_steps}, "maximum number of training steps", Keep::may_change);
  f("lr", learning_rate, {0, 1e6}, "learning rate");
  f("optimizer", optimizer, {{"r-adam", Algorithm::r_adam}, {"adam", Algorithm::adam}},
    "r-adam or adam, both with decoupled weight decay");
  f("schedule", schedule, {{"constant", Rate::constant}, {"plateau", Rate::plateau}, {"linear", Rate::linear}},
    "constant; plateau: multiply the learning rate by --plateau-factor when more than --plateau-patience evaluations "
    "in a row have not improved the score by 0.01%; or linear: fall to 0 over --iterations");
  f("warm-up", warm_up, {0, max_steps}, "steps over which the learning rate first rises; not with --schedule plateau");
  f("plateau-factor", plateau.factor, {0, 1}, "with --schedule plateau: factor of the learning rate");
  f("plateau-patience", plateau.patience, {0, max_steps},
    "with --schedule plateau: evaluations to wait for an improvement");
  f("clip", clip, {0, 1e6}, "limit the norm of the gradient of all parameters to this; 0: no limit");
  f("weight-decay", weight_decay, {0, 1}, "each step first multiplies the weights by 1 - learning rate * this");
  f("evaluate-every", evaluate_every, {1, max_steps}, "steps between evaluations");
  f("patience", patience, {0, max_steps}, "stop after so many evaluations in a row without a better score; 0: never");
  f("checkpoint-every", checkpoint_every, {0, max_steps}, "steps between checkpoints, with --out; 0: only at the end",
    Keep::may_change);
  f("check-finite", check_finite,
    "check results and gradients of all operations; stop at the first NaN or infinity and name its operation; slow",
    Keep::may_change);
}

void TrainingOptions::validate(const TransformerOptions& model, Device device) const {
  const double bytes = training_bytes(model), available = double(available_memory(device));
  check<DeviceError>(bytes <= available, "out of memory on ", name(device), ": training this model needs ",
                     formatted("%.1f GB", bytes / 1e9), ", and there are ", formatted("%.1f GB", available / 1e9),
                     "; reduce --layers, --heads, --head-size or --feed-forward");
  if (schedule == Rate::plateau) name_in_errors("--schedule plateau", [&] { make_schedule(); });
  check<UsageError>(warm_up == 0 || schedule != Rate::plateau, "--warm-up ", warm_up,
                    ": expected 0 with --schedule plateau");
  if (average_every == 0) return;
  // Weights are evaluated and saved only when all processes have the same weights.
  for (const auto& [name, steps] :
       {std::pair("--iterations", iterations), std::pair("--evaluate-every", evaluate_every),
        std::pair("--checkpoint-every", checkpoint_every)})
    check<UsageError>(steps % average_every == 0, name, " ", steps, ": expected a multiple of --average-every ",
                      average_every);
}

void model_fields(SettingFields& f, TransformerOptions& model) {
  f("layers", model.layers, {1, 1024}, "encoder layers");
  f("heads", model.heads, {1, 1024}, "attention heads");
  f("head-size", model.head_size, {1, 4096}, "features per head");
  f("feed-forward", model.feed_forward, {1, 1 << 20}, "hidden features of the feed-forward block");
  f("dropout", model.dropout, {0, 1}, "dropout of block outputs and hidden features");
  f("attention-dropout", model.attention_dropout, {0, 1}, "dropout of attention weights");
  f("norm", model.norm, {{"post", Norm::post}, {"pre", Norm::pre}},
    "layer norm after each residual sum (post) or before each block (pre)");
  f("activation", model.activation, {{"gelu", Unary::gelu}, {"relu", Unary::relu}},
    "gelu or relu, in the feed-forward block");
}

}  // namespace cairn
