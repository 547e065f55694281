// copy-task evaluate, solve and report: what can be done with a trained run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/copy_task/commands.h"
#include "apps/copy_task/results.h"
#include "apps/copy_task/run_report.h"
#include "apps/copy_task/settings.h"
#include "core/ops.h"
#include "core/parallel.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

// What these commands share: the run, and settings that are no run's.
struct RunCommand {
  RunCommand(CLI::App& app, const char* name, const char* summary, const std::string& example)
      : command(*app.add_subcommand(name, summary)), options(&command) {
    command.footer("Example:\n  " + example);
    add_path(command, "--run", run, "DIR", "the run's folder");
    command.get_option("--run")->required();
  }
  virtual ~RunCommand() = default;

  // Behind the options of its own.
  void define_common(bool with_seed) {
    options.integer("threads", threads, 1, 4096, "CPU threads; results do not depend on it");
    if (with_seed) options.integer("seed", seed, 0, std::numeric_limits<int64_t>::max(), "names the sequences");
    output.define(command);
    command.callback([this] {
      options.read();
      options.assign();
      if (threads > 0) set_threads(int(threads));
      execute();
    });
  }
  virtual void execute() = 0;

  CLI::App& command;
  Options options;
  OutputOptions output;
  std::string run;
  int64_t threads = 0, seed = -1;
};

struct EvaluateCommand : RunCommand {
  explicit EvaluateCommand(CLI::App& app)
      : RunCommand(app, "evaluate", "Evaluate a run's weights, also with other attention than they were trained with",
                   "copy-task evaluate --run run --attention i-clustered-15,full,clustered-15,clustered-30") {
    options.text("attention", attention, "variants, comma-separated; by default the run's own");
    options.integer("sequences", sequences, 1, 1 << 20, "how many fresh sequences");
    define_common(true);
  }

  void execute() override {
    const auto trained = read_run(run, output.quiet);
    const TrainOptions& train = trained->settings.train;
    std::vector<std::string> specs = split_specs(attention);
    if (specs.empty()) specs = {train.model.attention};
    for (const std::string& spec : specs) trained->swap_attention(spec);  // refuses all before it evaluates any
    catch_interrupts();
    std::vector<VariantResult> results;
    for (const std::string& spec : specs) {
      trained->swap_attention(spec);
      note("evaluating " + spec, output.quiet || specs.size() == 1);
      const uint64_t names = seed >= 0 ? uint64_t(seed) : train.seed;
      const Evaluation evaluation = evaluate(*trained->model, train.length, sequences, names, unseen_step, true);
      if (interrupted()) throw CLI::RuntimeError(exit_interrupted);
      results.push_back({spec, evaluation});
    }
    Json json = evaluations_json(results);
    if (!output.json) return print(evaluations_text(json));
    json.update({{"run", run}, {"iterations", trained->step}, {"sequences", sequences}});
    json["trained_with"] = train.model.attention;
    print(json.dump() + "\n");
  }

  static constexpr uint64_t unseen_step = uint64_t(1) << 40;  // sequences that no training has seen
  std::string attention;
  int64_t sequences = 1024;
};

// A masked sequence as a person writes it: "0 3 M 7 0 3 5 M". Errors (UsageError): what it is not.
std::vector<int32_t> read_sequence(const std::string& line) {
  std::string text = line;
  for (char& c : text)
    if (c == ',' || c == '\t' || c == '\r') c = ' ';
  std::istringstream in(text);
  in.exceptions(std::ios::badbit);  // lets std::bad_alloc through
  std::vector<int32_t> sequence;
  for (std::string word; in >> word;) {
    if (word == "M" || word == "m" || word == "?" || word == "_") {
      sequence.push_back(mask_token);
      continue;
    }
    int32_t value = -1;
    const char* end = std::from_chars(word.data(), word.data() + word.size(), value).ptr;
    check<UsageError>(end == word.data() + word.size() && value >= 0 && value <= symbols, "symbol ",
                      sequence.size() + 1, ": expected a number from 0 to ", symbols, " or M for a masked one, got ",
                      in_quotes(word));
    sequence.push_back(value);
  }
  const size_t n = sequence.size();
  check<UsageError>(n >= 4 && n % 2 == 0, "expected 0w0w, an even number of at least 4 symbols, got ", n);
  for (size_t i = 0; i < n; ++i) {
    const bool separates = i == 0 || i == n / 2;
    check<UsageError>((sequence[i] == separator) == separates, "symbol ", i + 1, ": expected ",
                      separates ? "the separator 0" : "a symbol from 1 to 10 or M", " in 0w0w of ", n, " symbols, got ",
                      sequence[i] == mask_token ? "M" : std::to_string(sequence[i]));
  }
  return sequence;
}

