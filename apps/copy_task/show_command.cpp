// copy-task show: an example of the task, and what a trained model makes of it, as text.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"
#include "apps/copy_task/commands.h"
#include "apps/copy_task/report.h"
#include "apps/copy_task/run_command.h"
#include "core/ops.h"
#include "nn/attention/observe.h"
#include "nn/io/safetensors.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

// What a model makes of one sequence.
struct Answer {
  std::vector<int32_t> symbols;
  std::vector<Observation> layers;  // empty: too long for dense weights
};

Answer answer_of(Trained& trained, const Tensor& input) {
  const NoGrad no_grad;
  Generator generator(~trained.settings.train.seed);
  Answer answer;
  const auto run = [&] {
    const Variable logits = (*trained.model)(input, {false, &generator});
    answer.symbols = argmax(logits.value()).to_vector<int32_t>();
  };
  const TrainOptions& train = trained.settings.train;
  if (can_observe(train.length, train.model.heads))
    answer.layers = observe(trained.model->encoder, run);
  else
    run();
  return answer;
}

struct ShowCommand : RunCommand {
  explicit ShowCommand(CLI::App& app)
      : RunCommand(app, "show", "Show an example, and what a trained model makes of it",
                   "Examples:\n"
                   "  copy-task show --length 15\n"
                   "  copy-task show --run run --attention full",
                   "also show what this run's model answers and where it looks") {
    options.integer("length", length, 1, 1 << 12, "symbols in w; with --run, the run's");
    options.integer("example", example, 1, std::numeric_limits<int32_t>::max(), "which example");
    options.integer("seed", seed, 0, std::numeric_limits<int64_t>::max(), "names the examples");
    options.text("attention", attention, "the variant to look with; by default the run's own");
    options.integer("layer", layer, 1, 1024, "the layer to show; by default where the other copy is found");
    options.integer("head", head, 1, 1024, "the head to show, likewise");
    add_path(command, "--tensors", tensors, "FILE",
             "write q, k and v of --layer (by default the last) here, for the program attend");
    define_common(false);
  }

  void execute() override {
    check<UsageError>(!run.empty() || (attention.empty() && layer == 0 && head == 0 && tensors.empty()),
                      "--attention, --layer, --head and --tensors show a model: expected --run with it");
    std::unique_ptr<Trained> trained;
    if (!run.empty()) {
      trained = read(attention);
      const TrainOptions& train = trained->settings.train;
      check<UsageError>(length == 0 || length == train.length, "--length ", length, ": the run's model was trained on ",
                        train.length);
      check<UsageError>(layer <= train.model.layers, "--layer ", layer, ": the model has ", train.model.layers);
      check<UsageError>(head <= train.model.heads, "--head ", head, ": the model has ", train.model.heads);
      length = train.length;
    }
    if (length == 0) length = 31;
    n = sequence_length(length), half = n / 2;
    RandomStream random(uint64_t(seed), uint64_t(example), Purpose::data, 2);
    const Batch batch = make_batch(1, length, random);
    input = batch.input.to_vector<int32_t>(), target = batch.target.to_vector<int32_t>();
    Answer answer;
    if (trained) answer = answer_of(*trained, batch.input);
    if (!tensors.empty()) write_tensors(answer);
    print(output.json ? as_json(answer).dump() + "\n" : as_text(answer));
  }

  void write_tensors(const Answer& answer) const {
    check<UsageError>(!answer.layers.empty(), "--tensors: the sequence is too long for it");
    const Observation& seen = answer.layers[layer > 0 ? size_t(layer - 1) : answer.layers.size() - 1];
    TensorFile file;
    file.tensors = {{"q", seen.q}, {"k", seen.k}, {"v", seen.v}};
    file.metadata = {{"about", concat("copy-task, example ", example, ", layer ",
                                      layer > 0 ? layer : int64_t(answer.layers.size()))}};
    write_safetensors(tensors, file);
  }

  bool is_masked(int64_t i) const { return input[size_t(i)] == mask_token; }
  int64_t other(int64_t i) const { return (i + half) % n; }

  // The share of their attention that masked symbols of a head give to the same place in the other copy; 0 where
  // nothing is masked.
  double share(const Observation& seen, int64_t h) const {
    const double mean = to_other_copy(seen.weights.data<float>() + h * n * n, input);
    return std::isnan(mean) ? 0 : mean;
  }

  Json as_json(const Answer& answer) const {
    Json json = {{"input", input}, {"target", target}};
    if (answer.symbols.empty()) return json;
    json["answer"] = answer.symbols;
    for (const Observation& seen : answer.layers) {
      Json heads = Json::array();
      for (int64_t h = 0; h < seen.weights.size(1); ++h) heads.push_back(share(seen, h));
      json["attention_on_the_other_copy"].push_back(heads);
    }
    return json;
  }

