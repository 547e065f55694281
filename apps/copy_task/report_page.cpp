#include "apps/copy_task/report_page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/progress.h"
#include "apps/common/svg.h"
#include "apps/copy_task/run.h"

namespace cairn::copy_task {
namespace {

using svg::number;
using Json = nlohmann::ordered_json;

Report::Pairs pairs(const Json& object) {
  Report::Pairs result;
  for (const auto& [key, value] : object.items())
    result.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  return result;
}

std::string percent(double value) { return number(value, true); }
// "1 masked symbol", "2 masked symbols".
std::string count(int64_t n, const std::string& what) {
  return concat(number(double(n)), " ", what, n == 1 ? "" : "s");
}

// ---- curves

// At most about `points` points: of each bucket of records its least and its largest (raw), or the mean of a window
// around it (smooth).
void thin(const std::vector<LossRecord>& losses, size_t points, svg::Series& raw, svg::Series& smooth) {
  const size_t n = losses.size(), bucket = std::max<size_t>(1, n / points), window = std::max<size_t>(1, n / 50);
  for (size_t begin = 0; begin < n; begin += bucket) {
    const size_t end = std::min(n, begin + bucket);
    const auto [low, high] = std::minmax_element(losses.begin() + long(begin), losses.begin() + long(end),
                                                 [](const auto& a, const auto& b) { return a.loss < b.loss; });
    for (auto it : {std::min(low, high), std::max(low, high)}) {
      if (!raw.x.empty() && raw.x.back() == double(it->step)) continue;  // one record is both
      raw.x.push_back(double(it->step)), raw.y.push_back(it->loss);
    }
    const size_t middle = (begin + end - 1) / 2, from = middle - std::min(middle, window / 2),
                 to = std::min(n, middle + window / 2 + 1);
    double sum = 0;
    for (size_t i = from; i < to; ++i) sum += losses[i].loss;
    smooth.x.push_back(double(losses[middle].step)), smooth.y.push_back(sum / double(to - from));
  }
}

// Is the loss of a step drawn faint, under its mean?
bool is_long(const ReportInput& in) { return in.losses.size() >= 250; }

struct Curves {
  svg::LineChart loss, accuracy;
};

Curves draw_curves(const ReportInput& in) {
  const auto plateau = find_plateau(in.evaluations);
  svg::LineChart loss{"Training loss", "Cross entropy of each training batch over the training steps.", {}, {}, {}, {}};
  loss.x.label = "training step", loss.y.label = "loss, nats a symbol";
  svg::Series raw{"", {}, {}, 0, is_long(in), false}, smooth{"", {}, {}, 0, false, false};
  thin(in.losses, 300, raw, smooth);
  const auto [low, high] = std::minmax_element(raw.y.begin(), raw.y.end());
  loss.y.log = !raw.y.empty() && *low > 0 && *high > 20 * *low;
  if (!loss.y.log) loss.y.low = 0;
  loss.series.push_back(raw);
  if (is_long(in)) loss.series.push_back(smooth);

  svg::LineChart accuracy{
      "Accuracy on fresh sequences", "Share of symbols answered right, over the training steps.", {}, {}, {}, {}};
  accuracy.x.label = "training step", accuracy.y.label = "symbols answered right";
  accuracy.y.percent = true, accuracy.y.low = 0, accuracy.y.high = 1;
  svg::Series all{"all", {}, {}, 0, false, true}, hidden{"masked", {}, {}, 1, false, true};
  for (const EvaluationRecord& record : in.evaluations) {
    for (svg::Series* series : {&all, &hidden}) series->x.push_back(double(record.step));
    all.y.push_back(record.evaluation.accuracy), hidden.y.push_back(record.evaluation.masked_accuracy);
  }
  accuracy.series = {all};
  if (masked_per_half(in.length) > 0) {
    accuracy.series.push_back(hidden);
    accuracy.series.push_back({"guessing", {0, double(in.steps)}, {1.0 / symbols, 1.0 / symbols}, 7});
  }
  for (svg::LineChart* chart : {&loss, &accuracy}) {
    chart->x.low = 0;
    if (in.steps > 0) chart->x.high = double(in.steps);
    if (plateau) chart->bands.push_back({double(plateau->first), double(plateau->last), "plateau"});
  }
  return {loss, accuracy};
}

void write_curves(Report& page, const ReportInput& in) {
  page.section("Learning");
  if (int64_t(in.losses.size()) < in.steps)
    page.text(concat("Of ", count(in.steps, "step"), " metrics.jsonl has the records of ", in.losses.size(),
                     " alone; the curves show those."));
  const auto plateau = find_plateau(in.evaluations);
  const double n = double(sequence_length(in.length)), masked = 2 * double(masked_per_half(in.length));
  const Curves curves = draw_curves(in);

  if (plateau) {
    const int64_t one_in = std::llround(1 / std::max(plateau->masked_accuracy, 1e-3));
    page.text(concat("From step ", number(double(plateau->first)), " to step ", number(double(plateau->last)),
                     " training stood on a plateau (shaded). Unmasked symbols were copied, masked ones guessed: ",
                     percent(plateau->accuracy), " of all symbols were right, but only ",
                     percent(plateau->masked_accuracy), " of the masked ones, about 1 in ", one_in,
                     ". To do better, the attention has to find the other copy. ",
                     plateau->over ? concat("By step ", number(double(*plateau->over)), " it had begun to.")
                                   : std::string("In this run it had not done so by the last evaluation.")));
  }
  std::string loss_text =
      curves.loss.y.log ? "Loss of each training batch, on a log scale" : "Loss of each training batch";
  if (is_long(in))
    loss_text += concat("; the strong line is its mean over ", std::max<size_t>(1, in.losses.size() / 50), " steps");
  std::string accuracy_text = "Share of symbols answered right on fresh sequences";
  if (masked > 0)
    accuracy_text +=
        concat(", over all positions and over the masked ones alone. Guessing one of the ", symbols,
               " symbols is right ", percent(1.0 / symbols), " of the time; whoever copies what is visible and ",
               "guesses the rest gets ", percent(1 - masked / n * (1 - 1.0 / symbols)), " of all symbols");
  std::vector<Report::Picture> pictures{{svg::draw(curves.loss), loss_text + "."}};
  if (!in.evaluations.empty()) pictures.push_back({svg::draw(curves.accuracy), accuracy_text + "."});
  page.figures(pictures, 2);
}

// ---- one example

void write_example(Report& page, const Example& example) {
  page.section("One example");
  constexpr int64_t row = 32;
  const int64_t n = example.size(), half = n / 2, shown = std::min(half, 2 * row);
  svg::Cells cells{"One sequence: input, target and answer", "Both copies, aligned.", {}};
  for (int64_t begin = 0; begin < shown; begin += row)
    for (int64_t copy = 0; copy < 2; ++copy) {
      svg::CellRow input{concat("copy ", copy + 1, ": input"), {}, begin + copy > 0}, target{"target", {}},
          answer{"answer", {}};
      for (int64_t i = copy * half + begin; i < copy * half + std::min(shown, begin + row); ++i) {
        const bool masked = example.is_masked(i);
        input.cells.push_back({token_text(example.input[size_t(i)]), masked ? "hidden" : "cell"});
        target.cells.push_back({token_text(example.target[size_t(i)]), "cell"});
        answer.cells.push_back({token_text(example.answer[size_t(i)]), !example.is_right(i) ? "wrong"
                                                                       : masked             ? "found"
                                                                                            : "cell"});
      }
      for (auto* each : {&input, &target, &answer}) cells.rows.push_back(*each);
    }
  int64_t masked = 0, found = 0, wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    masked += example.is_masked(i), found += example.is_masked(i) && example.is_right(i);
    wrong += !example.is_right(i);
  }
  std::string caption =
      concat("A fresh sequence. M is masked; the same place of the other copy has the symbol. The model answered ",
             found, " of ", count(masked, "masked symbol"), " right (outlined) and was wrong on ", wrong, " of ", n,
             " positions (filled).");
  if (shown < half) caption += concat(" Shown: the first ", shown, " of ", half, " places of each copy.");
  page.figure({svg::draw(cells), caption});
}

}  // namespace

