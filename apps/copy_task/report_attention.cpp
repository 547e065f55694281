#include "apps/copy_task/report_page.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/common/svg.h"

namespace cairn::copy_task {
namespace {

using svg::number;

std::string percent(double value) { return number(value, true); }

// Weights are rarely large, so levels grow with them.
const std::vector<double> weight_edges{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8};

// ---- attention

// The layers and heads that there is room for.
struct Selection {
  std::vector<int64_t> layers, heads;
  std::string note;  // empty: all
};

std::vector<int64_t> indices(int64_t n) {
  std::vector<int64_t> numbers(size_t(n), 0);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Selection select(const ReportInput& in, int64_t maximum) {
  const int64_t layers = in.options.layers, heads = in.options.heads;
  const bool is_long = sequence_length(in.length) > 128;
  const int64_t shown = std::min(heads, is_long ? maximum / 2 : maximum);
  Selection result{{0, layers - 1}, indices(shown), ""};
  if (layers <= 2 || (layers * shown <= 24 && !is_long)) result.layers = indices(layers);
  if (int64_t(result.layers.size()) < layers)
    result.note += concat(" Of ", layers, " layers the first and the last are shown.");
  if (shown < heads) result.note += concat(" Of ", heads, " heads the first ", shown, " are shown.");
  return result;
}

// Of one head of one layer (batch of one): [N, N].
std::vector<float> head_of(const Tensor& weights, int64_t head) {
  const int64_t n = weights.size(2) * weights.size(3);
  const float* first = weights.data<float>() + head * n;
  return {first, first + n};
}

// Is what the heads did full attention, and which of them reads the other copy most?
struct HeadSummary {
  bool are_full = true;
  double best_share = -1;  // below 0: nothing is masked
  int64_t best_layer = 0, best_head = 0;
};
HeadSummary summarize_heads(const Example& example) {
  HeadSummary result;
  for (size_t layer = 0; layer < example.layers.size(); ++layer)
    for (int64_t head = 0; head < example.layers[layer].weights.size(1); ++head) {
      const auto weights = head_of(example.layers[layer].weights, head);
      if (l1_distance(weights, head_of(example.layers[layer].full, head), example.size()) >= 1e-4)
        result.are_full = false;
      if (const double share = to_other_copy(weights.data(), example.input); share > result.best_share)
        result.best_share = share, result.best_layer = int64_t(layer), result.best_head = head;
    }
  return result;
}

// How to read a map: the weights that would solve the task, and what the colors mean.
void write_reading(Report& page, const Example& example, svg::Heatmap map) {
  const int64_t n = example.size();
  map.title = "A map that would solve the task";
  map.values.assign(size_t(n * n), 0.0);
  for (int64_t i = 0; i < n; ++i) map.values[size_t(i * n + (example.is_masked(i) ? example.other(i) : i))] = 1;
  std::string reading = concat(
      "How to read a map: each row is a position that asks, each column one that it looks at, from left to right and "
      "top to bottom; a row sums to 100%. Ticks mark masked positions. The main diagonal is a position looking at "
      "itself; the strokes outside the frame mark the two diagonals ",
      n / 2, " positions away, its own place in the other copy, where a masked symbol can be read.");
  if (svg::pooling(n) > 1)
    reading += concat(" Each cell shows the largest of ", svg::pooling(n), " x ", svg::pooling(n), " weights.");
  page.figures({{svg::draw(map), "Weights that would solve the task in one head."},
                {svg::draw_levels(weight_edges, "attention weight"), reading}},
               2);
}

// The maps of a layer's heads.
void write_maps(Report& page, const Example& example, int64_t layer, const Selection& selection, bool are_full,
                svg::Heatmap map) {
  page.subsection(concat("Layer ", layer + 1));
  std::vector<Report::Picture> maps;
  const Observation& seen = example.layers[size_t(layer)];
  const auto add = [&](int64_t head, const std::vector<float>& weights, const std::string& what, double distance) {
    map.title = concat("Attention of layer ", layer + 1, ", head ", head + 1, what);
    map.values.assign(weights.begin(), weights.end());
    const double share = to_other_copy(weights.data(), example.input);
    std::string caption = concat("Head ", head + 1, what);
    if (std::isfinite(share)) caption += concat(". Masked to other copy: ", percent(share));
    if (distance >= 0) caption += concat(". L1 distance: ", number(distance));
    maps.push_back({svg::draw(map), caption});
  };
  for (int64_t head : selection.heads) {
    const auto weights = head_of(seen.weights, head), full = head_of(seen.full, head);
    add(head, weights, are_full ? "" : ", this variant", -1);
    if (!are_full) add(head, full, ", full attention", l1_distance(weights, full, example.size()));
  }
  page.figures(maps, 4);
}

// ---- clusters

// a, b, ... z, aa, ab, ...
std::string letters(int cluster) {
  if (cluster < 0) return "";
  return (cluster >= 26 ? letters(cluster / 26 - 1) : std::string()) + char('a' + cluster % 26);
}

constexpr int64_t strip = 32;  // positions a row

// The two copies above each other. `cell` gives that of a position.
template <class F>
svg::Cells by_position(const std::string& title, int64_t n, F&& cell) {
  svg::Cells cells{title, "", {}};
  for (int64_t begin = 0; begin < n / 2; begin += strip)
    for (int64_t first : {begin, n / 2 + begin}) {
      svg::CellRow row{"", {}, begin > 0 && first == begin};
      for (int64_t i = first; i < std::min(first - begin + n / 2, first + strip); ++i) row.cells.push_back(cell(i));
      cells.rows.push_back(row);
    }
  return cells;
}

// Sorted by token, then by cluster.
template <class F>
svg::Cells by_token(const std::string& title, const std::vector<int32_t>& tokens, const std::vector<int>& clusters,
                    F&& cell) {
  const auto n = int64_t(tokens.size());
  std::vector<int64_t> order = indices(n);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const auto key = [&](int64_t i) { return std::pair(tokens[size_t(i)], clusters[size_t(i)]); };
    return key(a) < key(b);
  });
  svg::Cells cells{title, "", {}};
  for (int64_t i = 0; i < n; ++i) {
    if (i % strip == 0) cells.rows.push_back({"", {}});
    svg::Cell next = cell(order[size_t(i)]);
    next.gap = i % strip > 0 && tokens[size_t(order[size_t(i)])] != tokens[size_t(order[size_t(i - 1)])];
    cells.rows.back().cells.push_back(next);
  }
  return cells;
}

void write_strips(Report& page, const ReportInput& in, const Example& example) {
  const int64_t n = example.size();
  const Selection selection = select(in, n > 128 ? 4 : 6);
  page.text(
      "Below, each cell is a position of the example with its input token. Positions of one color and letter share a "
      "cluster; those without a color share theirs with nobody. The strips by position have the two copies above each "
      "other: blocks of one color would mean that proximity decides, equal colors above each other that the place in "
      "the copy does. The strips by token are sorted: one color a token would mean that content decides." +
      selection.note);
  for (int64_t layer : selection.layers) {
    page.subsection(concat("Clusters in layer ", layer + 1));
    std::vector<Report::Picture> pictures;
    for (int64_t head : selection.heads) {
      const auto names = cluster_names(example.layers[size_t(layer)].choices["labels"].data<int32_t>() + head * n, n);
      const auto cell = [&](int64_t i) {
        return svg::Cell{token_text(example.input[size_t(i)]), svg::category(names[size_t(i)]),
                         letters(names[size_t(i)])};
      };
      const std::string title = concat("Layer ", layer + 1, ", head ", head + 1, ": clusters by ");
      pictures.push_back(
          {svg::draw(by_position(title + "position", n, cell)), concat("Head ", head + 1, ", by position")});
      pictures.push_back(
          {svg::draw(by_token(title + "token", example.input, names, cell)), concat("Head ", head + 1, ", by token")});
    }
    page.figures(pictures, 2);
  }
}

}  // namespace

