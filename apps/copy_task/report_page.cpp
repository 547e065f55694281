// The report of a training run, as a page.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/train.h"
#include "nn/io/json.h"

namespace cairn::copy_task {
namespace {

using svg::number;

std::string percent(double value) { return number(value, true); }

// Positions in rows of at most 32.
using Rows = std::vector<std::vector<int64_t>>;
constexpr int64_t row_length = 32;

// A row of the first copy, and below it the same places of the second, if both are answered.
Rows by_position(const Example& example) {
  Rows rows;
  const int64_t size = example.copy_size();
  for (int64_t begin = 0; begin < size; begin += row_length)
    for (int64_t copy = 0; copy < example.size(); copy += size) {
      rows.emplace_back(size_t(std::min(row_length, size - begin)));
      std::iota(rows.back().begin(), rows.back().end(), copy + begin);
    }
  return rows;
}

// Rows of one token each, sorted by cluster.
Rows by_token(const std::vector<int32_t>& tokens, const int32_t* labels) {
  std::vector<int64_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::pair(tokens[size_t(a)], labels[a]) < std::pair(tokens[size_t(b)], labels[b]);
  });
  Rows rows;
  for (const int64_t i : order) {
    const bool goes_on = !rows.empty() && tokens[size_t(rows.back().back())] == tokens[size_t(i)];
    if (!goes_on || int64_t(rows.back().size()) == row_length) rows.emplace_back();
    rows.back().push_back(i);
  }
  return rows;
}

// a, b, ... z, aa, ab, ...
std::string letters(int cluster) {
  if (cluster < 0) return "";
  return (cluster >= 26 ? letters(cluster / 26 - 1) : std::string()) + char('a' + cluster % 26);
}

// Each position's token, with the color and the letter of its cluster unless it is alone in it.
std::string draw_clusters(const std::string& title, const Example& example, const int32_t* labels, const Rows& rows) {
  svg::Cells cells{title, "", {}};
  for (const std::vector<int64_t>& row : rows) {
    cells.rows.push_back({"", {}});
    for (const int64_t i : row) {
      const bool is_alone = std::count(labels, labels + example.size(), labels[i]) == 1;
      const int cluster = is_alone ? -1 : labels[i];
      cells.rows.back().cells.push_back(
          {token_text(example.input[size_t(i)]), svg::category(cluster), letters(cluster)});
    }
  }
  return svg::draw(cells);
}

// The head of a layer that is drawn: the one that attends most to the other copy.
int64_t drawn_head(const std::vector<double>& shares) {
  return std::max_element(shares.begin(), shares.end()) - shares.begin();
}

std::string name_of(size_t layer, int64_t head) { return concat("Layer ", layer + 1, ", head ", head + 1); }

void write_example(Report& page, const Example& example) {
  page.section("One example");
  const int64_t size = example.copy_size();
  std::string caption =
      "A fresh sequence. M is masked; the other copy has the symbol in the same place. Right answers to masked symbols "
      "are outlined, wrong answers are filled.";
  Rows rows = by_position(example);
  constexpr size_t most = 4;
  if (rows.size() > most) {
    rows.resize(most);
    caption += concat(" The picture shows the first ", 2 * row_length, " of ", size, " places of each copy.");
  }
  svg::Cells cells{"One sequence: input, target and answer", "Both copies, aligned.", {}};
  for (const std::vector<int64_t>& row : rows) {
    if (!example.memory.empty()) {
      svg::CellRow memory{"copy 1: input", {}, !cells.rows.empty()};
      for (const int64_t i : row) memory.cells.push_back({token_text(example.memory[size_t(i)]), "cell"});
      cells.rows.push_back(memory);
    }
    const bool is_first = example.memory.empty() && row[0] < size;
    svg::CellRow input{is_first ? "copy 1: input" : "copy 2: input", {}, !cells.rows.empty()};
    svg::CellRow target{"target", {}}, answer{"answer", {}};
    for (const int64_t i : row) {
      const bool is_masked = example.is_masked(i);
      input.cells.push_back({token_text(example.input[size_t(i)]), is_masked ? "hidden" : "cell"});
      target.cells.push_back({token_text(example.target[size_t(i)]), "cell"});
      answer.cells.push_back({token_text(example.answer[size_t(i)]), !example.is_right(i) ? "wrong"
                                                                     : is_masked          ? "found"
                                                                                          : "cell"});
    }
    cells.rows.insert(cells.rows.end(), {input, target, answer});
  }
  page.figure({svg::draw(cells), caption});
}

