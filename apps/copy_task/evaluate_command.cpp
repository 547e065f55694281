// copy-task evaluate: evaluates a run's weights on fresh sequences, with any attention variants.
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/common/program.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {
namespace {

struct EvaluateCommand : Command {
  EvaluateCommand()
      : Command("evaluate", "Evaluate a trained model, with its own attention or with other variants",
                "Example:\n  copy-task evaluate --run run --attention i-clustered-15,full,clustered-15") {}

  void fields(SettingFields& f) override {
    run_.fields(f, "the run's folder");
    f("attention", attention, Text::variants, "attention variants, separated by commas (default: the run's)");
    f("sequences", sequences, {1, 1 << 20}, "number of fresh sequences");
  }

  void run(Communicator&) override {
    run_.read();
    const Settings& settings = run_.settings;
    std::vector<std::string> specs = split_specs(attention);
    if (specs.empty()) specs = {settings.model.attention};
    const auto swap = [&](const std::string& spec) {
      run_.model->encoder.swap_attention(spec, settings.transformer().attention_defaults);
    };
    for (const std::string& spec : specs)  // checks all before it evaluates any
      name_in_errors("--attention " + spec, [&] { swap(spec); });
    catch_interrupts(quiet);
    Json result;
    std::string text;
    for (const std::string& spec : specs) {
      swap(spec);
      note("evaluating " + spec, quiet || specs.size() == 1);
      note(run_.model->full_note(), quiet);
      const auto seed = uint64_t(settings.compute.seed);  // the sequences that training ended with
      const Metrics found = evaluate(*run_.model, settings.length, sequences, seed, unseen_step, true);
      if (interrupted()) throw Interrupted();
      Json row = {{"attention", spec}};
      row.update(as_json(found));
      text += metrics_text(row);
      if (result.is_null())
        result = row;
      else
        result["also"].push_back(row);
    }
    result.update({{"run", run_.folder}, {"iterations", run_.step}, {"sequences", sequences}});
    result["trained_with"] = settings.model.attention;
    tell(result, text);
  }

  SavedRun run_;
  std::string attention;
  int64_t sequences = final_sequences;
};

}  // namespace

std::unique_ptr<Command> make_evaluate() { return std::make_unique<EvaluateCommand>(); }

}  // namespace cairn::copy_task