struct SolveCommand : RunCommand {
  explicit SolveCommand(CLI::App& app)
      : RunCommand(app, "solve", "Fill in masked sequences that you type, or that stand in a file",
                   "copy-task solve --run run\n  copy-task solve --run run --attention full <sequences.txt") {
    command.add_option("sequence", words, "0w0w with symbols 1..10, masked ones as M; without it, lines are read")
        ->expected(0, -1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    options.text("attention", attention, "the variant to solve with; by default the run's own");
    define_common(false);
  }

  void execute() override {
    trained = read_run(run, output.quiet);
    if (attention.empty()) attention = trained->settings.train.model.attention;
    trained->swap_attention(attention);
    if (!words.empty()) {
      std::string line;
      for (const std::string& word : words) line += word + " ";
      return solve(line);
    }
    const bool person = isatty(STDIN_FILENO);
    if (person)
      note(
          concat("A sequence is 0w0w; in each copy some symbols are M, to be read in the other. This model was trained "
                 "on ",
                 sequence_length(trained->settings.train.length), " symbols. End with Ctrl-D."),
          output.quiet);
    int64_t number = 0;
    for (std::string line; person && std::cerr << "> " << std::flush, std::getline(std::cin, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      try {
        solve(line);
      } catch (const UsageError& error) {
        check<DataError>(person, "line ", number, ": ", error.what());
        note(error.what(), false);
      }
    }
    check<DataError>(number > 0 || person, "standard input is empty: expected a sequence on each line");
  }

  void solve(const std::string& line) {
    const std::vector<int32_t> sequence = read_sequence(line);
    const int64_t n = int64_t(sequence.size()), length = n / 2 - 1;
    if (!model_length) model_length = trained->settings.train.length;
    if (length != model_length) {
      if (length != trained->settings.train.length)
        note(concat("trained on ", sequence_length(trained->settings.train.length), " symbols, asked for ", n,
                    ": positions it has not learnt, so do not expect much"),
             output.quiet);
      trained = read_run(run, true, length);
      trained->swap_attention(attention);
      model_length = length;
    }
    const NoGrad no_grad;
    Generator generator(~trained->settings.train.seed);
    const Tensor input = Tensor::from(sequence, {1, n});
    const Tensor probabilities = softmax((*trained->model)(input, {false, &generator}).value());
    const std::vector<int32_t> answer = argmax(probabilities).to_vector<int32_t>();
    const float* p = probabilities.data<float>();
    if (output.json) {
      Json json = {{"answer", answer}, {"masked", Json::array()}};
      for (int64_t i = 0; i < n; ++i)
        if (sequence[size_t(i)] == mask_token)
          json["masked"].push_back({{"position", i},
                                    {"answer", answer[size_t(i)]},
                                    {"probability", p[i * classes + answer[size_t(i)]]},
                                    {"readable", sequence[size_t((i + n / 2) % n)] != mask_token}});
      return print(json.dump() + "\n");
    }
    const bool bold = isatty(STDOUT_FILENO) && colours();
    std::string text;
    double least = 1;
    int64_t blind = 0;
    for (int64_t i = 0; i < n; ++i) {
      const bool masked = sequence[size_t(i)] == mask_token;
      const std::string symbol = std::to_string(masked ? answer[size_t(i)] : sequence[size_t(i)]);
      text += (i ? " " : "") + (masked && bold ? "\033[1;36m" + symbol + "\033[0m" : symbol);
      if (!masked) continue;
      least = std::min(least, double(p[i * classes + answer[size_t(i)]]));
      blind += sequence[size_t((i + n / 2) % n)] == mask_token;
    }
    print(text + "\n");
    char sure[96];
    std::snprintf(sure, sizeof sure, "least sure of a filled-in symbol: %.0f%%", 100 * least);
    note(blind ? concat(sure, "; ", blind, " are masked in both copies and can only be guessed") : sure, output.quiet);
  }

  std::unique_ptr<Trained> trained;
  std::vector<std::string> words;
  std::string attention;
  int64_t model_length = 0;
};

struct ReportCommand : RunCommand {
  explicit ReportCommand(CLI::App& app)
      : RunCommand(app, "report", "Write a run's report.html anew, also of one that still runs or was interrupted",
                   "copy-task report --run run --to report.html") {
    add_path(command, "--to", to, "FILE", "the file to write; by default report.html in the run's folder");
    define_common(false);
  }

  void execute() override {
    if (to.empty()) to = run + "/report.html";
    write_report(*read_run(run, output.quiet), run, to);
    print(output.json ? Json({{"report", to}}).dump() + "\n" : to + "\n");
  }

  std::string to;
};

template <class Command>
void define(CLI::App& app) {
  static std::unique_ptr<Command> command;
  command = std::make_unique<Command>(app);
}

}  // namespace

void define_evaluate(CLI::App& app) { define<EvaluateCommand>(app); }
void define_solve(CLI::App& app) { define<SolveCommand>(app); }
void define_report(CLI::App& app) { define<ReportCommand>(app); }

}  // namespace cairn::copy_task