  // Rows of cells, broken where the terminal ends: `names` in front, one cell a position from `begin` on.
  template <class Cell>
  std::string rows(const std::vector<std::pair<std::string, Cell>>& lines, int64_t begin, int64_t end) const {
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

  std::string as_text(const Answer& answer) const {
    using Cell = std::function<std::string(int64_t)>;
    std::vector<std::pair<std::string, Cell>> lines;
    lines.reserve(4);  // (without it GCC 12 warns of its own code)
    lines.emplace_back("input", [this](int64_t i) { return token_text(input[size_t(i)]); });
    lines.emplace_back("target", [this](int64_t i) { return token_text(target[size_t(i)]); });
    int64_t wrong = 0;
    if (!answer.symbols.empty()) {
      for (int64_t i = 0; i < n; ++i) wrong += answer.symbols[size_t(i)] != target[size_t(i)];
      lines.emplace_back("answer", [&](int64_t i) { return token_text(answer.symbols[size_t(i)]); });
      lines.emplace_back("", [&](int64_t i) { return answer.symbols[size_t(i)] != target[size_t(i)] ? "^" : ""; });
    }
    std::string text = "The two copies of w; M is masked and can be read in the other copy.\n\n" +
                       rows(lines, 0, half) + rows(lines, half, n);
    if (answer.symbols.empty()) return text;
    text += wrong ? concat(wrong, " of ", n, " wrong (marked ^).\n") : concat("All ", n, " right.\n");
    if (answer.layers.empty()) return text + "The sequence is too long to write out dense attention weights.\n";
    return text + attention_text(answer);
  }

  // Which head finds the other copy, where its masked symbols look, and how it clusters.
  std::string attention_text(const Answer& answer) const {
    const int64_t heads = answer.layers.front().weights.size(1);
    int64_t best_layer = std::max<int64_t>(layer - 1, 0), best_head = std::max<int64_t>(head - 1, 0);
    std::string text =
        "\nHow much of their attention masked symbols give to the same place in the other copy:\n\n          ";
    for (int64_t h = 0; h < heads; ++h) text += formatted("  head %-2lld", (long long)h + 1);
    for (int64_t l = 0; l < int64_t(answer.layers.size()); ++l) {
      text += formatted("\n  layer %-2lld", (long long)l + 1);
      for (int64_t h = 0; h < heads; ++h) {
        const double found = share(answer.layers[size_t(l)], h);
        text += formatted("%9.3f", found);
        const bool asked_for = (layer == 0 || l == layer - 1) && (head == 0 || h == head - 1);
        if (asked_for && found > share(answer.layers[size_t(best_layer)], best_head)) best_layer = l, best_head = h;
      }
    }
    const Observation& seen = answer.layers[size_t(best_layer)];
    text += n <= 128 ? picture(seen, best_layer, best_head)
                     : concat("\n\nWhere they look is left out: ", n,
                              " positions do not fit on a line. The run's report.html shows it.\n");
    return seen.choices["labels"].defined() ? text + clusters(seen, best_layer, best_head) : text;
  }

  std::string clusters(const Observation& seen, int64_t l, int64_t h) const {
    const int32_t* label = seen.choices["labels"].data<int32_t>() + h * n;
    using Cell = std::function<std::string(int64_t)>;
    std::vector<std::pair<std::string, Cell>> lines;
    lines.emplace_back("input", [this](int64_t i) { return token_text(input[size_t(i)]); });
    lines.emplace_back("cluster", [=](int64_t i) { return label[i] < 0 ? "-" : std::to_string(label[i] + 1); });
    return concat("\nThe clusters of layer ", l + 1, ", head ", h + 1, ":\n\n") + rows(lines, 0, half) +
           rows(lines, half, n);
  }

  // A row for each masked symbol, a column for each position.
  std::string picture(const Observation& seen, int64_t l, int64_t h) const {
    static constexpr char shades[] = " .:-=+*#%@";
    std::string text = concat("\n\nWhere the masked symbols of layer ", l + 1, ", head ", h + 1,
                              " look: a row each, a column a\nposition, from ' ' (nothing) to '@' (all).\n\n");
    const float* weights = seen.weights.data<float>() + h * n * n;
    for (int64_t i = 0; i < n; ++i) {
      if (!is_masked(i)) continue;
      text += formatted("%5lld  ", (long long)i + 1);
      int64_t maximum = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double w = weights[i * n + j];
        if (w > weights[i * n + maximum]) maximum = j;
        text += shades[std::min<int64_t>(9, int64_t(w * 10))];
      }
      text += formatted("  most at %lld (%.2f)%s\n", (long long)maximum + 1, double(weights[i * n + maximum]),
                        maximum == other(i) ? ", the other copy" : "");
    }
    return text;
  }

  std::string attention, tensors;
  int64_t length = 0, example = 1, seed = 1, layer = 0, head = 0;
  int64_t n = 0, half = 0;
  std::vector<int32_t> input, target;
};

}  // namespace

void define_show(CLI::App& app) { define<ShowCommand>(app); }

}  // namespace cairn::copy_task
