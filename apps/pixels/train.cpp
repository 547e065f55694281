// The training of the model.
#include <nlohmann/json.hpp>

#include "apps/pixels/model.h"
#include "nn/io/hash.h"
#include "nn/io/json.h"

namespace cairn::pixels {

using Json = nlohmann::ordered_json;

Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute) {
  const auto seed = uint64_t(settings.compute.seed);
  const Images images(settings.data, "train"), test(settings.data, "t10k");
  Generator generator(seed);
  Model model(settings, generator);
  place(model, compute);

  const std::string all = xxh128(images.pixels + images.classes + test.pixels + test.classes);
  Training training(run, settings.training, model, {"data.json", "--data " + settings.data, {{"images", all}}});
  while (training.next()) {
    const auto step = uint64_t(training.step());
    RandomStream random(seed, step, Purpose::data);
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < settings.batch; ++i) chosen.push_back(random.below(uint32_t(images.size())));
    const Batch batch(images, chosen, model.patch, compute.device);
    const Share mine = training.share(settings.batch);
    generator.set_step(step);
    generator.set_first_example(mine.begin);
    Variable loss;  // stays undefined if this process has no image of the batch
    if (mine.size() > 0)
      loss = cross_entropy(model(batch.input.slice(mine.begin, mine.end), {.training = true, .generator = &generator}),
                           batch.target.slice(mine.begin, mine.end));
    training.learn(loss);
    training.evaluate([&]() -> Evaluation {
      const Answers found = answers_to(model, test, 10, false);
      return {{{"accuracy", found.accuracy}, {"loss", finite_or_null(found.loss)}}, found.loss};
    });
  }
  const Json result = training.result([&]() -> Json {
    const Answers found = answers_to(model, test, 1, true);
    return {{"attention", settings.model.attention},
            {"accuracy", found.accuracy},
            {"loss", finite_or_null(found.loss)},
            {"images", test.size()},
            {"seed", seed}};
  });
  if (training.keeps()) write_report(training.folder(), training.state(), result, settings, test, model);
  return training.finish(result);
}

}  // namespace cairn::pixels
