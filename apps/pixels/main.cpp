// pixels: a transformer whose positions are pixels or small patches learns what is in an image.
#include <algorithm>

#include "apps/common/format.h"
#include "apps/common/training_run.h"
#include "apps/common/variants.h"
#include "apps/pixels/model.h"
#include "nn/io/json.h"

namespace cairn::pixels {

// Trains the run, or goes on with it, and returns its result. Errors: as Images(), Model() and Training.
static Json train(const Run& run, const Settings& settings, const DeviceAndDType& compute) {
  const Images images(settings.data, "train", settings.patch), test(settings.data, "t10k", settings.patch);
  const int64_t batch = std::min(settings.batch, images.size());
  Generator generator(uint64_t(settings.compute.seed));
  Model model(settings, generator);
  place(model, compute);

  const Json hashes = {{"train", images.hash}, {"test", test.hash}};
  Training training(run, settings.training, model, {"data.json", "--data " + settings.data, hashes});
  while (training.next()) {
    const int64_t begin = training.step() * batch % (images.size() - batch + 1);  // the files' order is random
    generator.set_step(uint64_t(training.step()));
    const Variable logits =
        model(images.input.slice(begin, begin + batch), {.training = true, .generator = &generator});
    training.learn(cross_entropy(logits, images.target.slice(begin, begin + batch).to(compute.device)));
    training.evaluate([&]() -> Evaluation {
      const Json found = measure(model, test, std::min<int64_t>(1000, test.size()), false);
      return {found, number_or_nan(found["loss"])};
    });
  }
  const Json result = training.result([&] { return measure(model, test, test.size(), true); });
  if (training.keeps()) write_report(training.folder(), training.state(), result, settings, test, model);
  return training.finish(result);
}

static void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  run_training(
      line, "  pixels train --quick --out run\n  pixels train --out run --resume",
      [&](const Run& run) {
        const DeviceAndDType compute = settings.compute.apply();
        settings.training.validate(settings.model, compute.device);
        return train(run, settings, compute);
      },
      [](const Json& result) {
        return formatted("Of the test images, %.2f%% are right\n", 100 * result.at("accuracy").get<double>());
      });
}

// Measures a model on the test images, with its own attention or with other variants.
static void evaluate_command(CommandLine& line) {
  std::string folder, attention;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line("attention", attention, several_variants, "attention variants, separated by commas (default: the run's)");
  line.threads();
  line.footer("Example:\n  pixels evaluate --run run --attention full,clustered-25");
  line.parse();
  const SavedRun<Settings, Model> run("--run", folder);
  const Images test(run.settings.data, "t10k", run.settings.patch);
  expect_same({"data.json", "--data " + run.settings.data, {{"test", test.hash}}}, folder, "train again");
  const std::vector<std::string> specs = split_specs(attention.empty() ? run.settings.model.attention : attention);
  for (const std::string& spec : specs)  // checks all before it evaluates any
    name_in_errors("--attention " + spec, [&] { run.model->encoder.swap_attention(spec); });
  catch_interrupts(line.quiet);
  Json result = {{"run", folder}, {"rows", Json::array()}};
  std::string shown;
  for (const std::string& spec : specs) {
    note("evaluating " + spec, line.quiet);
    run.model->encoder.swap_attention(spec);
    Json found = measure(*run.model, test, test.size(), true);
    shown += formatted("%-32s  accuracy %.4f  loss %.4f\n", spec.c_str(), double(found["accuracy"]),
                       number_or_nan(found["loss"]));
    found["attention"] = spec;
    result["rows"].push_back(found);
  }
  line.tell(result, shown);
}

}  // namespace cairn::pixels

int main(int argc, char** argv) {
  using namespace cairn::pixels;
  return cairn::run_program("pixels", "A transformer looks at images pixel by pixel, and says what they show.",
                            "Examples:\n  pixels train --quick --out run\n"
                            "  pixels evaluate --run run --attention full,clustered-25\n",
                            {{"train", train_command, "Train on Fashion-MNIST, and measure on its test images"},
                             {"evaluate", evaluate_command, "Measure a trained model, with any attention"}},
                            argc, argv);
}
