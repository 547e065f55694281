// copy-task show: an example of the task or a sequence that is given, and what a trained model makes of it, as text.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/run.h"
#include "nn/io/json.h"
#include "nn/io/safetensors.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

// A name, and the text at each position.
using Lines = std::vector<std::pair<std::string, std::function<std::string(int64_t)>>>;

// Rows of cells, broken where the terminal ends: names in front, one cell a position from `begin` on.
std::string rows(const Lines& lines, int64_t begin, int64_t end) {
  winsize size{};
  const int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 100;
  int width = 3;
  for (const auto& [name, of] : lines)
    for (int64_t i = begin; i < end; ++i) width = std::max(width, int(of(i).size()) + 1);
  const int64_t fit = (columns - 14) / width;
  std::string text;
  for (int64_t from = begin; from < end; from += fit) {
    for (const auto& [name, of] : lines) {
      std::string line = formatted("%12s ", name.c_str());
      for (int64_t i = from; i < std::min(end, from + fit); ++i) line += formatted("%*s", width, of(i).c_str());
      line.erase(line.find_last_not_of(' ') + 1);
      if (line.find_first_not_of(' ') != std::string::npos) text += line + "\n";
    }
    text += "\n";
  }
  return text;
}

std::string both_copies(const Example& example, const Lines& lines) {
  return rows(lines, 0, example.size() / 2) + rows(lines, example.size() / 2, example.size());
}

// The share of their attention that masked symbols of a head give to the same place in the other copy; 0 where nothing
// is masked.
double other_copy_share(const Example& example, const Observation& seen, int64_t head) {
  const double mean = to_other_copy(seen.weights.data<float>() + head * example.size() * example.size(), example.input);
  return std::isnan(mean) ? 0 : mean;
}

// A row for each masked symbol, a column for each position.
std::string weights_text(const Example& example, const float* weights) {
  static constexpr char shades[] = " .:-=+*#%@";
  const int64_t n = example.size();
  std::string text;
  for (int64_t i = 0; i < n; ++i) {
    if (!example.is_masked(i)) continue;
    text += formatted("%5lld  ", (long long)i + 1);
    const float* row = weights + i * n;
    for (int64_t j = 0; j < n; ++j) text += shades[std::min<int64_t>(9, int64_t(double(row[j]) * 10))];
    const int64_t maximum = std::max_element(row, row + n) - row;
    text += formatted("  most at %lld (%.2f)%s\n", (long long)maximum + 1, double(row[maximum]),
                      maximum == example.other(i) ? ", the other copy" : "");
  }
  return text;
}

// Which head finds the other copy, where its masked symbols look, and how it clusters.
std::string attention_text(const Example& example, int64_t layer, int64_t head) {
  const int64_t n = example.size(), heads = example.layers.front().weights.size(1);
  int64_t best_layer = std::max<int64_t>(layer - 1, 0), best_head = std::max<int64_t>(head - 1, 0);
  std::string text =
      "\nHow much of their attention masked symbols give to the same place in the other copy:\n\n          ";
  for (int64_t h = 0; h < heads; ++h) text += formatted("  head %-2lld", (long long)h + 1);
  for (int64_t l = 0; l < int64_t(example.layers.size()); ++l) {
    text += formatted("\n  layer %-2lld", (long long)l + 1);
    for (int64_t h = 0; h < heads; ++h) {
      const double found = other_copy_share(example, example.layers[size_t(l)], h);
      text += formatted("%9.3f", found);
      const bool asked_for = (layer == 0 || l == layer - 1) && (head == 0 || h == head - 1);
      if (asked_for && found > other_copy_share(example, example.layers[size_t(best_layer)], best_head))
        best_layer = l, best_head = h;
    }
  }
  const Observation& seen = example.layers[size_t(best_layer)];
  const std::string which = concat("layer ", best_layer + 1, ", head ", best_head + 1);
  if (n <= 128)
    text += concat("\n\nWhere the masked symbols of ", which,
                   " look: a row each, a column a\nposition, from ' ' (nothing) to '@' (all).\n\n",
                   weights_text(example, seen.weights.data<float>() + best_head * n * n));
  else
    text += concat("\n\nWhere they look is left out: ", n,
                   " positions do not fit on a line. The run's report.html shows it.\n");
  if (!seen.choices["labels"].defined()) return text;
  const int32_t* label = seen.choices["labels"].data<int32_t>() + best_head * n;
  return concat(text, "\nThe clusters of ", which, ":\n\n",
                both_copies(example, {{"input", [&](int64_t i) { return token_text(example.input[size_t(i)]); }},
                                      {"cluster",
                                       [=](int64_t i) { return label[i] < 0 ? "-" : std::to_string(label[i] + 1); }}}));
}

