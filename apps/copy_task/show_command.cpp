// copy-task show: an example of the task, and what a trained model makes of it, as text.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/copy_task/commands.h"
#include "apps/copy_task/settings.h"
#include "core/ops.h"
#include "nn/attention/observe.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

std::string symbol(int32_t token) { return token == mask_token ? "M" : std::to_string(token); }

// What a model makes of one sequence.
struct Answer {
  std::vector<int32_t> symbols;
  std::vector<Observation> layers;
};

Answer answer_of(Trained& trained, const Tensor& input) {
  const NoGrad no_grad;
  Generator generator(~trained.settings.train.seed);
  Answer answer;
  answer.layers = observe(trained.model->encoder, [&] {
    const Variable logits = (*trained.model)(input, {false, &generator});
    answer.symbols = argmax(logits.value()).to_vector<int32_t>();
  });
  return answer;
}

struct Show {
  explicit Show(CLI::App& command_) : command(command_), options(&command_) {
    command.footer(
        "Examples:\n"
        "  copy-task show --length 15\n"
        "  copy-task show --run run --attention full");
    add_path(command, "--run", run, "DIR", "also show what this run's model answers and where it looks");
    options.integer("length", length, 1, 1 << 12, "symbols in w; with --run, the run's");
    options.integer("example", example, 1, std::numeric_limits<int32_t>::max(), "which example");
    options.integer("seed", seed, 0, std::numeric_limits<int64_t>::max(), "names the examples");
    options.text("attention", attention, "the variant to look with; by default the run's own");
    options.integer("layer", layer, 1, 1024, "the layer to show; by default where the other copy is found");
    options.integer("head", head, 1, 1024, "the head to show, likewise");
    output.define(command);
    command.callback([this] { execute(); });
  }

  void execute() {
    options.read();
    options.assign();
    check<UsageError>(!run.empty() || (attention.empty() && layer == 0 && head == 0),
                      "--attention, --layer and --head show a model: expected --run with it");
    std::unique_ptr<Trained> trained;
    if (!run.empty()) {
      trained = read_run(run, output.quiet);
      const TrainOptions& train = trained->settings.train;
      check<UsageError>(length == 0 || length == train.length, "--length ", length, ": the run's model was trained on ",
                        train.length);
      check<UsageError>(layer <= train.model.layers, "--layer ", layer, ": the model has ", train.model.layers);
      check<UsageError>(head <= train.model.heads, "--head ", head, ": the model has ", train.model.heads);
      if (!attention.empty()) trained->swap_attention(attention);
      length = train.length;
    }
    if (length == 0) length = 31;
    n = sequence_length(length), half = n / 2;
    Sequence random(uint64_t(seed), uint64_t(example), Purpose::data, 2);
    const Batch batch = make_batch(1, length, random);
    input = batch.input.to_vector<int32_t>(), target = batch.target.to_vector<int32_t>();
    Answer answer;
    if (trained) answer = answer_of(*trained, batch.input);
    print(output.json ? as_json(answer).dump() + "\n" : as_text(answer));
  }

  bool is_masked(int64_t i) const { return input[size_t(i)] == mask_token; }
  int64_t other(int64_t i) const { return (i + half) % n; }

  // The share of their attention that masked symbols of one head give to the same place in the other copy. 0 where
  // nothing is masked.
  double on_the_other_copy(const Observation& seen, int64_t h) const {
    const float* weights = seen.weights.data<float>() + h * n * n;
    double sum = 0;
    int64_t masked = 0;
    for (int64_t i = 0; i < n; ++i)
      if (is_masked(i)) sum += weights[i * n + other(i)], ++masked;
    return masked ? sum / double(masked) : 0;
  }

  Json as_json(const Answer& answer) const {
    Json json = {{"input", input}, {"target", target}};
    if (answer.symbols.empty()) return json;
    json["answer"] = answer.symbols;
    for (const Observation& seen : answer.layers) {
      Json heads = Json::array();
      for (int64_t h = 0; h < seen.weights.size(1); ++h) heads.push_back(on_the_other_copy(seen, h));
      json["attention_on_the_other_copy"].push_back(heads);
    }
    return json;
  }

