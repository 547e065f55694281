// The report of a training: its curve, what the model wrote on the way, and what its heads look at.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/language_model/model.h"
#include "nn/io/json.h"

namespace cairn::language_model {

// Bits that a byte of held_out costs a guesser who has counted how often it follows the `before` bytes (0 or 1) before
// it in train. Each count has one more than was seen.
static double counted_bits(const SplitText& text, size_t before) {
  std::vector<double> count(byte_values * byte_values, 1), all(byte_values, byte_values);
  const auto first = [&](const std::string& bytes, size_t i) { return before ? uint8_t(bytes[i - 1]) : uint8_t(0); };
  for (size_t i = 1; i < text.train.size(); ++i) {
    ++count[size_t(first(text.train, i) * byte_values + uint8_t(text.train[i]))];
    ++all[first(text.train, i)];
  }
  double bits = 0;
  for (size_t i = 1; i < text.held_out.size(); ++i) {
    const auto a = first(text.held_out, i);
    bits -= std::log2(count[size_t(a * byte_values + uint8_t(text.held_out[i]))] / all[a]);
  }
  return bits / double(text.held_out.size() - 1);
}

// What the heads attend to in the first bytes that were held out.
static void write_attention(Report& page, const Settings& settings, const SplitText& text, Model& model) {
  constexpr int64_t near = 8;
  const int64_t n = std::min<int64_t>(96, settings.context);
  const std::string sentence = as_utf8(text.held_out.substr(0, size_t(n)));
  const Generator generator(1);
  const Batch batch(text.held_out, {0}, n, Device::cpu);
  const auto layers =
      observe_sequence(model.encoder.attentions(), n, [&] { model(batch.input, {.generator = &generator}); });
  const auto far = weight_shares(layers, n, [](int64_t i, int64_t j) { return j < i - near; });
  page.section("What the heads look at");
  page.text(concat("The first ", n, " held-out bytes: ", '"', sentence, '"',
                   ". For each layer, the map shows the head "
                   "with the most weight on bytes more than ",
                   near, " back."));
  write_attention_maps(page, settings.model.attention, layers, far, "Weight on far bytes",
                       "How to read a map: each row is a byte that the model goes on from, each column a byte that it "
                       "sees; a row sums to 100%. Later bytes are hidden, so all above the diagonal is blank.");
}

void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const SplitText& text, Model& model) {
  const NoGrad no_grad;
  place(model, {Device::cpu, DType::float32});
  const Json& found = result.is_null() ? state.metrics : result;
  const double bits = found.is_null() ? NAN : number_or_nan(found.at("bits"));
  const double of_bytes = counted_bits(text, 0), of_pairs = counted_bits(text, 1);
  Report page(concat("Language model with ", settings.model.attention, " attention"),
              concat("A transformer learned to predict the next byte of a text of ",
                     svg::number(double(text.train.size() + text.held_out.size())),
                     " bytes. It never saw the last tenth, on which it is measured."));
  page.summary({{"Bits a byte", svg::number(bits), "held out"},
                {"Counted pairs", svg::number(of_pairs), "bits a byte"},
                {"Counted bytes", svg::number(of_bytes), "bits a byte"},
                {"Training", clock_time(state.seconds), count(state.step, "step")},
                {"Parameters", svg::number(double(parameter_count(model))), concat("seed ", settings.compute.seed)}});
  if (result.is_null()) page.text(concat("The run was interrupted after ", count(state.step, "step"), "."));

  const auto level = [&](const char* name, double value, int color) {
    return svg::Series{name, {0, double(state.step)}, {value, value}, color};
  };
  svg::LineChart curve;
  curve.title = "Bits a byte on held-out text";
  curve.description =
      "Bits that a held-out byte costs the model. The lines are for guessers who only count: how often each byte stood "
      "in the training text, and how often it stood behind the byte before.";
  curve.y = {.label = "bits a byte", .low = 0};
  curve.series = {evaluation_curve(run, "bits", "model"), level("counted pairs", of_pairs, 1),
                  level("counted bytes", of_bytes, 7)};
  write_curves(page, run, state.step, "loss (nats per byte)", curve);

  page.section("What it writes");
  const std::string prompt = text.held_out.substr(0, 20);
  page.text(concat("The model goes on from the first held-out bytes, ", in_quotes(as_utf8(prompt)),
                   ". Temperature 0.7: likelier bytes are drawn a little more often."));
  Report::Rows rows;
  for (const Json& line : run.lines())
    if (line.contains("evaluation") && line["evaluation"].contains("writes"))
      rows.push_back({count(line.at("step"), "step"), line["evaluation"]["writes"].get<std::string>()});
  const std::string now = written(model, prompt, 400);
  rows.push_back({concat("at the end, ", count(state.step, "step")), as_utf8(now)});
  page.table({"after", "text"}, rows);
  write_attention(page, settings, text, model);
  write_page(page, run);
}

}  // namespace cairn::language_model
