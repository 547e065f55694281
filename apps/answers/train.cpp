#include "apps/answers/train.h"

#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "nn/io/hash.h"

namespace cairn::answers {

// A hash of the questions' tokens, entries and answers, in order.
static std::string hash_of(const std::vector<Question>& questions) {
  Xxh128 hash;
  for (const Question& q : questions) hash.add(Json{q.tokens, q.entries, q.right, q.begin, q.end}.dump());
  return hash.text();
}

// Trains the run, or goes on with it, and returns its result. Errors: as Model(), read_questions() for the parts train
// and dev, and Training.
static Json train(const Run& run, const Settings& settings) {
  const DeviceAndDType compute = settings.compute.apply();
  const auto seed = uint64_t(settings.compute.seed);
  Generator generator(seed);
  Model model(settings, generator);
  const auto read = [&](const char* part) {
    return read_questions(settings.data, part, model.tokenizer, model.max_tokens, settings.answer_tokens);
  };
  std::vector<Question> questions = read("train");
  const std::vector<Question> dev = read("dev");
  RandomStream random(seed, 0, Purpose::data);
  shuffle(questions, random);
  settings.training.validate(model.bert->options, compute.device);
  place(model, compute);

  const auto answers = [&](bool may_stop) {
    return as_json(answer(model, dev, settings.answer_tokens, settings.batch, settings.compute.seed, may_stop));
  };

  const BertOptions& bert = model.bert->options;
  const Json computed = {
      {"model", {bert.heads, bert.epsilon, bert.activation == Unary::relu}},  // weights do not show it
      {"train", hash_of(questions)},
      {"dev", hash_of(dev)}};
  const std::string source =
      concat("--data ", settings.data, ", read with vocab.txt and config.json of --model ", settings.model);
  Training training(run, settings.training, model, {"data.json", source, computed});
  while (training.next()) {
    const auto first = size_t(training.step() * settings.batch);
    std::vector<const Question*> chosen;
    for (size_t i = 0; i < size_t(settings.batch); ++i) chosen.push_back(&questions[(first + i) % questions.size()]);
    const Batch batch(chosen, compute.device);
    generator.set_step(uint64_t(training.step()));
    training.learn(loss_of(model(batch, {.training = true, .generator = &generator}), batch));
    training.evaluate([&]() -> Evaluation {
      const Json found = answers(false);
      return {found, -found.at("exact_match").get<double>()};
    });
  }
  const Json result = training.result([&] {
    Json metrics = {{"attention", settings.attention}, {"part", "dev"}, {"questions", dev.size()}};
    metrics.update(answers(true));
    return metrics;
  });
  if (training.keeps())
    write_report(training.folder(), training.state(), result, settings, questions.size(), dev, model);
  return training.finish(result);
}

void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  run_training(
      line,
      "  answers train --data questions.jsonl --model model --out run\n"
      "  answers train --out run --resume",
      [&](const Run& run) {
        check<UsageError>(!settings.data.empty(), "expected --data with questions; debian_questions.py writes them");
        check<UsageError>(!settings.model.empty(), "expected --model with the folder of a BERT model");
        return train(run, settings);
      },
      [](const Json& result) {
        return formatted("On dev, of %zu questions: exact match %.1f%%, F1 %.1f%%, right entry %.1f%%\n",
                         result.at("questions").get<size_t>(), 100 * result.at("exact_match").get<double>(),
                         100 * result.at("f1").get<double>(), 100 * result.at("right_entry").get<double>());
      });
}

}  // namespace cairn::answers
