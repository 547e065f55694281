// copy-task show: an example of the task or the user's sequence, and a trained model's answer and attention, as text.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/train.h"
#include "nn/io/json.h"
#include "nn/io/safetensors.h"

namespace cairn::copy_task {
namespace {

// Each copy, 16 positions per line: the input, the target and, if there is one, the answer. Above them, if there is
// one, the copy that they attend to.
std::string sequence_text(const Example& example) {
  const bool answered = !example.answer.empty();
  const int64_t size = example.copy_size(), width = 16;
  std::string text;
  for (int64_t copy = 0; copy < example.size(); copy += size)
    for (int64_t begin = copy; begin < copy + size; begin += width) {
      std::string memory, input = "       input", target = "      target", answer = "      answer",
                          wrong = "            ";
      for (int64_t i = begin; i < std::min(begin + width, copy + size); ++i) {
        if (!example.memory.empty()) memory += formatted("%3s", token_text(example.memory[size_t(i)]).c_str());
        input += formatted("%3s", token_text(example.input[size_t(i)]).c_str());
        target += formatted("%3s", token_text(example.target[size_t(i)]).c_str());
        if (!answered) continue;
        answer += formatted("%3s", token_text(example.answer[size_t(i)]).c_str());
        wrong += example.is_right(i) ? "   " : "  ^";
      }
      if (!memory.empty()) text += "  other copy" + memory + "\n";
      text += input + "\n" + target + "\n";
      if (answered) text += answer + "\n";
      if (wrong.find('^') != std::string::npos) text += wrong + "\n";
      text += "\n";
    }
  return text;
}

// A table with the attention of each head to the other copy.
std::string attention_text(const Example& example) {
  const auto shares = other_copy_shares(example);
  if (std::isnan(shares[0][0])) return "";  // nothing is masked
  std::string text = "\nMean attention of masked positions to the same place in the other copy:\n\n          ";
  for (size_t h = 0; h < shares[0].size(); ++h) text += formatted("  head %-2zu", h + 1);
  for (size_t l = 0; l < shares.size(); ++l) {
    text += formatted("\n  layer %-2zu", l + 1);
    for (const double share : shares[l]) text += formatted("%9.3f", share);
  }
  return text + "\n";
}

// The sequence and, if there is an answer, its errors and the model's attention.
std::string example_text(const Example& example) {
  std::string text = "The two copies; M is masked, and the other copy has the symbol.\n\n" + sequence_text(example);
  if (example.answer.empty()) return text;
  const int64_t n = example.size();
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong += !example.is_right(i);
  text += wrong ? concat(wrong, " of ", n, " wrong (marked ^).\n") : concat("All ", n, " right.\n");
  if (example.layers.empty()) return text + "The sequence is too long to show attention weights.\n";
  return text + attention_text(example);
}

// Reads a masked sequence such as 0 3 M 7 0 3 5 M. Its target has the symbols of the other copy for M. Error
// (UsageError): it is not a sequence of the task, or not of this length.
Batch read_sequence(const std::vector<std::string>& words, int64_t length) {
  std::string text;
  for (const std::string& word : words) text += word + ' ';
  std::vector<int32_t> input, target;
  std::istringstream symbols_of(text);
  for (std::string word; symbols_of >> word;) {
    int32_t symbol = 0;
    while (symbol < tokens && token_text(symbol) != word) ++symbol;
    check<UsageError>(symbol < tokens, "SEQUENCE: symbol ", input.size() + 1, ": expected a number from 0 to ", symbols,
                      " or M for a masked one, got ", in_quotes(word), "; separate symbols by spaces");
    input.push_back(symbol);
  }
  const int64_t n = sequence_length(length), half = n / 2;
  check<UsageError>(int64_t(input.size()) == n, "SEQUENCE: expected the ", n, " symbols 0w0w with ", length,
                    " symbols in w, as the run was trained on, got ", input.size());
  for (int64_t i = 0; i < n; ++i) {
    const int32_t symbol = input[size_t(i)], other = input[size_t((i + half) % n)];
    const std::string where = concat("SEQUENCE: symbol ", i + 1, ": ");
    check<UsageError>((symbol == separator) == (i % half == 0), where, "expected ",
                      i % half == 0 ? "the separator 0" : "a symbol from 1 to 10 or M", ", got ", token_text(symbol));
    check<UsageError>(symbol != mask_token || other != mask_token, where,
                      "is masked in both copies; leave it unmasked in one");
    check<UsageError>(symbol == other || symbol == mask_token || other == mask_token, where,
                      "expected the same as in the other copy, ", token_text(other), ", got ", token_text(symbol));
    target.push_back(symbol == mask_token ? other : symbol);
  }
  return {Tensor::from(input, {1, n}), Tensor::from(target, {1, n})};
}

Json as_json(const Example& shown) {
  Json json = {{"input", shown.input}, {"target", shown.target}};
  if (shown.answer.empty()) return json;
  json["answer"] = shown.answer;
  if (!shown.layers.empty()) json["attention_on_the_other_copy"] = other_copy_shares(shown);
  return json;
}

// Writes q, k and v of a layer; 0: the last. Error (UsageError): the weights were not kept.
void write_tensors(const std::string& file, const Example& shown, int64_t layer) {
  check<UsageError>(!shown.layers.empty(), "--tensors: the sequence is too long");
  const int64_t which = layer > 0 ? layer : int64_t(shown.layers.size());
  const Observation& seen = shown.layers[size_t(which - 1)];
  write_safetensors(
      file, {{{"q", seen.q}, {"k", seen.k}, {"v", seen.v}}, {{"about", concat("copy-task show, layer ", which)}}, {}});
}

}  // namespace

void show_command(CommandLine& line) {
  std::vector<std::string> words;
  std::string folder, tensors;
  int64_t length = 0, example = 1, layer = 0;
  line.words("SEQUENCE", words, "with --run: symbols of your own, separated by spaces; M is a masked one");
  line("run", folder, Text::folder, "also show the answer of this run's model, and its attention", Keep::not_in_config);
  line.threads();
  line("length", length, {0, 1 << 12}, "symbols in each copy; 0: 31, or with --run as in the run");
  line("example", example, {1, max_steps}, "number of the example, without a SEQUENCE");
  line("tensors", tensors, Text::file, "write q, k and v of a layer to this file, as input for attend",
       Keep::not_in_config);
  line("layer", layer, {0, 1024}, "the layer of --tensors; 0: the last");
  line.footer(
      "Examples:\n"
      "  copy-task show --length 15\n"
      "  copy-task show --run run --example 3\n"
      "  copy-task train --quick --length 7 --out short\n"
      "  copy-task show --run short 0 3 M 7 9 1 M 2 0 3 5 7 M 1 4 2     it fills in each M\n\n"
      "A sequence is 0w0w with symbols from 1 to 10 in w, of the length that the run was trained\n"
      "on. A symbol that is masked in one copy must be visible in the other.");
  line.parse();
  check<UsageError>(!folder.empty() || (tensors.empty() && words.empty()),
                    "expected --run with a run's folder: a sequence and --tensors need a model");
  std::optional<SavedRun> run;
  if (!folder.empty()) {
    run.emplace("--run", folder);
    note(run->model->full_note(), line.quiet);
    const Settings& settings = run->settings;
    check<UsageError>(length == 0 || length == settings.length, "--length ", length, ": the run has --length ",
                      settings.length);
    check<UsageError>(layer <= settings.model.layers, "--layer ", layer, ": the run has --layers ",
                      settings.model.layers);
    length = settings.length;
  }
  if (length == 0) length = 31;
  RandomStream random(1, uint64_t(example), Purpose::data, displayed_data);
  const Batch batch =
      words.empty() ? make_batch(1, length, random, run && run->model->causal) : read_sequence(words, length);
  Example shown{batch.input.to_vector<int32_t>(), batch.target.to_vector<int32_t>()};
  if (run) shown = run_example(*run->model, batch, uint64_t(run->settings.compute.seed));
  if (!tensors.empty()) write_tensors(tensors, shown, layer);
  line.tell(as_json(shown), example_text(shown));
}

}  // namespace cairn::copy_task
