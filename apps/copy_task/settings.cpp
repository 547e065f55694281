#include "apps/copy_task/settings.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace cairn::copy_task {

void Settings::define(Options& options) {
  TransformerOptions& model = train.model;
  options.text("attention", model.attention, "attention variant (listed below)");
  options.integer("length", train.length, 1, 1 << 20, "symbols in w; a sequence has 2 (length + 1)");
  options.integer("iterations", train.iterations, 0, most_steps, "training steps, at most", Belongs::free);
  options.integer("batch", train.batch, 1, 1 << 20, "sequences a step");
  options.integer("layers", model.layers, 1, 1024, "encoder layers");
  options.integer("heads", model.heads, 1, 1024, "attention heads");
  options.integer("head-size", model.head_size, 1, 4096, "features of a head");
  options.integer("feed-forward", model.feed_forward, 1, 1 << 20, "hidden features of the feed forward");
  options.real("lr", train.learning_rate, 0, 1e6, "learning rate of R-Adam");
  options.real("dropout", model.dropout, 0, 1, "dropout of block outputs and hidden features");
  options.real("attention-dropout", model.attention_dropout, 0, 1, "dropout of attention weights");
  options.choice("norm", norm, {"post", "pre"}, "layer norm behind each residual sum or before each block");
  options.choice("activation", activation, {"gelu", "relu"}, "of the feed forward");
  options.integer("evaluate-every", train.evaluate_every, 1, most_steps,
                  "steps between evaluations on 256 fresh sequences");
  options.real("stop-at", train.stop_at, 0, 1, "end when masked accuracy in such an evaluation reaches this; 0: never");
  options.integer("checkpoint-every", train.checkpoint_every, 0, most_steps,
                  "steps between checkpoints, with --out; 0: only at the end", Belongs::free);
  options.text("also-evaluate", also, "variants to evaluate the trained weights with, comma-separated");
  options.flag("quick", quick,
               "a small model that learns in about a minute: 2 layers, 4 heads, feed forward 512, lr 1e-3, topk=16, "
               "evaluated every 100 steps, at most 4000 steps, stop at 0.995");
  options.presets("quick", {{"layers", "2"},
                            {"heads", "4"},
                            {"feed-forward", "512"},
                            {"lr", "1e-3"},
                            {"iterations", "4000"},
                            {"evaluate-every", "100"},
                            {"stop-at", "0.995"}});
  common.define(options);
}

void Settings::finish() {
  train.seed = uint64_t(common.seed);
  train.model.norm = norm == "pre" ? Norm::pre : Norm::post;
  train.model.activation = activation == "relu" ? Activation::relu : Activation::gelu;
  train.also_evaluate = split_specs(also);
  if (quick) train.model.attention_defaults["topk"] = "16";
  make_attention(train.model.attention, train.model.attention_defaults);  // refuses early
}

std::vector<std::string> split_specs(const std::string& list) {
  std::vector<std::string> specs;
  std::istringstream in(list);
  in.exceptions(std::ios::badbit);  // lets std::bad_alloc through
  for (std::string item; std::getline(in, item, ',');) {
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    if (!specs.empty() && item.find('=') != std::string::npos && item.find(':') == std::string::npos)
      specs.back() += "," + item;
    else
      specs.push_back(item);
  }
  return specs;
}

void Trained::swap_attention(const std::string& spec) {
  model->encoder.swap_attention(spec, settings.train.model.attention_defaults);
}

std::unique_ptr<Trained> read_run(const std::filesystem::path& run, bool quiet, int64_t length) {
  auto trained = std::make_unique<Trained>();
  std::error_code ignored;
  check<DataError>(std::filesystem::is_directory(run, ignored), "--run ", run.string(), ": there is no such folder");
  auto found = find_checkpoint(run);
  check<DataError>(found.has_value(), "--run ", run.string(), ": the folder holds no checkpoint of a run");
  trained->checkpoint = std::move(*found);
  for (const std::string& damaged : trained->checkpoint.passed_over) note(damaged, quiet);
  const std::string where = trained->checkpoint.folder.string() + "/checkpoint.json";
  Settings& settings = trained->settings;
  trained->step = train_state(trained->checkpoint).step;
  try {
    Options options;
    settings.define(options);
    options.load(trained->checkpoint.about->at("configuration"), where);
    options.assign();
    settings.finish();
  } catch (const UsageError& error) {
    throw DataError(error.what());
  }
  Generator generator(settings.train.seed);
  trained->model = std::make_unique<Model>(settings.train.model,
                                           sequence_length(length ? length : settings.train.length), generator);
  restore(trained->checkpoint, *trained->model, nullptr);
  return trained;
}

}  // namespace cairn::copy_task
