#include "apps/copy_task/report_page.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/progress.h"
#include "apps/common/svg.h"
#include "apps/copy_task/run.h"

namespace cairn::copy_task {
namespace {

using svg::number;
using Json = nlohmann::ordered_json;

std::string percent(double value) { return number(value, true); }

// The curves in metrics.jsonl.
struct Records {
  svg::Series loss;  // of the training batches
  svg::Series all{"all", {}, {}, 0, true}, masked{"masked", {}, {}, 1, true};
  Metrics latest{NAN, NAN, NAN};
  // The steps of the first and the last evaluation on the plateau.
  double plateau_begin = NAN, plateau_end = NAN;

  void add(double step, const Metrics& found) {
    all.x.push_back(step);
    all.y.push_back(found.accuracy);
    masked.x.push_back(step);
    masked.y.push_back(found.masked_accuracy);
    latest = found;
    if (!found.on_plateau()) return;
    if (std::isnan(plateau_begin)) plateau_begin = step;
    plateau_end = step;
  }
};

Records records_of(const Artifact& run) try {
  Records records;
  for (const Json& line : run.lines()) {
    const double step = line.at("step"), loss = line.at("loss");
    records.loss.x.push_back(step);
    records.loss.y.push_back(loss);
    if (line.contains("evaluation")) records.add(step, metrics_from(line.at("evaluation")));
  }
  return records;
} catch (const Json::exception&) {
  throw DataError(concat(run / "metrics.jsonl", ": not the metrics of a copy-task run"));
}

void write_curves(Report& page, const Records& records, int64_t steps) {
  page.section("Learning");
  const auto batches = (int64_t(records.loss.x.size()) + 299) / 300;
  std::vector<svg::Mark> plateau;
  if (records.plateau_begin < records.plateau_end) {
    plateau.push_back({records.plateau_begin, records.plateau_end, "plateau"});
    page.text(concat("Steps ", number(records.plateau_begin), " to ", number(records.plateau_end),
                     " were a plateau (shaded): the model copied unmasked symbols and still guessed masked ones. "
                     "To leave it, the attention has to find the other copy."));
  }
  const auto curves = [&](const char* title, const svg::Axis& y, const std::vector<svg::Series>& series,
                          const std::string& caption) {
    return training_curve({title, caption, {}, y, series, plateau}, steps);
  };
  std::vector<Report::Picture> pictures;
  svg::Axis loss, accuracy;
  loss.label = "loss (nats per symbol)";
  loss.log = true;
  pictures.push_back(curves("Training loss", loss, {means(records.loss, size_t(batches))},
                            batches > 1 ? concat("Mean loss of every ", batches, " training batches, on a log scale.")
                                        : std::string("Loss of each training batch, on a log scale.")));
  accuracy.label = "symbols answered right";
  accuracy.percent = true;
  accuracy.low = 0;
  accuracy.high = 1;
  const svg::Series guessing{"guessing", {0, double(steps)}, {1.0 / symbols, 1.0 / symbols}, 7};
  if (!records.all.x.empty())
    pictures.push_back(curves("Accuracy on fresh sequences", accuracy, {records.all, records.masked, guessing},
                              "Share of symbols answered right on fresh sequences, over all positions and over the "
                              "masked ones alone. Copying the visible symbols already gives about 80% of all."));
  page.figures(pictures, 2);
}

}  // namespace

void write_report(Artifact& run, const Settings& settings, Model& model, const TrainState& state, const Json& result) {
  if (!run.keeps()) return;
  const NoGrad no_grad;
  model.place(Device::cpu, DType::float32);
  const auto seed = uint64_t(settings.compute.seed);
  const int64_t n = sequence_length(settings.length);
  Records records = records_of(run);
  if (!result.is_null() && (records.all.x.empty() || records.all.x.back() < double(state.step)))
    records.add(double(state.step), metrics_from(result));
  const Metrics found = result.is_null() ? records.latest : metrics_from(result);
  const TransformerOptions& options = settings.model;
  Report page(concat("Copy task with ", options.attention, " attention"),
              concat("A transformer with ", count(options.layers, "layer"), " of ", count(options.heads, "head"),
                     " was trained on sequences 0w0w, where w has ", count(settings.length, "random symbol"),
                     ". Each copy has ", count(masked_per_half(settings.length), "masked symbol"),
                     "; the other copy shows the symbol in the same place."));
  page.summary({{"Masked symbols right", percent(found.masked_accuracy), "on fresh sequences"},
                {"All symbols right", percent(found.accuracy), "visible symbols included"},
                {"Loss", number(found.loss), "nats per symbol"},
                {"Training", clock_time(state.seconds), count(state.step, "step")},
                {"Parameters", number(double(parameter_count(model))), concat("seed ", seed)}});
  if (result.is_null())
    page.text(concat("The run was interrupted after ", count(state.step, "step"),
                     "; the figures above are those of its last evaluation."));
  const std::string note = full_attention_note(*model.encoder.layers[0]->attention.attention, n, n);
  if (!note.empty()) page.text(note + ".");
  write_curves(page, records, state.step);

  RandomStream random(seed, 0, Purpose::data, displayed_data);
  const Example example = run_example(model, make_batch(1, settings.length, random), seed);
  write_example(page, example);
  write_attention(page, options.attention, example);
  write_clusters(page, settings, model, example);
  write_origin(page, run);
  run.write("report.html", page.html());
}

}  // namespace cairn::copy_task
