#include "apps/speech/train.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/trace.h"
#include "nn/io/json.h"

namespace cairn::speech {

using Json = nlohmann::ordered_json;

SpeechTask::SpeechTask(const Settings& settings, const DeviceAndDType& compute, const Corpus& corpus,
                       const std::string& from)
    : settings_(settings),
      front_end_(corpus.front_end),
      train_(sentences_of(corpus, "train", front_end_, settings)),
      dev_(sentences_of(corpus, "dev", front_end_, settings)),
      epochs_(train_, settings),
      generator_(uint64_t(settings.compute.seed)),
      model_(settings, front_end_.filterbanks(), front_end_.classes(), generator_) {
  for (const auto& [part, sentences] : {std::pair("train", &train_), std::pair("dev", &dev_)})
    check<DataError>(std::any_of(sentences->begin(), sentences->end(), [](auto& each) { return !each.labels.empty(); }),
                     corpus.where, ": no sentence of ", part, " has phones; training needs some in train and in dev");
  if (!from.empty()) {
    RunFolder::config("--init-from", from);  // or there is no run
    const FrontEnd other = read_front_end(from);
    check<DataError>(other.phones == front_end_.phones && other.filterbanks() == front_end_.filterbanks(),
                     "--init-from ", from, ": its phones and filterbanks are not those of ", settings.data);
    initialize(model_, from);
  }
  place(model_, compute);
}

void SpeechTask::begin(RunFolder& run) { run.write(front_end_name, as_json(front_end_).dump(2) + "\n"); }

int64_t SpeechTask::load(int64_t step) {
  const trace::Span span("data", "program");
  std::vector<Sentence> sequences = epochs_.sequences(step);
  RandomStream random(uint64_t(settings_.compute.seed), uint64_t(step), Purpose::data, augmentation_data);
  first_position_ = random.below(uint32_t(settings_.shift_positions + 1));
  if (settings_.spec_augment)
    for (Sentence& sequence : sequences) hide_at_random(sequence, random);
  batch_ = make_batch(sequences, settings_).to(model_.output.bias.device());
  generator_.set_step(uint64_t(step));
  return batch_.size();
}

// One process has the whole batch.
Variable SpeechTask::loss(int64_t, int64_t) {
  const trace::Span span("forward", "program");
  return loss_of(model_(batch_, first_position_, {.training = true, .generator = &generator_}), batch_);
}

Evaluation SpeechTask::evaluate(int64_t) {
  const Recognition found = recognize(model_, join(dev_, settings_.join), settings_);
  return {as_json(found), found.phone_error_rate, false, ""};
}

Json SpeechTask::final_evaluation() {
  Json result = {{"attention", settings_.model.attention}};
  result.update(as_json(recognize(model_, join(dev_, settings_.join), settings_, true)));
  result.update({{"part", "dev"}, {"sentences", dev_.size()}});
  return result;
}

std::string SpeechTask::metrics_text(const Json& result) const {
  return concat("On dev, the ", evaluated_model(result), ":\n", speech::metrics_text(result));
}

FrontEnd read_front_end(const std::filesystem::path& run) {
  const std::filesystem::path file = run / front_end_name;
  return front_end_from(read_json(file), file);
}

void SavedRun::fields(SettingFields& f) {
  RunToRead::fields(f, "the run's folder");
  device_field(f, device);
}

void SavedRun::read() {
  SettingFields fields;
  settings.fields(fields);
  const FoundCheckpoint checkpoint = find(fields);
  front_end = read_front_end(folder);
  Generator generator(uint64_t(settings.compute.seed));
  model = std::make_unique<Model>(settings, front_end.filterbanks(), front_end.classes(), generator);
  restore(checkpoint, *model, nullptr);
  settings.compute.device = device;
  settings.compute.threads = threads;
  DeviceAndDType compute = ComputeSettings{.device = device, .threads = threads}.apply();
  if (compute.device == Device::cuda) compute = settings.compute.apply();
  place(*model, compute);
}

}  // namespace cairn::speech
