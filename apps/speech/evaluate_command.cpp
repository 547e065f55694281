// speech evaluate: evaluates a run's weights, with any attention variants.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/program.h"
#include "apps/common/variants.h"
#include "apps/speech/train.h"

namespace cairn::speech {

namespace {

// Those that the user asks for, and the controls. Error (UsageError): the model cannot take one.
std::vector<std::string> all_specs(const SavedRun& run, const std::string& attention, bool quiet) {
  std::vector<std::string> specs = split_specs(attention.empty() ? run.settings.model.attention : attention);
  for (const std::string& spec : specs)
    name_in_errors("--attention " + spec, [&] { run.model->encoder.swap_attention(spec); });
  for (const std::string control : {same_for_all, no_attention}) try {
      run.model->encoder.swap_attention(control);
      if (std::find(specs.begin(), specs.end(), control) == specs.end()) specs.push_back(control);
    } catch (const UsageError&) {
      note(concat("no row ", control, ": a model with ", run.settings.model.attention, " cannot take it"), quiet);
    }
  return specs;
}

}  // namespace

void evaluate_command(CommandLine& line) {
  std::string folder, data, attention, without, part = "test";
  std::optional<Device> device;
  int64_t joined = 0;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line.threads();
  device_field(line, device);
  line("data", data, Text::file, "the prepared data (default: the run's)");
  line("part", part, {{"test", "test"}, {"dev", "dev"}, {"train", "train"}},
       "train, dev or test: the part of the data");
  line("join", joined, {0, 100}, "sentences that are joined into one sequence; 0: as in the run");
  line("attention", attention, several_variants, "attention variants, separated by commas (default: the run's)");
  line("no-attention", without, Text::folder, "the folder of a run that was trained with --attention none");
  line.footer(
      "There are two control rows, if the model can take them: clustered-1 gives all queries the same\n"
      "attention, and none removes it. Where they are as good as full attention, the model does not use its\n"
      "attention, and the table says nothing about variants. --no-attention RUN takes the row none from a run\n"
      "that was trained with --attention none. That is fairer than to remove the attention afterwards.\n\n"
      "Example:\n  speech evaluate --run run --attention full,i-clustered-25,clustered-25");
  line.parse();
  SavedRun run("--run", folder, device);
  if (joined > 0) run.settings.join = joined;
  std::optional<SavedRun> other;  // trained without attention
  if (!without.empty()) {
    other.emplace("--no-attention", without, device);
    other->settings.join = run.settings.join;  // the same for all rows
    check<UsageError>(other->settings.model.attention == no_attention, "--no-attention ", without,
                      ": was trained with --attention ", other->settings.model.attention, ", expected none");
  }
  const std::vector<std::string> specs = all_specs(run, attention, line.quiet);
  const Corpus corpus = read_corpus(TensorReader(data.empty() ? run.settings.data : data));
  const auto sequences_of = [&](const SavedRun& of) {
    return join(sentences_of(corpus, part, of.front_end, of.settings), of.settings.join);
  };
  const std::vector<Sentence> own = sequences_of(run), others = other ? sequences_of(*other) : own;
  catch_interrupts(line.quiet);
  Json rows = Json::array();
  std::string text;
  for (const std::string& spec : specs) {
    const bool is_other = spec == no_attention && other;
    const SavedRun& from = is_other ? *other : run;
    note("evaluating " + spec, line.quiet);
    from.model->encoder.swap_attention(spec);
    Json row = {{"attention", spec}};
    row.update(as_json(recognize(*from.model, is_other ? others : own, from.settings, true)));
    text += metrics_text(row);
    rows.push_back(row);
  }
  line.tell({{"run", run.folder},
             {"step", run.step},
             {"trained_with", run.settings.model.attention},
             {"part", part},
             {"rows", rows}},
            text);
}

}  // namespace cairn::speech
