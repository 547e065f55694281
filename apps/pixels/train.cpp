// The training of the model.
#include "apps/pixels/model.h"
#include "nn/io/json.h"

namespace cairn::pixels {

Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute) {
  const auto seed = uint64_t(settings.compute.seed);
  const Images images(settings.data, "train", settings.patch), test(settings.data, "t10k", settings.patch);
  const int64_t size = images.target.size(0), batch = std::min(settings.batch, size);
  Generator generator(seed);
  Model model(settings, generator);
  place(model, compute);

  const Json hashes = {{"train", images.hash}, {"test", test.hash}};
  Training training(run, settings.training, model, {"data.json", "--data " + settings.data, hashes});
  while (training.next()) {
    const int64_t first = training.step() * batch % (size - batch + 1);  // the files have the images in random order
    const Share mine = training.share(batch);
    generator.set_step(uint64_t(training.step()));
    generator.set_first_example(mine.begin);
    Variable loss;  // stays undefined if this process has no image of the batch
    if (mine.size() > 0) {
      const Tensor input = images.input.slice(first + mine.begin, first + mine.end);
      const Tensor target = images.target.slice(first + mine.begin, first + mine.end).to(compute.device);
      loss = cross_entropy(model(input, {.training = true, .generator = &generator}), target);
    }
    training.learn(loss);
    training.evaluate([&]() -> Evaluation {
      const Json found = measure(model, test, std::min<int64_t>(1000, test.target.size(0)), false);
      return {found, number_or_nan(found["loss"])};
    });
  }
  const Json result = training.result([&] {
    Json found = measure(model, test, test.target.size(0), true);
    found["seed"] = seed;
    return found;
  });
  if (training.keeps()) write_report(training.folder(), training.state(), result, settings, test, model);
  return training.finish(result);
}

}  // namespace cairn::pixels
