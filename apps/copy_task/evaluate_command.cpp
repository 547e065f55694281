// copy-task evaluate: a run's weights on fresh sequences, also with other attention variants.
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/copy_task/commands.h"
#include "apps/copy_task/result_format.h"
#include "apps/copy_task/saved_run_command.h"

namespace cairn::copy_task {
namespace {

struct EvaluateCommand : SavedRunCommand {
  explicit EvaluateCommand(CLI::App& app)
      : SavedRunCommand(app, "evaluate",
                        "Evaluate a run's weights, also with other attention than they were trained with",
                        "Example:\n  copy-task evaluate --run run --attention i-clustered-15,full,clustered-15") {
    options.text("attention", attention, "variants, comma-separated; by default the run's own");
    options.integer("sequences", sequences, 1, 1 << 20, "how many fresh sequences");
    options.integer("seed", seed, 0, std::numeric_limits<int64_t>::max(),
                    "names the sequences; by default the run's, for those that training ends with");
    define_common();
  }

  void execute() override {
    const auto trained = read();
    const TrainOptions& train = trained->settings.train;
    std::vector<std::string> specs;
    about_option("--attention", [&] { specs = split_specs(attention); });
    if (specs.empty()) specs = {train.model.attention};
    for (const std::string& spec : specs) trained->swap_attention(spec);  // refuses all before it evaluates any
    catch_interrupts(output.quiet);
    std::vector<VariantResult> results;
    for (const std::string& spec : specs) {
      trained->swap_attention(spec);
      note("evaluating " + spec, output.quiet || specs.size() == 1);
      note_if_full(trained->attention(), trained->positions(), trained->positions(), output.quiet);
      const uint64_t names = seed >= 0 ? uint64_t(seed) : train.seed;
      const Evaluation evaluation = evaluate(*trained->model, train.length, sequences, names, unseen_step, true);
      if (interrupted()) {
        note("interrupted in the evaluation of " + spec + "; there is no result", output.quiet);
        throw Interrupted();
      }
      results.push_back({spec, evaluation});
    }
    nlohmann::ordered_json json = evaluations_json(results);
    if (!output.json) return print(evaluations_text(json));
    json.update({{"run", run}, {"iterations", trained->step}, {"sequences", sequences}});
    json["trained_with"] = train.model.attention;
    print(json.dump() + "\n");
  }

  std::string attention;
  int64_t sequences = final_sequences, seed = -1;
};

}  // namespace

void define_evaluate(CLI::App& app) { define_command<EvaluateCommand>(app); }

}  // namespace cairn::copy_task