void write_attention(Report& page, const std::string& attention, const Example& example) {
  page.section("What the attention looks at");
  if (example.layers.empty()) return page.text("The sequences are too long to show attention weights.");
  page.text(concat(
      "Attention weights of the trained model on the example above: those of ", attention,
      ", beside those of full attention on the same queries and keys. For each layer, the maps show the head whose "
      "masked positions attend most to the same place in the other copy."));
  const std::string reading = concat(
      "How to read a map: each row is a query position, each column a key position; a row sums to 100%. ",
      example.memory.empty()
          ? "On the main diagonal, a position attends to itself. Halfway between it and each corner lies another "
            "diagonal. There, a position attends to the same place in the other copy."
          : "Queries are of the second copy, keys of the first. On the diagonal, both have the same place.");
  write_attention_maps(page, attention, example.layers, other_copy_shares(example), "Weight on the other copy",
                       reading);
}

// What a row of the table says. near and token: how many times as often as any pair such pairs share a cluster. apart:
// the share of a cluster's pairs that the next layer takes apart, and by chance.
std::string answer(double near, double token, double apart, double chance) {
  constexpr double clear = 1.5;
  if (std::isnan(near) || std::isnan(token)) return "no answer.";
  const char* const by = near < clear && token < clear ? "neither proximity nor content"
                         : near > clear * token        ? "proximity"
                         : token > clear * near        ? "content"
                                                       : "proximity and content alike";
  std::string text = concat(by, ": near positions share a cluster ", number(near),
                            " times as often as any pair, the same tokens ", number(token), " times.");
  if (!std::isnan(apart))
    text += concat(" The next layer takes ", percent(apart), " of the pairs apart, where chance would take ",
                   percent(chance), apart > 0.5 ? ": the clusters split again." : ": the clusters mostly stay.");
  return text;
}

void write_clusters(Report& page, const Settings& settings, Model& model, const Example& example) {
  if (example.layers.empty() || !example.layers[0].choices.labels.defined()) return;
  page.section("What do the positions of a cluster share: proximity or content?");
  constexpr int64_t sequences = 64;
  page.text(concat(
      "A pair of positions can be near, have the same token, or have the same place. For the pairs with each property, "
      "the table shows the percentage that are in the same cluster. Counted for each head over ",
      sequences,
      " fresh sequences; the median over the heads is shown. A property matters if its share is far above that of "
      "any pair, which is chance. Near: at most ",
      ClusterPairs::reach,
      " positions apart. Same token: the same input token, or both masked. Same place: position i of both copies. "
      "Pairs with two of these properties are counted only as any pair. Apart in the next layer: how many of the pairs "
      "that share a cluster in this layer no longer share one in the next; by chance: how many of all pairs do not. "
      "Crowded: how many masked positions share their cluster with a masked position of another symbol. These need "
      "different keys, and plain clustered attention gives both the same."));
  const auto layers = count_pairs(model, settings.length, sequences, uint64_t(settings.compute.seed));
  Report::Rows rows;
  std::string answers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto share = [&](PairCount ClusterPairs::*kind) { return median_share(layers[i], kind); };
    const double any = share(&ClusterPairs::any), apart = 1 - share(&ClusterPairs::next);
    const double chance = i + 1 < layers.size() ? 1 - median_share(layers[i + 1], &ClusterPairs::any) : NAN;
    rows.push_back({concat("Layer ", i + 1), percent(any), percent(share(&ClusterPairs::near)),
                    percent(share(&ClusterPairs::token)), percent(share(&ClusterPairs::place)),
                    percent(share(&ClusterPairs::none)), percent(apart), percent(chance),
                    percent(share(&ClusterPairs::crowded))});
    answers += concat("Layer ", i + 1, ": ",
                      answer(share(&ClusterPairs::near) / any, share(&ClusterPairs::token) / any, apart, chance), " ");
  }
  page.table({"", "any pair (chance)", "near", "same token", "same place", "nothing in common",
              "apart in the next layer", "by chance", "crowded"},
             rows);
  page.text(answers);

  page.text(
      "Below, each cell is a position of the example with its input token, in the heads of the maps above. Positions "
      "with the same color and letter share a cluster; a position without color is alone in its cluster. By position: "
      "the second copy is below the first. Blocks of one color mean that proximity decides. "
      "If a position and the one below it have the same color, the place in the copy decides. By token: a row has all "
      "positions of one token. Rows of one "
      "color mean that content decides.");
  std::vector<svg::Picture> pictures;
  const auto shares = other_copy_shares(example);
  for (size_t layer = 0; layer < shares.size(); ++layer) {
    const int64_t head = drawn_head(shares[layer]), n = example.size();
    const int32_t* labels = example.layers[layer].choices.labels.data<int32_t>() + head * n;
    const auto add = [&](const char* order, const Rows& positions) {
      const std::string title = concat(name_of(layer, head), ": clusters by ", order);
      pictures.push_back({draw_clusters(title, example, labels, positions), title});
    };
    add("position", by_position(example));
    add("token", by_token(example.input, labels));
  }
  page.figures(pictures, 2);
}

}  // namespace

