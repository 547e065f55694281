#include "apps/speech/train.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/speech/report_page.h"
#include "apps/speech/run.h"
#include "core/trace.h"
#include "nn/io/json.h"

namespace cairn::speech {

using Json = nlohmann::ordered_json;

// ---- the task

Corpus read_training_data(const Settings& settings) {
  Corpus corpus = read_corpus(settings.data);
  check<DataError>(!corpus.train.empty() && !corpus.dev.empty(), settings.data, ": sentences: train ",
                   corpus.train.size(), ", dev ", corpus.dev.size(), "; expected at least one of each");
  for (std::vector<Sentence>* part : {&corpus.train, &corpus.dev}) {
    check_targets(*part, settings.stride, settings.join, settings.data);
    fit_to_model(corpus.front_end, corpus.front_end, settings.data, *part);
  }
  corpus.test.clear();
  return corpus;
}

void check_same_data(const std::filesystem::path& run, const Corpus& data, const std::string& file) {
  if (!is_there(run / front_end_name)) return;
  const Json kept = read_json(run / front_end_name);
  check<DataError>(kept.value("data_hash", "") == data.hash, "--data ", file,
                   ": is not the data that the run began with (", run / front_end_name, " has its hash)");
}

SpeechTask::SpeechTask(const Settings& settings, const Place& place, const Corpus& data, const std::string& from)
    : settings_(settings),
      place_(place),
      data_(data),
      dev_(join(data.dev, settings.join)),
      epochs_(data.train, settings),
      generator_(uint64_t(settings.compute.seed)),
      model_(settings, data.front_end.classes(), generator_) {
  if (!from.empty()) {
    Artifact::config("--init-from", from);  // or there is no run
    check<DataError>(read_front_end(from).phones == data.front_end.phones, "--init-from ", from,
                     ": its phones are not those of ", settings.data);
    initialize(model_, from);
  }
  model_.place(place.device, place.activations);
}

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
  const Metrics found = recognize_dev(false).metrics;
  return {as_json(found), found.phone_error_rate, false, ""};
}

// ---- a run

namespace {

Json result_of(SpeechTask& task, const TrainState& state, int64_t best_step) {
  const Stopwatch clock(state.seconds);
  Json result = {{"attention", task.settings().model.attention}};
  result.update(as_json(task.recognize_dev(true).metrics));
  result.update({{"part", "dev"},
                 {"sentences", task.data().dev.size()},
                 {"best_step", best_step < 0 ? Json() : Json(best_step)},  // null: the last model
                 {"iterations", state.step},
                 {"stopped", state.ended},
                 {"seconds", clock.seconds()},
                 {"steps_per_second", state.seconds > 0 ? double(state.step) / state.seconds : 0},
                 {"parameters", parameter_count(task.model())},
                 {"peak_bytes", memory(task.device()).peak}});
  return result;
}

}  // namespace

Json train_run(SpeechTask& task, Artifact& run, bool quiet, Communicator& ranks) {
  Json front_end = as_json(task.data().front_end);
  front_end["data_hash"] = task.data().hash;
  run.write(front_end_name, front_end.dump(2) + "\n");
  reset_peak_memory(task.device());
  const TrainState state = train(task, task.settings().training, run, quiet, ranks);
  const bool is_over = state.ended || state.step == task.settings().training.iterations;
  const int64_t best_step = run.keeps() ? load_best(run.folder(), task.model(), state.step) : -1;
  Json result = run.result().value_or(Json());
  const bool is_new = result.is_null() || result.at("iterations") != state.step;
  try {
    if (!is_over) throw Interrupted();
    if (is_new) result = result_of(task, state, best_step);
  } catch (const Interrupted&) {
    write_report(run, task, state, {});
    throw;
  }
  write_report(run, task, state, result);
  if (is_new) run.write_result(result);  // last, when nothing is left to do
  return result;
}

std::string chosen_model(const Json& result) {
  const Json& step = result.at("best_step");
  return step.is_null() ? "last model" : concat("best model, of step ", step.get<int64_t>());
}

std::string result_text(const Json& result) {
  const int64_t steps = result.at("iterations");
  return concat(steps, " step", steps == 1 ? "" : "s", " in ", clock_time(result.at("seconds")), " (",
                formatted("%.1f", result.at("steps_per_second").get<double>()), " steps/s), ",
                result.at("parameters").get<int64_t>(), " parameters, peak memory ",
                formatted("%.0f MB", result.at("peak_bytes").get<double>() / 1e6), "\nOn dev, the ",
                chosen_model(result), ":\n", metrics_text(result));
}

}  // namespace cairn::speech
