// answers train
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/answers/model.h"
#include "apps/common/format.h"
#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "autograd/ops.h"
#include "core/trace.h"

namespace cairn::answers {
namespace {

using Json = nlohmann::ordered_json;

// The paper's figure 8: what a question's tokens attend to with full attention and others, in the head whose weights on
// the answer are largest with full attention.
void write_attention(Report& page, const Model& model, const Question& question) {
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

struct AnswerTask : RunTask {
  explicit AnswerTask(const Settings& of_run) : settings(of_run) {
    RandomStream random(uint64_t(settings.compute.seed), 0, Purpose::data);
    shuffle(train, random);
    settings.training.validate(trained.bert->options, compute.device);
    place(trained, compute);
  }

  Model& model() override { return trained; }
  const TrainingOptions& options() const override { return settings.training; }

  int64_t load(int64_t step) override {
    const trace::Span span("data", "program");
    std::vector<const Question*> chosen;
    for (int64_t i = 0; i < settings.batch; ++i)
      chosen.push_back(&train[size_t(step * settings.batch + i) % train.size()]);
    batch.emplace(chosen, compute.device);
    generator.set_step(uint64_t(step));
    return settings.batch;
  }

  // One process has the whole batch.
  Variable loss(int64_t, int64_t) override {
    const trace::Span span("forward", "program");
    return loss_of(trained(*batch, {.training = true, .generator = &generator}), *batch);
  }

  Evaluation evaluate(int64_t) override {
    const Json found = as_json(answer(trained, dev, settings.batch, settings.compute.seed, false));
    return {found, -found.at("exact_match").get<double>(), false, ""};
  }

  Json final_evaluation() override {
    Json result = {{"attention", settings.attention}, {"part", "dev"}, {"questions", dev.size()}};
    result.update(as_json(answer(trained, dev, settings.batch, settings.compute.seed, true)));
    return result;
  }

  std::string metrics_text(const Json& result) const override {
    return formatted("On dev, of %zu questions: exact match %.1f%%, F1 %.1f%%, right entry %.1f%%\n", dev.size(),
                     100 * result.at("exact_match").get<double>(), 100 * result.at("f1").get<double>(),
                     100 * result.at("right_entry").get<double>());
  }

  void write_report(RunFolder& run, const TrainState& state, const Json& result) override {
    place(trained, {Device::cpu, DType::float32});
    const Json& found = result.is_null() ? state.metrics : result;
    const auto metric = [&](const char* name) {
      return svg::number(found.is_null() ? NAN : number_or_nan(found.at(name)), true);
    };
    std::vector<double> chances;
    for (const Question& each : dev) chances.push_back(1 / double(each.entries.size() - 1));
    Report page(concat("Answers with ", settings.attention, " attention"),
                "A pretrained BERT learned to answer questions: which of the entries in a passage is asked for?");
    page.summary(
        {{"Exact match on dev", metric("exact_match"), count(int64_t(dev.size()), "question")},
         {"Right entry on dev", metric("right_entry"), concat("chance: ", svg::number(mean(chances), true))},
         {"Training", clock_time(state.seconds),
          concat(count(state.step, "step"), ", ", count(int64_t(train.size()), "question"))},
         {"Parameters", svg::number(double(parameter_count(trained))), concat("seed ", settings.compute.seed)}});
    if (result.is_null()) page.text(concat("The run was interrupted after ", count(state.step, "step"), "."));
    svg::LineChart shares;
    shares.title = shares.description = "Exact match and right entry on dev.";
    shares.y = {.label = "share of the questions", .low = 0, .high = 1, .percent = true};
    shares.series = {evaluation_curve(run, "exact_match", "exact match"),
                     evaluation_curve(run, "right_entry", "right entry", 1)};
    write_curves(page, run, state.step, "nats", shares);
    write_attention(page, trained, dev[size_t(settings.picture) % dev.size()]);
    write_origin(page, run);
    run.write("report.html", page.html());
  }

  const Settings& settings;
  const DeviceAndDType compute = settings.compute.apply();
  Model trained{settings, Generator(uint64_t(settings.compute.seed))};
  std::vector<Question> train = read_questions(settings.data, "train", trained.tokenizer, trained.max_tokens),
                        dev = read_questions(settings.data, "dev", trained.tokenizer, trained.max_tokens);
  std::optional<Batch> batch;
  Generator generator{uint64_t(settings.compute.seed)};
};

struct Train : TrainCommand {
  Train()
      : TrainCommand("Fine-tune a pretrained BERT on questions",
                     "  answers train --data questions.jsonl --model model --out run\n"
                     "  answers train --out run --resume") {}

  void fields(SettingFields& f) override {
    settings.fields(f);
    TrainCommand::fields(f);
  }

  std::unique_ptr<RunTask> make_task(bool, Communicator&) override {
    check<UsageError>(!settings.data.empty(), "expected --data with questions; debian_questions.py writes them");
    check<UsageError>(!settings.model.empty(), "expected --model with the folder of a BERT model");
    return std::make_unique<AnswerTask>(settings);
  }

  Settings settings;
};

}  // namespace

std::unique_ptr<Command> make_train() { return std::make_unique<Train>(); }

}  // namespace cairn::answers
