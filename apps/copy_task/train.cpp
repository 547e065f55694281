// A training of the copy task, whole: sequences (make_batch, data.h), the model (model.h), the loss, the evaluation. A
// resumed one continues from what `Training` (apps/common/training.h) restores.
#include "apps/copy_task/train.h"

#include <nlohmann/json.hpp>

#include "apps/common/training_run.h"

namespace cairn::copy_task {

// Explains the plateau, once for all trainings of this process.
static std::string plateau_note(const Metrics& found) {
  static bool told = false;
  if (told || !is_plateau(found.accuracy, found.masked_accuracy)) return "";
  told = true;
  return "The model now copies unmasked symbols and still guesses masked ones (about 1 in 8 right). This plateau often "
         "lasts several hundred steps. It ends quickly when the attention finds the other copy.";
}

Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute) {
  const auto seed = uint64_t(settings.compute.seed);
  Generator generator(seed);
  Model model(settings, generator);
  note(model.full_note(), run.quiet);
  if (run.begins() && !settings.init_from.empty()) initialize(model, settings.init_from);
  place(model, compute);

  Training training(run, settings.training, model);
  while (training.next()) {
    const auto step = uint64_t(training.step());
    RandomStream random(seed, step, Purpose::data, training_data);
    const Batch batch = make_batch(settings.batch, settings.length, random, settings.causal).to(compute.device);
    const Share mine = training.share(settings.batch);
    generator.set_step(step);
    generator.set_first_example(mine.begin);
    Variable loss;  // stays undefined if this process has no sequence of the batch
    if (mine.size() > 0)
      loss = cross_entropy(model(batch.input.slice(mine.begin, mine.end), {.training = true, .generator = &generator}),
                           model.answered(batch.target.slice(mine.begin, mine.end)));
    training.learn(loss);
    training.evaluate([&]() -> Evaluation {
      const Metrics found = evaluate(model, settings.length, 256, seed, step);
      const bool solved = settings.stop_at > 0 && found.masked_accuracy >= settings.stop_at;
      return {as_json(found), found.loss, solved, solved ? "" : plateau_note(found)};
    });
  }
  const Json result = training.result([&] {
    Json metrics = {{"attention", settings.model.attention}};
    metrics.update(as_json(evaluate(model, settings.length, settings.sequences, seed, unseen_step, true)));
    metrics.update({{"sequences", settings.sequences}, {"length", settings.length}, {"seed", seed}});
    return metrics;
  });
  if (training.keeps()) write_report(training.folder(), training.state(), result, settings, model);
  return training.finish(result);
}

void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  line.many_processes = true;
  run_training(
      line,
      "  copy-task train --quick --out run\n"
      "  copy-task train --out run --resume\n"
      "  copy-task train --attention i-clustered-15 --length 31 --seed 1\n"
      "  copy-task train --config run/config.json --init-from run --seed 2 --lr 1e-5 \\\n"
      "    --attention i-clustered-30 --stop-at 0 --out tuned     fine-tune with more clusters",
      [&](const Run& run) {
        const DeviceAndDType compute = settings.compute.apply();
        settings.training.validate(settings.model, compute.device);
        const int ranks = run.ranks.size();
        check<UsageError>(settings.training.average_every == 0 || settings.batch >= ranks,
                          "--average-every: expected a --batch with at least one sequence for each of the ", ranks,
                          " processes, got ", settings.batch);
        return train(run, settings, compute);
      },
      [](const Json& result) {
        return concat("On ", result.at("sequences").get<int64_t>(), " fresh sequences:\n", metrics_text(result));
      });
}

}  // namespace cairn::copy_task
