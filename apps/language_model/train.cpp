// The training of a language model.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/language_model/model.h"
#include "nn/io/json.h"

namespace cairn::language_model {

// The steps after which the report shows what the model writes: 100, 300, 1000, 3000, ...
static bool is_shown(int64_t step) {
  while (step % 10 == 0 && step > 300) step /= 10;
  return step == 100 || step == 300;
}

Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute) {
  const auto seed = uint64_t(settings.compute.seed);
  const int64_t context = settings.context;
  const SplitText text(settings.text, context);
  const int64_t spread = std::max<int64_t>(1, int64_t(text.held_out.size()) / context / 64);  // evaluates 64 windows
  Generator generator(seed);
  Model model(settings, generator);
  place(model, compute);

  Training training(run, settings.training, model, text.record(settings.text));
  while (training.next()) {
    const auto step = uint64_t(training.step());
    RandomStream random(seed, step, Purpose::data);
    std::vector<int64_t> begins;  // of the windows
    for (int64_t i = 0; i < settings.batch; ++i) begins.push_back(random.below(uint32_t(text.train.size() - context)));
    const Batch batch(text.train, begins, context, compute.device);
    const Share mine = training.share(settings.batch);
    generator.set_step(step);
    generator.set_first_example(mine.begin);
    Variable loss;  // stays undefined if this process has no window of the batch
    if (mine.size() > 0)
      loss = cross_entropy(model(batch.input.slice(mine.begin, mine.end), {.training = true, .generator = &generator}),
                           batch.target.slice(mine.begin, mine.end));
    training.learn(loss);
    training.evaluate([&]() -> Evaluation {
      const double bits = bits_per_byte(model, text.held_out, spread, false);
      Json metrics = {{"bits", finite_or_null(bits)}};
      if (is_shown(training.step())) metrics["writes"] = as_utf8(written(model, text.held_out.substr(0, 20), 200));
      return {metrics, bits};
    });
  }
  const Json result = training.result([&]() -> Json {
    const double bits = bits_per_byte(model, text.held_out, 1, true);
    return {{"attention", settings.model.attention},
            {"bits", finite_or_null(bits)},
            {"loss", finite_or_null(bits * std::log(2.0))},
            {"bytes", text.held_out.size() - 1},
            {"seed", seed}};
  });
  if (training.keeps()) write_report(training.folder(), training.state(), result, settings, text, model);
  return training.finish(result);
}

}  // namespace cairn::language_model
