#include "apps/copy_task/settings.h"

#include <nlohmann/json.hpp>

namespace cairn::copy_task {

void Settings::define(Options& options) {
  options.text("attention", train.model.attention, "attention variant (listed below)");
  options.integer("length", train.length, 1, 1 << 20, "symbols in w; a sequence has 2 (length + 1)");
  define_training(options);
  options.text("init-from", init_from,
               "start from the weights of the run in this folder, of a model of the same sizes (fine-tuning)");
  options.presets("quick", quick_presets(4000));
}

void Settings::define_training(Options& options) {
  TransformerOptions& model = train.model;
  options.integer("topk", topk, 1, 1 << 20,
                  "top keys of a variant that says none; by default what the list below says");
  options.integer("iterations", train.iterations, 0, max_steps, "training steps, at most", Belongs::free);
  options.integer("batch", train.batch, 1, 1 << 20, "sequences a step");
  options.integer("layers", model.layers, 1, 1024, "encoder layers");
  options.integer("heads", model.heads, 1, 1024, "attention heads");
  options.integer("head-size", model.head_size, 1, 4096, "features of a head");
  options.integer("feed-forward", model.feed_forward, 1, 1 << 20, "hidden features of the feed forward");
  options.real("lr", train.learning_rate, 0, 1e6, "learning rate of R-Adam");
  options.choice("schedule", train.schedule, {"constant", "plateau"},
                 "learning rate: plateau multiplies it by --plateau-factor when the loss of the evaluations has not "
                 "improved by 0.01% for more than --plateau-patience of them");
  options.real("plateau-factor", train.plateau.factor, 0, 1, "what --schedule plateau multiplies the rate by");
  options.integer("plateau-patience", train.plateau.patience, 0, max_steps,
                  "evaluations without improvement that --schedule plateau waits");
  options.real("clip", train.clip, 0, 1e6, "scale larger gradient norms, over all parameters, down to this; 0: never");
  options.real("weight-decay", train.weight_decay, 0, 1,
               "each step first scales the weights by 1 - learning rate times this");
  options.real("dropout", model.dropout, 0, 1, "dropout of block outputs and hidden features");
  options.real("attention-dropout", model.attention_dropout, 0, 1, "dropout of attention weights");
  options.choice("norm", norm, {"post", "pre"}, "layer norm behind each residual sum or before each block");
  options.choice("activation", activation, {"gelu", "relu"}, "of the feed forward");
  options.integer("evaluate-every", train.evaluate_every, 1, max_steps,
                  "steps between evaluations on 256 fresh sequences");
  options.real("stop-at", train.stop_at, 0, 1, "end when masked accuracy in such an evaluation reaches this; 0: never");
  options.integer("checkpoint-every", train.checkpoint_every, 0, max_steps,
                  "steps between checkpoints, with --out; 0: only at the end", Belongs::free);
  options.integer(
      "average-every", train.average_every, 0, max_steps,
      "with several processes (mpirun): each trains by itself on its part of every batch, and every N steps "
      "their weights become their mean; 0: gradients are summed in every step. --iterations, "
      "--evaluate-every and --checkpoint-every must be multiples of N");
  options.flag("quick", quick, "a small model that learns in about a minute, where nothing else is asked for");
  common.define(options);
  options.withdrawn({{"also_evaluate", ""}, {"ordered", false}, {"plateau_metric", "loss"}});
}

std::vector<std::pair<std::string, std::string>> quick_presets(int64_t iterations) {
  return {{"topk", "16"},
          {"layers", "2"},
          {"heads", "4"},
          {"feed-forward", "512"},
          {"lr", "1e-3"},
          {"iterations", std::to_string(iterations)},
          {"evaluate-every", "100"},
          {"stop-at", "0.995"}};
}

void Settings::finish() {
  train.seed = uint64_t(common.seed);
  train.model.norm = norm == "pre" ? Norm::pre : Norm::post;
  train.model.activation = activation == "relu" ? Activation::relu : Activation::gelu;
  if (topk > 0) train.model.attention_defaults["topk"] = std::to_string(topk);
  about_option("--attention", [&] { make_attention(train.model.attention, train.model.attention_defaults); });
}

}  // namespace cairn::copy_task