void write_attention(Report& page, const ReportInput& in, const Example& example) {
  page.section("What the attention looks at");
  if (example.layers.empty()) return page.text("The sequences are too long to write out dense attention weights.");
  const int64_t n = example.size();
  const Selection selection = select(in, 8);
  const HeadSummary heads = summarize_heads(example);
  std::string lead =
      heads.are_full
          ? "The true attention weights of the trained model on the example above; they are those of full attention."
          : concat("The true attention weights of the trained model on the example above: what ", in.attention,
                   " computes, beside what full attention would make of the same queries and keys. Their L1 "
                   "distance is the mean over queries of the summed differences, from 0 to 2.");
  page.text(lead + selection.note);
  if (heads.best_share >= 0)
    page.text(concat("The head that reads the other copy most is head ", heads.best_head + 1, " of layer ",
                     heads.best_layer + 1, ": masked positions give ", percent(heads.best_share),
                     " of their attention there to their own place in the other copy."));
  svg::Heatmap map;
  map.rows = map.columns = n, map.edges = weight_edges, map.diagonals = {n / 2, -n / 2};
  for (int64_t i = 0; i < n; ++i)
    if (example.is_masked(i)) map.marked_rows.push_back(i), map.marked_columns.push_back(i);
  write_reading(page, example, map);
  for (int64_t layer : selection.layers) write_maps(page, example, layer, selection, heads.are_full, map);
}

void write_clusters(Report& page, const ReportInput& in, const Example& example) {
  if (example.layers.empty() || !example.layers[0].choices["labels"].defined()) return;
  page.section("What shares a cluster: proximity or content?");
  constexpr int64_t sequences = 64;
  const auto pairs = count_pairs(in.model, in.length, sequences, in.seed);
  std::vector<std::vector<std::string>> rows;
  for (size_t layer = 0; layer < pairs.size(); ++layer) {
    const auto median_share = [&](PairCount ClusterPairs::*count) {
      std::vector<double> shares;
      for (const ClusterPairs& head : pairs[layer]) shares.push_back((head.*count).share());
      return median(shares);
    };
    rows.push_back({concat("Layer ", layer + 1), percent(median_share(&ClusterPairs::none)),
                    percent(median_share(&ClusterPairs::near)), percent(median_share(&ClusterPairs::token)),
                    percent(median_share(&ClusterPairs::place)), percent(1 - median_share(&ClusterPairs::next))});
  }
  page.text(concat(
      "The share of pairs of positions that are in one cluster, by what the two have in common, over ", sequences,
      " fresh sequences; medians over the heads. What decides has a share far above that of ",
      "pairs with nothing in common. Near: at most ", ClusterPairs::reach, " positions apart. Same token: ",
      "the same input token (M is one). Same place: position i of both copies. Pairs with two of these in ",
      "common are left out. Last column: of all pairs in one cluster, those that a head of the next layer ", "parts."));
  page.columns({"", "nothing in common", "near", "same token", "same place", "apart in the next layer"}, rows);
  write_strips(page, in, example);
}

}  // namespace cairn::copy_task
