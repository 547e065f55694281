// speech evaluate: evaluates a run's weights, with any attention variants.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/program.h"
#include "apps/speech/train.h"

namespace cairn::speech {
namespace {

struct EvaluateCommand : Command {
  EvaluateCommand()
      : Command(
            "evaluate", "Evaluate a trained model, with its own attention or with other variants",
            "There are two control rows, if the model can take them: clustered-1 gives all queries the same\n"
            "attention, and none removes it. Where they are as good as full attention, the model does not use its\n"
            "attention, and the table says nothing about variants. --no-attention RUN takes the row none from a run\n"
            "that was trained with --attention none. That is fairer than to remove the attention afterwards.\n\n"
            "Example:\n  speech evaluate --run run --attention full,i-clustered-25,clustered-25") {}

  void fields(SettingFields& f) override {
    run_.fields(f);
    f("data", data, Text::file, "the prepared data (default: the run's)");
    f("part", part, {{"test", "test"}, {"dev", "dev"}, {"train", "train"}}, "train, dev or test: the part of the data");
    f("join", joined, {0, 100}, "sentences that are joined into one sequence; 0: as in the run");
    f("attention", attention, Text::variants, "attention variants, separated by commas (default: the run's)");
    f("no-attention", without, Text::folder, "the folder of a run that was trained with --attention none");
  }

  void run(Communicator&) override {
    run_.read();
    if (joined > 0) run_.settings.join = joined;
    SavedRun other;  // trained without attention
    if (!without.empty()) {
      other.folder = without;
      other.device = run_.device;
      other.read();
      other.settings.join = run_.settings.join;  // the same for all rows
      check<UsageError>(other.settings.model.attention == no_attention, "--no-attention ", without,
                        ": was trained with --attention ", other.settings.model.attention, ", expected none");
    }
    const std::vector<std::string> specs = all_specs();
    const Corpus corpus = read_corpus(TensorReader(data.empty() ? run_.settings.data : data));
    const auto sequences_of = [&](const SavedRun& run) {
      return join(sentences_of(corpus, part, run.front_end, run.settings), run.settings.join);
    };
    const std::vector<Sentence> own = sequences_of(run_), others = without.empty() ? own : sequences_of(other);
    catch_interrupts(quiet);
    Json rows = Json::array();
    std::string text;
    for (const std::string& spec : specs) {
      const bool is_other = spec == no_attention && !without.empty();
      const SavedRun& from = is_other ? other : run_;
      note("evaluating " + spec, quiet);
      from.model->encoder.swap_attention(spec);
      Json row = {{"attention", spec}};
      row.update(as_json(recognize(*from.model, is_other ? others : own, from.settings, true)));
      text += metrics_text(row);
      rows.push_back(row);
    }
    tell({{"run", run_.folder},
          {"step", run_.step},
          {"trained_with", run_.settings.model.attention},
          {"part", part},
          {"rows", rows}},
         text);
  }

 private:
  // Those that the user asks for, and the controls. Error (UsageError): the model cannot take one.
  std::vector<std::string> all_specs() {
    std::vector<std::string> specs = split_specs(attention);
    if (specs.empty()) specs = {run_.settings.model.attention};
    for (const std::string& spec : specs)
      name_in_errors("--attention " + spec, [&] { run_.model->encoder.swap_attention(spec); });
    for (const std::string control : {same_for_all, no_attention}) try {
        run_.model->encoder.swap_attention(control);
        if (std::find(specs.begin(), specs.end(), control) == specs.end()) specs.push_back(control);
      } catch (const UsageError&) {
        note(concat("no row ", control, ": a model with ", run_.settings.model.attention, " cannot take it"), quiet);
      }
    return specs;
  }

  SavedRun run_;
  std::string data, attention, without, part = "test";
  int64_t joined = 0;
};

}  // namespace

std::unique_ptr<Command> make_evaluate() { return std::make_unique<EvaluateCommand>(); }

}  // namespace cairn::speech
