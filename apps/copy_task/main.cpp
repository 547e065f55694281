// copy-task: a transformer learns to copy masked symbols (the paper's appendix C.2).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/common/program.h"
#include "apps/copy_task/train.h"

using namespace cairn;
using namespace cairn::copy_task;

namespace {

struct TrainCommand {
  CommonOptions common;
  TrainOptions options;
  bool quick = false;
  std::string norm = "post", activation = "gelu", also;
  CLI::App* command = nullptr;

  void define(CLI::App& app) {
    command = app.add_subcommand("train", "Train on fresh sequences, then evaluate");
    command->footer(
        "Examples:\n"
        "  copy-task train --quick\n"
        "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
        "  copy-task train --quick --also-evaluate full,clustered-15,i-clustered-15\n\n"
        "Attention variants:\n" +
        describe_attention_variants());
    TransformerOptions& model = options.model;
    constexpr int64_t many = std::numeric_limits<int32_t>::max();
    command->add_option("--attention", model.attention, "attention variant (listed below)")->capture_default_str();
    add_integer(*command, "--length", options.length, 1, 1 << 20, "symbols in w; a sequence has 2 (length + 1)");
    add_integer(*command, "--iterations", options.iterations, 0, many, "training steps, at most");
    add_integer(*command, "--batch", options.batch, 1, 1 << 20, "sequences a step");
    add_integer(*command, "--layers", model.layers, 1, 1024, "encoder layers");
    add_integer(*command, "--heads", model.heads, 1, 1024, "attention heads");
    add_integer(*command, "--head-size", model.head_size, 1, 4096, "features of a head");
    add_integer(*command, "--feed-forward", model.feed_forward, 1, 1 << 20, "hidden features of the feed forward");
    add_real(*command, "--lr", options.learning_rate, 0, 1e6, "learning rate of R-Adam");
    add_real(*command, "--dropout", model.dropout, 0, 1, "dropout of block outputs and hidden features");
    add_real(*command, "--attention-dropout", model.attention_dropout, 0, 1, "dropout of attention weights");
    add_choice(*command, "--norm", norm, {"post", "pre"}, "layer norm behind each residual sum or before each block");
    add_choice(*command, "--activation", activation, {"gelu", "relu"}, "of the feed forward");
    add_integer(*command, "--evaluate-every", options.evaluate_every, 1, many,
                "steps between evaluations on 256 fresh sequences");
    add_real(*command, "--stop-at", options.stop_at, 0, 1,
             "end when masked accuracy in such an evaluation reaches this; 0: never");
    command->add_option("--also-evaluate", also, "variants to evaluate the trained weights with, comma-separated");
    command->add_flag("--quick", quick,
                      "a small model that learns in about a minute: 2 layers, 4 heads, feed forward 512, lr 1e-3, "
                      "topk=16, evaluated every 100 steps, at most 4000 steps, stop at 0.995");
    add_common_options(*command, common);
    command->callback([this] { run(); });
  }

  // Presets of --quick, for what was not given.
  void apply_quick() {
    const auto preset = [this](const char* option, auto& value, auto quick_value) {
      if (command->get_option(option)->count() == 0) value = quick_value;
    };
    preset("--layers", options.model.layers, 2);
    preset("--heads", options.model.heads, 4);
    preset("--feed-forward", options.model.feed_forward, 512);
    preset("--lr", options.learning_rate, 1e-3);
    preset("--iterations", options.iterations, 4000);
    preset("--evaluate-every", options.evaluate_every, 100);
    preset("--stop-at", options.stop_at, 0.995);
    options.model.attention_defaults["topk"] = "16";
  }

  void run() {
    if (quick) apply_quick();
    options.seed = uint64_t(common.seed);
    options.model.norm = norm == "pre" ? Norm::pre : Norm::post;
    options.model.activation = activation == "relu" ? Activation::relu : Activation::gelu;
    options.also_evaluate = split_specs(also);
    const Device device = apply(common);
    check<DeviceError>(device == Device::cpu, "--device cuda: training on CUDA is not built yet; use --device cpu");
    make_attention(options.model.attention, options.model.attention_defaults);  // refuses early

    catch_interrupts();
    Progress progress(options.iterations, common.quiet);
    const TrainResult result = train(options, progress);
    print(common.json ? as_json(result) : as_text(result));
    if (result.interrupted) throw CLI::RuntimeError(exit_interrupted);
  }

  // "full,i-clustered-15:topk=16,bits=32": a comma before option=value belongs to the specification before it.
  static std::vector<std::string> split_specs(const std::string& list) {
    std::vector<std::string> specs;
    std::istringstream in(list);
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

  // NaN has no number in JSON: null.
  static nlohmann::ordered_json number(double value) {
    return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  }

  static nlohmann::ordered_json evaluation_json(const std::string& attention, const Evaluation& e) {
    return {{"attention", attention},
            {"loss", number(e.loss)},
            {"accuracy", number(e.accuracy)},
            {"masked_accuracy", number(e.masked_accuracy)}};
  }

  std::string as_json(const TrainResult& result) const {
    nlohmann::ordered_json json = evaluation_json(options.model.attention, result.evaluation);
    json["length"] = options.length;
    json["seed"] = options.seed;
    json["iterations"] = result.iterations;
    json["seconds"] = result.seconds;
    json["steps_per_second"] = result.steps_per_second;
    json["peak_bytes"] = result.peak_bytes;
    json["parameters"] = result.parameters;
    if (result.interrupted) json["interrupted"] = true;
    for (const VariantResult& other : result.also)
      json["also"].push_back(evaluation_json(other.attention, other.evaluation));
    return json.dump() + "\n";
  }

  std::string as_text(const TrainResult& result) const {
    std::string text;
    char line[192];
    const auto row = [&](const std::string& attention, const Evaluation& e) {
      std::snprintf(line, sizeof line, "%-32s  loss %.4f  accuracy %.4f  masked accuracy %.4f\n", attention.c_str(),
                    e.loss, e.accuracy, e.masked_accuracy);
      text += line;
    };
    std::snprintf(line, sizeof line, "%lld steps in %s (%.1f steps/s), %lld parameters, %.0f MB at most\n",
                  (long long)result.iterations, clock_time(result.seconds).c_str(), result.steps_per_second,
                  (long long)result.parameters, double(result.peak_bytes) / 1e6);
    text += line;
    text += result.interrupted ? "Interrupted; the last evaluation:\n" : "On 1024 fresh sequences:\n";
    row(options.model.attention, result.evaluation);
    if (!result.also.empty()) text += "The same weights with other attention:\n";
    for (const VariantResult& other : result.also) row(other.attention, other.evaluation);
    return text;
  }
};

}  // namespace

int main(int argc, char** argv) {
  TrainCommand train;
  return run_program("copy-task",
                     "The masked copy task: a transformer learns to read masked symbols in the other copy.",
                     "Example:\n  copy-task train --quick", argc, argv, [&](CLI::App& app) { train.define(app); });
}
