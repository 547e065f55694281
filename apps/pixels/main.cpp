// pixels: a transformer whose positions are pixels or small patches learns what is in an image.
#include "apps/common/format.h"
#include "apps/common/training_run.h"
#include "apps/common/variants.h"
#include "apps/pixels/model.h"
#include "nn/io/json.h"

namespace cairn::pixels {

static void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  line.many_processes = true;
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
  int64_t threads = 0;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line("attention", attention, several_variants, "attention variants, separated by commas (default: the run's)");
  threads_field(line, threads);
  line.footer("Example:\n  pixels evaluate --run run --attention full,clustered-25");
  line.parse();
  use_threads(threads);
  Settings settings;
  SettingFields fields;
  settings.fields(fields);
  const FoundCheckpoint checkpoint = open_run("--run", folder, fields);
  Generator generator;
  Model model(settings, generator);
  restore(checkpoint, model, nullptr);
  const Images test(settings.data, "t10k", settings.patch);
  std::vector<std::string> specs = split_specs(attention.empty() ? settings.model.attention : attention);
  for (const std::string& spec : specs)  // checks all before it evaluates any
    name_in_errors("--attention " + spec, [&] { model.encoder.swap_attention(spec); });
  catch_interrupts(line.quiet);
  Json result = {{"run", folder}, {"rows", Json::array()}};
  std::string shown;
  for (const std::string& spec : specs) {
    note("evaluating " + spec, line.quiet);
    model.encoder.swap_attention(spec);
    Json found = measure(model, test, test.target.size(0), true);
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
