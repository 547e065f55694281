#include "apps/answers/train.h"

#include <nlohmann/json.hpp>

#include "apps/common/training_run.h"
#include "nn/io/hash.h"

namespace cairn::answers {

using Json = nlohmann::ordered_json;

// A hash of the questions' tokens, entries and answers, in order.
static std::string hash_of(const std::vector<Question>& questions) {
  Xxh128 hash;
  for (const Question& q : questions) hash.add(Json{q.tokens, q.entries, q.right, q.begin, q.end}.dump());
  return hash.text();
}

Json train(const Run& run, const Settings& settings) {
  const DeviceAndDType compute = settings.compute.apply();
  const auto seed = uint64_t(settings.compute.seed);
  Model model(settings, Generator(seed));
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

  Generator generator(seed);
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

SavedRun::SavedRun(const char* option, const std::string& of_run, const ComputeSettings& compute) : folder(of_run) {
  SettingFields fields;
  settings.fields(fields);
  use_threads(compute.threads);
  const FoundCheckpoint checkpoint = open_run(option, folder, fields);
  model = std::make_unique<Model>(settings, Generator(uint64_t(settings.compute.seed)));
  restore(checkpoint, *model, nullptr);
  place(*model, compute.apply());
}

}  // namespace cairn::answers
