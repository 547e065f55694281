// language-model: a causal transformer learns to write, byte by byte.
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/common/training_run.h"
#include "apps/common/variants.h"
#include "apps/language_model/model.h"
#include "nn/io/json.h"

namespace cairn::language_model {

static void train_command(CommandLine& line) {
  Settings settings;
  settings.fields(line);
  line.many_processes = true;
  run_training(
      line,
      "  language-model train --text book.txt --quick --out run\n"
      "  language-model train --out run --resume",
      [&](const Run& run) {
        check<UsageError>(!settings.text.empty(), "expected --text with a file to learn from");
        const DeviceAndDType compute = settings.compute.apply();
        settings.training.validate(settings.model, compute.device);
        return train(run, settings, compute);
      },
      [](const Json& result) {
        return formatted("On the held-out tenth, of %zu bytes: %.3f bits a byte\n", result.at("bytes").get<size_t>(),
                         result.at("bits").get<double>());
      });
}

// Writes on from a prompt, and shows each byte at once.
static void generate_command(CommandLine& line) {
  std::string folder, prompt = "\n";
  int64_t bytes = 500, seed = 1;
  double temperature = 0.7;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line("prompt", prompt, Text::any, "the text that the model goes on from");
  line("bytes", bytes, {1, 1 << 30}, "bytes to write");
  line("temperature", temperature, {0, 100}, "below 1: likelier bytes are drawn more often; 0: the likeliest alone");
  line("seed", seed, {0, INT32_MAX}, "of the random numbers that choose bytes");
  line.threads();
  line.footer("Example:\n  language-model generate --run run --prompt 'And the LORD said' --temperature 0.5");
  line.parse();
  check<UsageError>(!prompt.empty(), "--prompt: expected at least a byte");
  const SavedRun<Settings, Model> run("--run", folder);
  if (int64_t(prompt.size()) > run.settings.context)
    note(concat("--prompt: the model sees its last ", run.settings.context, " bytes, of ", prompt.size()), line.quiet);
  catch_interrupts(line.quiet);
  RandomStream random(uint64_t(seed), 0, Purpose::data);
  std::string text = prompt;
  if (!line.json) print(prompt);
  for (int64_t i = 0; i < bytes; ++i) {
    if (interrupted()) throw Interrupted();
    text += next_byte(*run.model, text, temperature, random);
    if (!line.json) print(text.substr(text.size() - 1));
  }
  line.tell({{"text", as_utf8(text)}, {"bytes", bytes}, {"temperature", temperature}, {"seed", seed}}, "\n");
}

// Measures a model with its own attention or with other variants.
static void evaluate_command(CommandLine& line) {
  std::string folder, file, attention;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line("text", file, Text::file, "a text, of which all is measured (default: what the run held out)");
  line("attention", attention, several_variants, "attention variants, separated by commas (default: the run's)");
  line.threads();
  line.footer("Example:\n  language-model evaluate --run run --attention full,local-64");
  line.parse();
  const SavedRun<Settings, Model> run("--run", folder);
  const Settings& settings = run.settings;
  std::string text;
  if (file.empty()) {
    const SplitText split(settings.text, settings.context);
    expect_same(split.record(settings.text), folder, "give a --text");
    text = split.held_out;
  } else {
    text = read_file(file);
  }
  check<DataError>(text.size() > 1, "--text ", file, ": expected two bytes or more");
  const std::vector<std::string> specs = split_specs(attention.empty() ? settings.model.attention : attention);
  for (const std::string& spec : specs)  // checks all before it evaluates any
    name_in_errors("--attention " + spec, [&] { run.model->set_attention(spec); });
  catch_interrupts(line.quiet);
  Json result = {{"run", folder}, {"bytes", text.size() - 1}, {"rows", Json::array()}};
  std::string shown;
  for (const std::string& spec : specs) {
    note("evaluating " + spec, line.quiet || specs.size() == 1);
    run.model->set_attention(spec);
    const double bits = bits_per_byte(*run.model, text, 1, true);
    result["rows"].push_back({{"attention", spec}, {"bits", finite_or_null(bits)}});
    shown += formatted("%-32s  %.3f bits a byte\n", spec.c_str(), bits);
  }
  line.tell(result, shown);
}

}  // namespace cairn::language_model

int main(int argc, char** argv) {
  using namespace cairn::language_model;
  return cairn::run_program("language-model", "A transformer learns to write like a text, byte by byte.",
                            "Examples:\n"
                            "  language-model train --text book.txt --quick --out run\n"
                            "  language-model generate --run run --prompt 'And the LORD said'\n"
                            "  language-model evaluate --run run --text other.txt\n",
                            {{"train", train_command, "Train on a text, and measure on its last tenth"},
                             {"generate", generate_command, "Write on from a prompt"},
                             {"evaluate", evaluate_command, "Measure a trained model in bits a byte"}},
                            argc, argv);
}