// Input and target; with an answer that too, how much each head looks at the other copy, and what one head does: the
// one that looks there most, of this layer and head where they are given (from 1; 0: of all).
std::string example_text(const Example& example, int64_t layer, int64_t head) {
  const int64_t n = example.size();
  Lines lines{{"input", [&](int64_t i) { return token_text(example.input[size_t(i)]); }},
              {"target", [&](int64_t i) { return token_text(example.target[size_t(i)]); }}};
  const bool answered = !example.answer.empty();
  int64_t wrong = 0;
  if (answered) {
    for (int64_t i = 0; i < n; ++i) wrong += !example.is_right(i);
    lines.emplace_back("answer", [&](int64_t i) { return token_text(example.answer[size_t(i)]); });
    lines.emplace_back("", [&](int64_t i) { return example.is_right(i) ? "" : "^"; });
  }
  std::string text =
      "The two copies of w; M is masked and can be read in the other copy.\n\n" + both_copies(example, lines);
  if (!answered) return text;
  text += wrong ? concat(wrong, " of ", n, " wrong (marked ^).\n") : concat("All ", n, " right.\n");
  if (example.layers.empty()) return text + "The sequence is too long to write out dense attention weights.\n";
  return text + attention_text(example, layer, head);
}

// A masked sequence as a person writes it, such as 0 3 M 7 0 3 5 M, as the copy task has it: a symbol that is masked in
// one copy stands in the other. Error (UsageError): it is none, or not of this length.
Batch read_sequence(const std::vector<std::string>& words, int64_t length) {
  std::string text;
  for (const std::string& word : words) text += word + ' ';
  std::vector<int32_t> input;
  std::istringstream symbols_of(text);
  for (std::string word; symbols_of >> word;) {
    int32_t symbol = word == "M" ? mask_token : -1;
    const char* end = word.data() + word.size();
    if (symbol < 0 && std::from_chars(word.data(), end, symbol).ptr != end) symbol = -1;
    check<UsageError>(word == "M" || (symbol >= 0 && symbol <= symbols), "SEQUENCE: symbol ", input.size() + 1,
                      ": expected a number from 0 to ", symbols, " or M for a masked one, got ", in_quotes(word),
                      "; separate symbols by spaces");
    input.push_back(symbol);
  }
  const int64_t n = sequence_length(length), half = n / 2;
  check<UsageError>(int64_t(input.size()) == n, "SEQUENCE: expected the ", n, " symbols 0w0w with ", length,
                    " symbols in w, as the run was trained on, got ", input.size());
  const auto where = [](int64_t i) { return concat("SEQUENCE: symbol ", i + 1, ": "); };
  for (int64_t i = 0; i < n; ++i)
    check<UsageError>((input[size_t(i)] == separator) == (i % half == 0), where(i), "expected ",
                      i % half == 0 ? "the separator 0" : "a symbol from 1 to 10 or M", ", got ",
                      token_text(input[size_t(i)]));
  std::vector<int32_t> target = input;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t symbol = input[size_t(i)], other = input[size_t((i + half) % n)];
    if (symbol == mask_token) {
      check<UsageError>(other != mask_token, where(i), "is masked in both copies; leave it unmasked in one");
      target[size_t(i)] = other;
    } else {
      check<UsageError>(other == mask_token || other == symbol, where(i), "expected the same as in the other copy, ",
                        token_text(other), ", got ", token_text(symbol));
    }
  }
  return {Tensor::from(input, {1, n}), Tensor::from(target, {1, n})};
}