void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings, Model& model) {
  const NoGrad no_grad;
  place(model, {Device::cpu, DType::float32});
  const auto seed = uint64_t(settings.compute.seed);
  const Json& found = result.is_null() ? state.metrics : result;
  const auto metric = [&](const char* name) { return found.is_null() ? NAN : number_or_nan(found.at(name)); };
  const TransformerOptions& options = settings.model;
  Report page(
      concat("Copy task with ", options.attention, " attention"),
      concat("A transformer with ", count(options.layers, "layer"), " of ", count(options.heads, "head"),
             " was trained on sequences 0w0w, where w has ", count(settings.length, "random symbol"),
             settings.causal ? concat(". All of the second copy is masked; the first shows it.")
                             : concat(". Each copy has ", count(masked_per_half(settings.length), "masked symbol"),
                                      "; the other copy shows the symbol in the same place.",
                                      settings.from_other ? " The second copy attends to the first alone." : "")));
  page.summary({{"Masked symbols right", percent(metric("masked_accuracy")), "on fresh sequences"},
                {"All symbols right", percent(metric("accuracy")), "visible symbols included"},
                {"Loss", number(metric("loss")), "nats per symbol"},
                {"Training", clock_time(state.seconds), count(state.step, "step")},
                {"Parameters", number(double(parameter_count(model))), concat("seed ", seed)}});
  if (result.is_null())
    page.text(concat("The run was interrupted after ", count(state.step, "step"),
                     "; the figures above are those of its last evaluation."));
  if (const std::string note = model.full_note(); !note.empty()) page.text(note + ".");

  const svg::Series all = evaluation_curve(run, "accuracy", "all");
  const svg::Series masked = evaluation_curve(run, "masked_accuracy", "masked", 1);
  svg::Mark plateau{NAN, NAN, "plateau"};  // from its first to its last evaluation
  for (size_t i = 0; i < all.x.size(); ++i) {
    if (!is_plateau(all.y[i], masked.y[i])) continue;
    if (std::isnan(plateau.begin)) plateau.begin = all.x[i];
    plateau.end = all.x[i];
  }
  svg::LineChart accuracy;
  accuracy.title = "Accuracy on fresh sequences";
  accuracy.description =
      "Share of symbols answered right on fresh sequences, over all positions and over the masked ones alone. Copying "
      "the visible symbols already gives about 80% of all. On a plateau (shaded, if there is one) the model still "
      "guesses masked ones. To leave it, the attention has to find the other copy.";
  accuracy.y = {.label = "symbols answered right", .low = 0, .high = 1, .percent = true};
  accuracy.series = {all, masked, {"guessing", {0, double(state.step)}, {1.0 / symbols, 1.0 / symbols}, 7}};
  if (plateau.begin < plateau.end) accuracy.bands = {plateau};
  write_curves(page, run, state.step, "loss (nats per symbol)", accuracy);

  RandomStream random(seed, 0, Purpose::data, displayed_data);
  const Example example = run_example(model, make_batch(1, settings.length, random, model.causal), seed);
  write_example(page, example);
  write_attention(page, options.attention, example);
  write_clusters(page, settings, model, example);
  write_page(page, run);
}

}  // namespace cairn::copy_task