std::string make_report(const ReportInput& in) {
  const NoGrad no_grad;
  const Metrics result = in.result                ? *in.result
                         : in.evaluations.empty() ? Metrics{NAN, NAN, NAN}
                                                  : in.evaluations.back().evaluation;
  const int64_t masked = masked_per_half(in.length);
  Report page(concat("Copy task with ", in.attention, " attention"),
              concat("A transformer of ", count(in.options.layers, "layer"), " with ", count(in.options.heads, "head"),
                     " was trained on sequences 0w0w with ", count(in.length, "symbol"), " in w, of which ", masked,
                     " in each copy are masked. What is masked in one copy stands in the other."));
  page.summary({{"Masked symbols right", percent(result.masked_accuracy), "on fresh sequences"},
                {"All symbols right", percent(result.accuracy), "copying what is visible included"},
                {"Loss", number(result.loss), "nats a symbol"},
                {"Training", clock_time(in.seconds), count(in.steps, "step")},
                {"Parameters", number(double(parameter_count(in.model))), concat("seed ", in.seed)}});
  if (!in.result)
    page.text(concat("The run was interrupted after ", count(in.steps, "step"),
                     "; the figures above are those of its last evaluation."));
  const int64_t n = sequence_length(in.length);
  const std::string note = full_attention_note(*in.model.encoder.layers[0]->attention.attention, n, n);
  if (!note.empty()) page.text(note + ".");
  write_curves(page, in);
  RandomStream random(in.seed, 0, Purpose::data, 2);  // sequences that neither training nor evaluation has seen
  const Example example = run_example(in.model, make_batch(1, in.length, random), in.seed);
  write_example(page, example);
  write_attention(page, in, example);
  write_clusters(page, in, example);
  page.section("How this run was made");
  page.table("Configuration", in.configuration);
  page.table("Provenance", in.provenance);
  return page.html();
}

void write_report(Artifact& run, const Settings& settings, Model& model, const TrainState& state, const Json& result) {
  if (!run.keeps()) return;
  model.place(Device::cpu, DType::float32);
  ReportInput in{model,
                 settings.transformer(),
                 settings.length,
                 uint64_t(settings.compute.seed),
                 settings.model.attention,
                 {},
                 {},
                 {},
                 pairs(Artifact::config("--out", run.folder())),
                 pairs(provenance(std::string(name(Device::cpu)))),
                 state.seconds,
                 state.step};
  try {
    for (const Json& record : run.lines()) {
      const int64_t step = record.at("step");
      in.losses.push_back({step, record.at("loss")});
      if (record.contains("evaluation")) in.evaluations.push_back({step, metrics_from(record.at("evaluation"))});
    }
  } catch (const Json::exception&) {
    throw DataError(concat(run / "metrics.jsonl", ": not the metrics of a copy-task run"));
  }
  if (!result.is_null()) {
    in.result = metrics_from(result);
    if (in.evaluations.empty() || in.evaluations.back().step < state.step)
      in.evaluations.push_back({state.step, *in.result});
  }
  run.write("report.html", make_report(in));
}

}  // namespace cairn::copy_task
