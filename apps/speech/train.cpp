#include "apps/speech/train.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/common/training_run.h"
#include "nn/io/hash.h"

namespace cairn::speech {

TrainingData::TrainingData(Corpus corpus, const Settings& settings)
    : front_end(corpus.front_end),
      dev(sentences_of(corpus, "dev", front_end, settings)),
      train(sentences_of(std::move(corpus), "train", front_end, settings)) {
  for (const auto& [part, sentences] : {std::pair("train", &train), std::pair("dev", &dev)})
    check<DataError>(std::any_of(sentences->begin(), sentences->end(), [](auto& each) { return !each.labels.empty(); }),
                     settings.data, ": no sentence of ", part, " has phones; training needs some in train and in dev");
}

// A hash of the features and the labels, in order.
static std::string hash_of(const std::vector<Sentence>& sentences) {
  Xxh128 hash;
  for (const Sentence& each : sentences) {
    hash.add(Json{each.frames(), each.labels}.dump());
    hash.add({static_cast<const char*>(each.features.raw()), each.features.bytes()});
  }
  return hash.text();
}

// Gives the model the weights of the run that --init-from names.
static void start_from(const Settings& settings, const FrontEnd& front_end, Model& model) {
  const std::string& from = settings.init_from;
  RunFolder::config("--init-from", from);  // or there is no run
  const FrontEnd other = read_front_end(from);
  check<DataError>(other.phones == front_end.phones && other.filterbanks() == front_end.filterbanks(), "--init-from ",
                   from, ": its phones and filterbanks are not those of ", settings.data);
  initialize(model, from);
}

// Trains the run, or goes on with it, and returns its result. Errors: as sentences_of() for the parts train and dev,
// initialize() and Training; DataError: --init-from has other phones or another number of filterbanks than the data.
static Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute) {
  const TrainingData data(read_corpus(TensorReader(settings.data)), settings);
  const auto seed = uint64_t(settings.compute.seed);
  Generator generator(seed);
  Model model(settings, data.front_end.filterbanks(), data.front_end.classes(), generator);
  if (run.begins() && !settings.init_from.empty()) start_from(settings, data.front_end, model);
  place(model, compute);

  Json computed = as_json(data.front_end);
  computed.update({{"train", hash_of(data.train)}, {"dev", hash_of(data.dev)}});
  Training training(run, settings.training, model, {front_end_name, "--data " + settings.data, computed});
  Epochs epochs(data.train, settings);
  while (training.next()) {
    std::vector<Sentence> sequences = epochs.sequences(training.step());
    RandomStream random(seed, uint64_t(training.step()), Purpose::data, augmentation_data);
    const int64_t first_position = random.below(uint32_t(settings.shift_positions + 1));
    if (settings.spec_augment)
      for (Sentence& sequence : sequences) hide_at_random(sequence, random);
    const Batch batch = make_batch(sequences, settings).to(compute.device);
    generator.set_step(uint64_t(training.step()));
    training.learn(loss_of(model(batch, first_position, {.training = true, .generator = &generator}), batch));
    training.evaluate([&]() -> Evaluation {
      const Recognition found = recognize(model, join(data.dev, settings.join), settings);
      return {as_json(found), found.phone_error_rate};
    });
  }
  const Json result = training.result([&] {
    Json metrics = {{"attention", settings.model.attention}};
    metrics.update(as_json(recognize(model, join(data.dev, settings.join), settings, true)));
    metrics.update({{"part", "dev"}, {"sentences", data.dev.size()}});
    return metrics;
  });
  if (training.keeps()) write_report(training.folder(), training.state(), result, settings, data, model);
  return training.finish(result);
}

void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  run_training(
      line,
      "  speech train --quick --data russian.data --out run\n"
      "  speech train --data russian.data --out run --resume\n"
      "  speech train --quick --data russian.data --init-from run --join 3 --batch-frames 6000 \\\n"
      "    --shift-positions 0 --lr 1e-3 --warm-up 20 --iterations 500 --out tuned",
      [&](const Run& run) {
        const DeviceAndDType compute = settings.compute.apply();
        check<UsageError>(!settings.data.empty(), "expected --data with prepared data; speech prepare makes it");
        settings.training.validate(settings.model, compute.device);
        return train(run, settings, compute);
      },
      [](const Json& result) { return concat("On dev, the ", evaluated_model(result), ":\n", metrics_text(result)); });
}

SavedRun::SavedRun(const char* option, const std::string& of_run, std::optional<Device> device) : folder(of_run) {
  SettingFields fields;
  settings.fields(fields);
  const FoundCheckpoint checkpoint = open_run(option, folder, fields);
  step = state_of(checkpoint).step;
  front_end = read_front_end(folder);
  Generator generator(uint64_t(settings.compute.seed));
  model = std::make_unique<Model>(settings, front_end.filterbanks(), front_end.classes(), generator);
  restore(checkpoint, *model, nullptr);
  settings.compute.device = device;
  settings.compute.threads = 0;  // as they are
  DeviceAndDType compute = ComputeSettings{.device = device}.apply();
  if (compute.device == Device::cuda) compute = settings.compute.apply();
  place(*model, compute);
}

}  // namespace cairn::speech
