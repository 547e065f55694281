// copy-task solve: masked sequences that a person types, filled in by a trained run.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/saved_run_command.h"
#include "core/ops.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

// A masked sequence as a person writes it: "0 3 M 7 0 3 5 M". Errors (UsageError): what it is not.
std::vector<int32_t> read_sequence(const std::string& line) {
  constexpr const char* between = " ,\t\r\n\v\f";
  std::vector<int32_t> sequence;
  for (size_t begin = 0, end; (begin = line.find_first_not_of(between, begin)) < line.size(); begin = end) {
    end = std::min(line.find_first_of(between, begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    if (word == "M" || word == "m" || word == "?" || word == "_") {
      sequence.push_back(mask_token);
      continue;
    }
    int32_t value = -1;
    const char* behind = std::from_chars(word.data(), word.data() + word.size(), value).ptr;
    check<UsageError>(behind == word.data() + word.size() && value >= 0 && value <= symbols, "symbol ",
                      sequence.size() + 1, ": expected a number from 0 to ", symbols, " or M for a masked one, got ",
                      in_quotes(word), "; separate symbols by spaces");
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

// What a model makes of a masked sequence.
struct Solution {
  std::vector<int32_t> sequence, argmax;  // as given; what the model writes at each position
  std::vector<float> probability;         // of that

  int64_t size() const { return int64_t(sequence.size()); }
  bool is_masked(int64_t i) const { return sequence[size_t(i)] == mask_token; }
  // Does the symbol stand in the other copy?
  bool is_readable(int64_t i) const { return !is_masked((i + size() / 2) % size()); }
  // The sequence with its masked symbols filled in.
  int32_t answer(int64_t i) const { return (is_masked(i) ? argmax : sequence)[size_t(i)]; }
};

Json as_json(const Solution& solution) {
  Json json = {{"answer", Json::array()}, {"argmax", solution.argmax}, {"masked", Json::array()}};
  for (int64_t i = 0; i < solution.size(); ++i) {
    json["answer"].push_back(solution.answer(i));
    if (solution.is_masked(i))
      json["masked"].push_back({{"position", i},
                                {"answer", solution.answer(i)},
                                {"probability", solution.probability[size_t(i)]},
                                {"readable", solution.is_readable(i)}});
  }
  return json;
}

// The sequence filled in, what was filled in standing out on a terminal.
std::string as_text(const Solution& solution) {
  const bool bold = isatty(STDOUT_FILENO) && colors();
  std::string text;
  for (int64_t i = 0; i < solution.size(); ++i) {
    const std::string symbol = token_text(solution.answer(i));
    text += (i ? " " : "") + (solution.is_masked(i) && bold ? "\033[1;36m" + symbol + "\033[0m" : symbol);
  }
  return text + "\n";
}

// How far to trust it.
std::string certainty(const Solution& solution) {
  double minimum = 1;
  int64_t masked = 0, blind = 0;
  for (int64_t i = 0; i < solution.size(); ++i) {
    if (!solution.is_masked(i)) continue;
    ++masked, blind += !solution.is_readable(i);
    minimum = std::min(minimum, double(solution.probability[size_t(i)]));
  }
  if (masked == 0) return "nothing is masked, so nothing was filled in";
  const std::string sure = formatted("least sure of a filled-in symbol: %.0f%%", 100 * minimum);
  return blind ? concat(sure, "; ", blind, " are masked in both copies and can only be guessed") : sure;
}

// A masked sequence of the task, as a person would type it.
std::string example_of(int64_t length) {
  RandomStream random(1, 0, Purpose::data, 2);
  std::string text;
  for (int32_t token : make_batch(1, length, random).input.to_vector<int32_t>()) {
    if (!text.empty()) text += ' ';
    text += token_text(token);
  }
  return text;
}

struct SolveCommand : SavedRunCommand {
  explicit SolveCommand(CLI::App& app)
      : SavedRunCommand(
            app, "solve", "Fill in masked sequences that you type, or that stand in a file",
            "Examples:\n"
            "  copy-task solve --run run                        lines are read, and asked for on a terminal\n"
            "  copy-task solve --run run 0 3 M 7 0 M 5 7        one sequence: 0w0w, symbols separated by spaces\n"
            "  copy-task solve --run run --attention full <sequences.txt\n\n"
            "A model answers sequences of the length that it was trained on best: 64 symbols with --quick.\n\n"
            "--json prints an object for each sequence: \"answer\", the sequence filled in; \"argmax\", what the\n"
            "model would write at every position; \"masked\", for each masked symbol its position (from 0), the\n"
            "answer, its probability, and whether it is readable: stands in the other copy.") {
    add_words(command, "sequence", words,
              "0w0w with symbols 1..10, masked ones as M (or m, ?, _); without it, lines are read");
    options.text("attention", attention, "the variant to solve with; by default the run's own");
    define_common();
  }

  void execute() override {
    trained = read(attention);
    trained_length = model_length = trained->settings.train.length;
    if (words.empty()) return solve_lines();
    std::string line;
    for (const std::string& word : words) line += word + " ";
    solve(line);
  }

  void solve_lines() {
    const bool person = isatty(STDIN_FILENO);
    if (person)
      note(
          concat("A sequence is 0w0w; in each copy some symbols are M, to be read in the other. This model was trained "
                 "on ",
                 sequence_length(trained_length), " symbols, separated by spaces, for example\n",
                 example_of(trained_length), "\nEnd with Ctrl-D."),
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
    const Solution solution = solution_of(read_sequence(line));
    if (output.json) return print(as_json(solution).dump() + "\n");
    print(as_text(solution));
    note(certainty(solution), output.quiet);
  }

  Solution solution_of(const std::vector<int32_t>& sequence) {
    const int64_t n = int64_t(sequence.size());
    fit_model(n / 2 - 1);
    const NoGrad no_grad;
    Generator generator(~trained->settings.train.seed);
    const Tensor input = Tensor::from(sequence, {1, n});
    const Tensor probabilities = softmax((*trained->model)(input, {false, &generator}).value());
    Solution solution{sequence, argmax(probabilities).to_vector<int32_t>(), {}};
    const float* p = probabilities.data<float>();
    for (int64_t i = 0; i < n; ++i) solution.probability.push_back(p[i * classes + solution.argmax[size_t(i)]]);
    return solution;
  }

  // Positions are no weights: a model of another length has the same.
  void fit_model(int64_t length) {
    if (length == model_length) return;
    if (length != trained_length)
      note(concat("trained on ", sequence_length(trained_length), " symbols, asked for ", sequence_length(length),
                  ": positions it has not learned, so do not expect much"),
           output.quiet);
    trained->set_length(length);
    if (!attention.empty()) trained->swap_attention(attention);
    model_length = length;
  }

  std::unique_ptr<Trained> trained;
  std::vector<std::string> words;
  std::string attention;
  int64_t trained_length = 0, model_length = 0;
};

}  // namespace

void define_solve(CLI::App& app) { define_command<SolveCommand>(app); }

}  // namespace cairn::copy_task
