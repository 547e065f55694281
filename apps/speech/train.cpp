#include "apps/speech/train.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "apps/speech/run.h"
#include "core/trace.h"

namespace cairn::speech {

using Json = nlohmann::ordered_json;

Corpus read_training_data(const Settings& settings) {
  Corpus corpus = read_corpus(read_safetensors(settings.data));
  check<DataError>(!corpus.train.empty() && !corpus.dev.empty(), settings.data, ": sentences: train ",
                   corpus.train.size(), ", dev ", corpus.dev.size(), "; expected at least one of each");
  for (std::vector<Sentence>* part : {&corpus.train, &corpus.dev}) {
    check_targets(*part, settings.stride, settings.join, settings.data);
    fit_to_model(corpus.front_end, corpus.front_end, settings.data, *part);
  }
  return corpus;
}

SpeechTask::SpeechTask(const Settings& settings, const Place& place, Corpus data, const std::string& from)
    : settings_(settings),
      place_(place),
      data_(std::move(data)),
      dev_(join(data_.dev, settings.join)),
      epochs_(data_.train, settings),
      generator_(uint64_t(settings.compute.seed)),
      model_(settings, data_.front_end.classes(), generator_) {
  if (!from.empty()) {
    Artifact::config("--init-from", from);  // or there is no run
    check<DataError>(read_front_end(from).phones == data_.front_end.phones, "--init-from ", from,
                     ": its phones are not those of ", settings.data);
    initialize(model_, from);
  }
  model_.place(place.device, place.activations);
}

void SpeechTask::begin(Artifact& run) { run.write(front_end_name, as_json(data_.front_end).dump(2) + "\n"); }

int64_t SpeechTask::load(int64_t step) {
  const trace::Span span("data", "program");
  std::vector<Sentence> sequences = epochs_.sequences(step);
  RandomStream random(uint64_t(settings_.compute.seed), uint64_t(step), Purpose::data, augmentation_data);
  first_position_ = random.below(uint32_t(settings_.shift_positions + 1));
  if (settings_.spec_augment)
    for (Sentence& sequence : sequences) hide_at_random(sequence, random);
  batch_ = make_batch(sequences, settings_).to(place_.device);
  generator_.set_step(uint64_t(step));
  return batch_.size();
}

// One process has the whole batch.
Variable SpeechTask::loss(int64_t, int64_t) {
  const trace::Span span("forward", "program");
  return loss_of(model_(batch_, first_position_, {.training = true, .generator = &generator_}), batch_);
}

Evaluation SpeechTask::evaluate(int64_t) {
  const Recognition found = recognize(model_, dev_, settings_);
  return {as_json(found), found.phone_error_rate, false, ""};
}

Json SpeechTask::judge() {
  Json result = {{"attention", settings_.model.attention}};
  result.update(as_json(recognize(model_, dev_, settings_, true)));
  result.update({{"part", "dev"}, {"sentences", data_.dev.size()}});
  return result;
}

std::string SpeechTask::metrics_text(const Json& result) const {
  return concat("On dev, the ", judged_model(result), ":\n", speech::metrics_text(result));
}

}  // namespace cairn::speech
