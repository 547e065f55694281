// The report of a training: its curves, and the paper's figure 8.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/answers/train.h"
#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "autograd/ops.h"
#include "nn/io/json.h"

namespace cairn::answers {

// The paper's figure 8: what a question's tokens attend to with full attention and others, in the head whose weights on
// the answer are largest with full attention.
static void write_attention(Report& page, const Model& model, const Question& question) {
  constexpr float threshold = 0.1F;
  constexpr int64_t row_height = 5;  // in cells
  const auto n = int64_t(question.tokens.size()), first = question.entries.front(), last = question.entries.back();
  const auto name_of = [&](int64_t i) { return model.tokenizer.token(question.tokens[size_t(i)]); };
  const Batch input({&question}, Device::cpu);
  size_t layer = 0;
  int64_t head = 0;
  std::vector<svg::Picture> pictures;
  std::vector<std::string> names{"token"};
  Report::Rows strong;  // the tokens above the threshold
  for (int64_t i = 1; i + 1 < first; ++i) strong.push_back({name_of(i)});
  for (const std::string spec : {"full", "i-clustered-25", "clustered-25"}) {
    model.bert->encoder.swap_attention(spec);
    const Generator generator(1);
    Variable logits;
    const auto layers =
        observe(model.bert->encoder.attentions(), [&] { logits = model(input, {.generator = &generator}); });
    const auto weights_of = [&](size_t l, int64_t h, int64_t i) {
      return layers[l].weights.data<float>() + (h * n + i) * n;
    };
    float most = 0;
    for (size_t l = 0; spec == "full" && l < layers.size(); ++l)
      for (int64_t h = 0; h < model.bert->options.heads; ++h) {
        float sum = 0;
        for (int64_t i = 1; i + 1 < first; ++i)
          for (int64_t j = question.begin; j < question.end; ++j) sum += weights_of(l, h, i)[j];
        if (sum > most) most = sum, layer = l, head = h;
      }
    names.push_back(spec);
    svg::Strip strip{svg::Heatmap(row_height * (first - 2), last - first, last)};
    strip.x = {.label = "token", .low = double(first), .high = double(last)};
    strip.map.edges = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8};
    strip.map.title = concat(spec, ", layer ", layer + 1, ", head ", head + 1);
    strip.map_label = "question";
    strip.lines_label = "answer";
    for (size_t i = 0; i + 1 < question.entries.size() && question.entries[i] < last; ++i) {
      std::string name;
      for (int64_t j = question.entries[i]; j < last && name.size() < 16 && name_of(j) != ":"; ++j)
        name += name_of(j).substr(name_of(j).starts_with("##") ? 2 : 0);
      strip.above.push_back({double(question.entries[i]), double(question.entries[i + 1]), name, i == question.right});
    }
    const Tensor probability = softmax(logits).value();
    svg::Series& line = strip.lines.emplace_back();
    for (int64_t j = first; j < last; ++j) {
      line.x.push_back(double(j) + 0.5);
      line.y.push_back(double(probability.data<float>()[j]));
    }
    for (int64_t i = 0; i + 2 < first; ++i) {
      const float* const weights = weights_of(layer, head, i + 1);
      for (int64_t row = 0; row < row_height; ++row) strip.map.add(row_height * i + row, weights + first, last - first);
      std::vector<std::pair<float, int64_t>> above;
      for (int64_t j = 0; j < n; ++j)
        if (weights[j] >= threshold) above.emplace_back(-weights[j], j);
      std::sort(above.begin(), above.end());
      std::string& text = strong[size_t(i)].emplace_back();
      for (const auto& [weight, j] : above) text += concat(name_of(j), formatted(" %.0f%% ", -100 * double(weight)));
    }
    pictures.push_back({svg::draw(strip), strip.map.title});
  }
  page.section("What a question's tokens attend to");
  page.text(
      "A row is a token of the question, in the order of the table below, and a column a token of the passage. The "
      "right entry is red. This head has the largest weights on the answer with full attention. Below each matrix: the "
      "probability that the answer begins at a token. In the table: the tokens with at least 10% of the weight.");
  page.figures(pictures, 1);
  page.table(names, strong);
}

void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  size_t train_questions, const std::vector<Question>& dev, Model& model) {
  const NoGrad no_grad;
  place(model, {Device::cpu, DType::float32});
  const Json& found = result.is_null() ? state.metrics : result;
  const auto metric = [&](const char* name) {
    return svg::number(found.is_null() ? NAN : number_or_nan(found.at(name)), true);
  };
  std::vector<double> chances;
  for (const Question& each : dev) chances.push_back(1 / double(each.entries.size() - 1));
  Report page(concat("Answers with ", settings.attention, " attention"),
              "A pretrained BERT learned to answer questions: which of the entries in a passage is asked for?");
  page.summary({{"Exact match on dev", metric("exact_match"), count(int64_t(dev.size()), "question")},
                {"Right entry on dev", metric("right_entry"), concat("chance: ", svg::number(mean(chances), true))},
                {"Training", clock_time(state.seconds),
                 concat(count(state.step, "step"), ", ", count(int64_t(train_questions), "question"))},
                {"Parameters", svg::number(double(parameter_count(model))), concat("seed ", settings.compute.seed)}});
  if (result.is_null()) page.text(concat("The run was interrupted after ", count(state.step, "step"), "."));
  svg::LineChart shares;
  shares.title = shares.description = "Exact match and right entry on dev.";
  shares.y = {.label = "share of the questions", .low = 0, .high = 1, .percent = true};
  shares.series = {evaluation_curve(run, "exact_match", "exact match"),
                   evaluation_curve(run, "right_entry", "right entry", 1)};
  write_curves(page, run, state.step, "nats", shares);
  write_attention(page, model, dev[size_t(settings.picture) % dev.size()]);
  write_page(page, run);
}

}  // namespace cairn::answers
