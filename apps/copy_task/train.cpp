#include "apps/copy_task/train.h"

#include <nlohmann/json.hpp>

#include "core/trace.h"

namespace cairn::copy_task {

using Json = nlohmann::ordered_json;

CopyTask::CopyTask(const Settings& settings, const DeviceAndDType& compute, const std::string& from)
    : settings_(settings),
      compute_(compute),
      generator_(uint64_t(settings.compute.seed)),
      model_(settings.transformer(), sequence_length(settings.length), generator_) {
  if (!from.empty()) initialize(model_, from);
  place(model_, compute);
}

int64_t CopyTask::load(int64_t step) {
  const trace::Span span("data", "program");
  RandomStream random(uint64_t(settings_.compute.seed), uint64_t(step), Purpose::data, training_data);
  const Batch batch = make_batch(settings_.batch, settings_.length, random);
  batch_ = {batch.input.to(compute_.device), batch.target.to(compute_.device)};
  generator_.set_step(uint64_t(step));
  return settings_.batch;
}

Variable CopyTask::loss(int64_t begin, int64_t end) {
  const trace::Span span("forward", "program");
  generator_.set_first_example(begin);
  const Variable logits = model_(batch_.input.slice(begin, end), {.training = true, .generator = &generator_});
  return cross_entropy(logits, batch_.target.slice(begin, end));
}

Evaluation CopyTask::evaluate(int64_t step) {
  constexpr int64_t sequences = 256;
  const Metrics found =
      copy_task::evaluate(model_, settings_.length, sequences, uint64_t(settings_.compute.seed), uint64_t(step) - 1);
  Evaluation evaluation{as_json(found), found.loss, settings_.stop_at > 0 && found.masked_accuracy >= settings_.stop_at,
                        ""};
  static bool explained = false;  // once, for all trainings of this process
  if (!explained && !evaluation.solved && is_plateau(found.accuracy, found.masked_accuracy)) {
    evaluation.note =
        "The model now copies unmasked symbols and still guesses masked ones (about 1 in 8 right). This plateau often "
        "lasts several hundred steps. It ends quickly when the attention finds the other copy.";
    explained = true;
  }
  return evaluation;
}

Json CopyTask::final_evaluation() {
  const auto seed = uint64_t(settings_.compute.seed);
  Json result = {{"attention", settings_.model.attention}};
  result.update(as_json(copy_task::evaluate(model_, settings_.length, final_sequences, seed, unseen_step, true)));
  result.update({{"sequences", final_sequences}, {"length", settings_.length}, {"seed", seed}});
  return result;
}

std::string CopyTask::metrics_text(const Json& result) const {
  return concat("On ", result.at("sequences").get<int64_t>(), " fresh sequences:\n", copy_task::metrics_text(result));
}

void SavedRun::read() {
  SettingFields fields;
  settings.fields(fields);
  const FoundCheckpoint checkpoint = find(fields);
  Generator generator(uint64_t(settings.compute.seed));
  model = std::make_unique<Model>(settings.transformer(), sequence_length(settings.length), generator);
  restore(checkpoint, *model, nullptr);
}

}  // namespace cairn::copy_task
