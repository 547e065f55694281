#include "apps/copy_task/report_page.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/svg.h"
#include "apps/copy_task/train.h"

namespace cairn::copy_task {

using svg::number;

void CopyTask::write_report(Artifact& run, const TrainState& state, const nlohmann::ordered_json& result) {
  model_.place(Device::cpu, DType::float32);
  const auto seed = uint64_t(settings_.compute.seed);
  const int64_t n = sequence_length(settings_.length);
  const nlohmann::ordered_json& found = result.is_null() ? state.metrics : result;
  const auto metric = [&](const char* name) { return found.is_null() ? NAN : number_or_nan(found.at(name)); };
  const TransformerOptions& options = settings_.model;
  Report page(concat("Copy task with ", options.attention, " attention"),
              concat("A transformer with ", count(options.layers, "layer"), " of ", count(options.heads, "head"),
                     " was trained on sequences 0w0w, where w has ", count(settings_.length, "random symbol"),
                     ". Each copy has ", count(masked_per_half(settings_.length), "masked symbol"),
                     "; the other copy shows the symbol in the same place."));
  page.summary({{"Masked symbols right", number(metric("masked_accuracy"), true), "on fresh sequences"},
                {"All symbols right", number(metric("accuracy"), true), "visible symbols included"},
                {"Loss", number(metric("loss")), "nats per symbol"},
                {"Training", clock_time(state.seconds), count(state.step, "step")},
                {"Parameters", number(double(parameter_count(model_))), concat("seed ", seed)}});
  if (result.is_null())
    page.text(concat("The run was interrupted after ", count(state.step, "step"),
                     "; the figures above are those of its last evaluation."));
  const std::string note = full_attention_note(*model_.encoder.layers[0]->attention.attention, n, n);
  if (!note.empty()) page.text(note + ".");

  const svg::Series all = evaluation_curve(run, "accuracy", "all");
  const svg::Series masked = evaluation_curve(run, "masked_accuracy", "masked", 1);
  svg::Mark plateau{NAN, NAN, "plateau"};  // from its first to its last evaluation
  for (size_t i = 0; i < all.x.size(); ++i) {
    if (!is_plateau(all.y[i], masked.y[i])) continue;
    if (std::isnan(plateau.begin)) plateau.begin = all.x[i];
    plateau.end = all.x[i];
  }
  svg::LineChart accuracy;
  accuracy.title = "Accuracy on fresh sequences";
  accuracy.description =
      "Share of symbols answered right on fresh sequences, over all positions and over the masked ones alone. Copying "
      "the visible symbols already gives about 80% of all. On a plateau (shaded, if there is one) the model still "
      "guesses masked ones. To leave it, the attention has to find the other copy.";
  accuracy.y = {.label = "symbols answered right", .low = 0, .high = 1, .percent = true};
  accuracy.series = {all, masked, {"guessing", {0, double(state.step)}, {1.0 / symbols, 1.0 / symbols}, 7}};
  if (plateau.begin < plateau.end) accuracy.bands = {plateau};
  write_curves(page, run, state.step, "loss (nats per symbol)", accuracy);

  RandomStream random(seed, 0, Purpose::data, displayed_data);
  const Example example = run_example(model_, make_batch(1, settings_.length, random), seed);
  write_example(page, example);
  write_attention(page, options.attention, example);
  write_clusters(page, settings_, model_, example);
  write_origin(page, run);
  run.write("report.html", page.html());
}

}  // namespace cairn::copy_task
