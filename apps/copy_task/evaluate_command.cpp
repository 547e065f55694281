// copy-task evaluate: evaluates a run's weights on fresh sequences, with any attention variants.
#include <nlohmann/json.hpp>

#include "apps/common/program.h"
#include "apps/common/variants.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {

void evaluate_command(CommandLine& line) {
  std::string folder, attention;
  int64_t sequences = final_sequences;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line.threads();
  line("attention", attention, several_variants, "attention variants, separated by commas (default: the run's)");
  line("sequences", sequences, {1, 1 << 20}, "number of fresh sequences");
  line.footer("Example:\n  copy-task evaluate --run run --attention i-clustered-15,full,clustered-15");
  line.parse();
  const SavedRun run("--run", folder);
  const Settings& settings = run.settings;
  const std::vector<std::string> specs = split_specs(attention.empty() ? settings.model.attention : attention);
  const auto swap = [&](const std::string& spec) {
    if (run.model->causal) check_causal(spec);
    run.model->encoder.swap_attention(spec, settings.transformer().attention_defaults);
  };
  for (const std::string& spec : specs)  // checks all before it evaluates any
    name_in_errors("--attention " + spec, [&] { swap(spec); });
  catch_interrupts(line.quiet);
  Json result;
  std::string text;
  for (const std::string& spec : specs) {
    swap(spec);
    note("evaluating " + spec, line.quiet || specs.size() == 1);
    note(run.model->full_note(), line.quiet);
    const auto seed = uint64_t(settings.compute.seed);  // the sequences that training ended with
    const Metrics found = evaluate(*run.model, settings.length, sequences, seed, unseen_step, true);
    if (interrupted()) throw Interrupted();
    Json row = {{"attention", spec}};
    row.update(as_json(found));
    text += metrics_text(row);
    if (result.is_null())
      result = row;
    else
      result["also"].push_back(row);
  }
  result.update({{"run", folder}, {"iterations", run.step}, {"sequences", sequences}});
  result["trained_with"] = settings.model.attention;
  line.tell(result, text);
}

}  // namespace cairn::copy_task