struct ShowCommand : Command {
  ShowCommand()
      : Command("show", "Show an example, or a sequence of yours, and what a trained model makes of it",
                "Examples:\n"
                "  copy-task show --length 15\n"
                "  copy-task show --run run --attention full\n"
                "  copy-task train --quick --length 7 --out short\n"
                "  copy-task show --run short 0 3 M 7 9 1 M 2 0 3 5 7 M 1 4 2     it fills in each M\n\n"
                "A sequence is 0w0w with symbols from 1 to 10 in w, of the length that the run was trained\n"
                "on. What is masked in one copy must stand in the other.") {}

  void fields(SettingFields& f) override {
    f.words("SEQUENCE", words, "with --run: symbols separated by spaces, masked ones as M");
    run_.fields(f, "also show what this run's model answers and where it looks");
    f("length", length, {1, 1 << 12}, "symbols in w; with --run, the run's");
    f("example", example, {1, max_steps}, "which example");
    f("seed", seed, {0, std::numeric_limits<int64_t>::max()}, "names the examples");
    f("attention", attention, Text::variant, "the variant to look with; by default the run's own");
    f("layer", layer, {1, 1024}, "the layer to show; by default where the other copy is found");
    f("head", head, {1, 1024}, "the head to show, likewise");
    f("tensors", tensors, Text::file, "write q, k and v of --layer (by default the last) here, for the program attend",
      Keep::no);
  }

  void run(Communicator&) override {
    const bool has_run = !run_.folder.empty();
    check<UsageError>(has_run || (attention.empty() && layer == 0 && head == 0 && tensors.empty() && words.empty()),
                      "a sequence, --attention, --layer, --head and --tensors are for a model: expected --run with it");
    check<UsageError>(words.empty() || (!given("example") && !given("seed")),
                      "--example and --seed name an example: leave them out, or the sequence");
    std::optional<Trained> trained;
    if (has_run) {
      trained = run_.read();
      read_of_run(*trained);
    }
    if (length == 0) length = 31;
    RandomStream random(uint64_t(seed), uint64_t(example), Purpose::data, 2);
    const Batch batch = words.empty() ? make_batch(1, length, random) : read_sequence(words, length);
    const Example shown = trained
                              ? run_example(*trained->model, batch, uint64_t(trained->settings.compute.seed))
                              : Example{batch.input.to_vector<int32_t>(), batch.target.to_vector<int32_t>(), {}, {}};
    if (!tensors.empty()) write_tensors(shown);
    tell(as_json(shown), example_text(shown, layer, head));
  }

  // What is asked for must be the model's.
  void read_of_run(Trained& trained) {
    if (!attention.empty()) about_option("--attention", [&] { trained.swap_attention(attention); });
    note_if_full(trained.attention(), trained.positions(), trained.positions(), quiet);
    const Settings& settings = trained.settings;
    check<UsageError>(length == 0 || length == settings.length, "--length ", length,
                      ": the run's model was trained on ", settings.length);
    check<UsageError>(layer <= settings.model.layers, "--layer ", layer, ": the model has ", settings.model.layers);
    check<UsageError>(head <= settings.model.heads, "--head ", head, ": the model has ", settings.model.heads);
    length = settings.length;
  }

  void write_tensors(const Example& shown) const {
    check<UsageError>(!shown.layers.empty(), "--tensors: the sequence is too long for it");
    const int64_t which = layer > 0 ? layer : int64_t(shown.layers.size());
    const Observation& seen = shown.layers[size_t(which - 1)];
    TensorFile file;
    file.tensors = {{"q", seen.q}, {"k", seen.k}, {"v", seen.v}};
    file.metadata = {{"about", concat("copy-task show, layer ", which)}};
    write_safetensors(tensors, file);
  }

  static Json as_json(const Example& shown) {
    Json json = {{"input", shown.input}, {"target", shown.target}};
    if (shown.answer.empty()) return json;
    json["answer"] = shown.answer;
    for (const Observation& seen : shown.layers) {
      Json heads = Json::array();
      for (int64_t h = 0; h < seen.weights.size(1); ++h) heads.push_back(other_copy_share(shown, seen, h));
      json["attention_on_the_other_copy"].push_back(heads);
    }
    return json;
  }

  RunSettings run_;
  std::vector<std::string> words;
  std::string attention, tensors;
  int64_t length = 0, example = 1, seed = 1, layer = 0, head = 0;
};

}  // namespace

std::unique_ptr<Command> make_show() { return std::make_unique<ShowCommand>(); }

}  // namespace cairn::copy_task