  // Rows of cells, broken where the terminal ends: `names` in front, one cell a position from `begin` on.
  template <class Cell>
  std::string rows(const std::vector<std::pair<std::string, Cell>>& lines, int64_t begin, int64_t end) const {
    winsize size{};
    const int columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 100;
    const int64_t fit = (columns - 14) / 3;
    std::string text;
    char cell[64];
    for (int64_t from = begin; from < end; from += fit) {
      for (const auto& [name, of] : lines) {
        std::snprintf(cell, sizeof cell, "%12s ", name.c_str());
        std::string line = cell;
        for (int64_t i = from; i < std::min(end, from + fit); ++i) {
          std::snprintf(cell, sizeof cell, "%3s", of(i).c_str());
          line += cell;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        if (line.find_first_not_of(' ') != std::string::npos) text += line + "\n";
      }
      text += "\n";
    }
    return text;
  }

  std::string as_text(const Answer& answer) const {
    using Cell = std::function<std::string(int64_t)>;
    std::vector<std::pair<std::string, Cell>> lines;
    lines.emplace_back("input", [this](int64_t i) { return symbol(input[size_t(i)]); });
    lines.emplace_back("target", [this](int64_t i) { return symbol(target[size_t(i)]); });
    int64_t wrong = 0;
    if (!answer.symbols.empty()) {
      for (int64_t i = 0; i < n; ++i) wrong += answer.symbols[size_t(i)] != target[size_t(i)];
      lines.emplace_back("answer", [&](int64_t i) { return symbol(answer.symbols[size_t(i)]); });
      lines.emplace_back("", [&](int64_t i) { return answer.symbols[size_t(i)] != target[size_t(i)] ? "^" : ""; });
    }
    std::string text = "The two copies of w; M is masked and can be read in the other copy.\n\n" +
                       rows(lines, 0, half) + rows(lines, half, n);
    if (answer.symbols.empty()) return text;
    text += wrong ? concat(wrong, " of ", n, " wrong (marked ^).\n") : concat("All ", n, " right.\n");
    return text + attention_text(answer);
  }

  // Which head finds the other copy, where its masked symbols look, and how it clusters.
  std::string attention_text(const Answer& answer) const {
    const int64_t heads = answer.layers.front().weights.size(1);
    int64_t best_layer = 0, best_head = 0;
    std::string text =
        "\nHow much of their attention masked symbols give to the same place in the other copy:\n\n          ";
    char cell[64];
    for (int64_t h = 0; h < heads; ++h) {
      std::snprintf(cell, sizeof cell, "  head %-2lld", (long long)h + 1);
      text += cell;
    }
    for (size_t l = 0; l < answer.layers.size(); ++l) {
      std::snprintf(cell, sizeof cell, "\n  layer %-2zu", l + 1);
      text += cell;
      for (int64_t h = 0; h < heads; ++h) {
        const double share = on_the_other_copy(answer.layers[l], h);
        std::snprintf(cell, sizeof cell, "%9.3f", share);
        text += cell;
        if (share > on_the_other_copy(answer.layers[size_t(best_layer)], best_head))
          best_layer = int64_t(l), best_head = h;
      }
    }
    if (layer) best_layer = layer - 1;
    if (head) best_head = head - 1;
    const Observation& seen = answer.layers[size_t(best_layer)];
    if (n <= 128) text += picture(seen, best_layer, best_head);
    if (seen.choices.labels.defined()) {
      const int32_t* label = seen.choices.labels.data<int32_t>() + best_head * n;
      using Cell = std::function<std::string(int64_t)>;
      std::vector<std::pair<std::string, Cell>> lines;
      lines.emplace_back("input", [this](int64_t i) { return symbol(input[size_t(i)]); });
      lines.emplace_back("cluster", [=](int64_t i) { return label[i] < 0 ? "-" : std::to_string(label[i] + 1); });
      text += concat("\nThe clusters of layer ", best_layer + 1, ", head ", best_head + 1, ":\n\n") +
              rows(lines, 0, half) + rows(lines, half, n);
    }
    return text;
  }

  // A row for each masked symbol, a column for each position.
  std::string picture(const Observation& seen, int64_t l, int64_t h) const {
    static constexpr char shades[] = " .:-=+*#%@";
    std::string text = concat("\n\nWhere the masked symbols of layer ", l + 1, ", head ", h + 1,
                              " look: a row each, a column a\nposition, from ' ' (nothing) to '@' (all).\n\n");
    char cell[64];
    const float* weights = seen.weights.data<float>() + h * n * n;
    for (int64_t i = 0; i < n; ++i) {
      if (!is_masked(i)) continue;
      std::snprintf(cell, sizeof cell, "%5lld  ", (long long)i + 1);
      text += cell;
      int64_t most = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double w = weights[i * n + j];
        if (w > weights[i * n + most]) most = j;
        text += shades[std::min<int64_t>(9, int64_t(w * 10))];
      }
      std::snprintf(cell, sizeof cell, "  most at %lld (%.2f)%s\n", (long long)most + 1, double(weights[i * n + most]),
                    most == other(i) ? ", the other copy" : "");
      text += cell;
    }
    return text;
  }

  CLI::App& command;
  Options options;
  OutputOptions output;
  std::string run, attention;
  int64_t length = 0, example = 1, seed = 1, layer = 0, head = 0;
  int64_t n = 0, half = 0;
  std::vector<int32_t> input, target;
};

}  // namespace

void define_show(CLI::App& app) {
  static std::unique_ptr<Show> command;
  command =
      std::make_unique<Show>(*app.add_subcommand("show", "Show an example, and what a trained model makes of it"));
}

}  // namespace cairn::copy_task
