#include "apps/attend/picture.h"

#include <algorithm>
#include <cmath>

namespace cairn::attend {

int64_t drawn_heads(const Inputs& inputs) { return inputs.batches() > 0 ? std::min<int64_t>(inputs.heads(), 16) : 0; }

std::vector<svg::Tile> draw_heads(const Inputs& inputs, const Runner& runner, const AttentionChoices& made,
                                  const std::string& other, const HeadWeights& others) {
  const int64_t heads = drawn_heads(inputs), N = inputs.queries(), S = inputs.keys();
  const int64_t rows = inputs.mask.query_lengths.defined() ? inputs.mask.query_lengths.data<int32_t>()[0] : N;
  // Which cluster or (in its first round) bucket each query is in.
  const Tensor groups = made["labels"].defined() ? made["labels"] : made["buckets"];
  const auto labels = groups.defined() ? groups.to_vector<int32_t>() : std::vector<int32_t>();
  const int64_t rounds = groups.defined() && groups.rank() == 4 ? groups.size(2) : 1;
  HeadWeights weights = dense_weights(inputs, runner, heads);
  std::vector<svg::Tile> tiles;
  for (int64_t h = 0; h < heads; ++h) {
    svg::Heatmap map;
    map.values = std::move(weights[size_t(h)]);
    double l1 = 0;
    for (size_t i = 0; i < map.values.size(); ++i) l1 += std::abs(map.values[i] - others[size_t(h)][i]);
    const std::string title = inputs.heads() > 1 ? concat(runner.spec(), ", head ", h + 1) : runner.spec();
    map.title = "Attention weights of " + title;
    map.rows = N, map.columns = S;
    // Half as much as even attention and more: powers of two, to a weight of 1.
    for (double edge = 0.5 / double(std::max<int64_t>(S, 1)); edge < 1 && map.edges.size() < size_t(svg::ramp);
         edge *= 2)
      map.edges.push_back(edge);
    map.row_colors.assign(size_t(N), -1);  // so that all tiles are of one size
    if (groups.defined()) std::copy_n(labels.begin() + h * rounds * N, N, map.row_colors.begin());
    tiles.push_back(
        {svg::draw(map), title, rows > 0 ? concat("L1 to ", other, " ", svg::number(l1 / double(rows))) : ""});
  }
  return tiles;
}

std::string draw_picture(const std::vector<svg::Tile>& tiles, const Inputs& inputs) {
  const int64_t heads = drawn_heads(inputs), variants = int64_t(tiles.size()) / heads;
  const int64_t columns = heads > 1 && variants > 1 ? heads : std::min<int64_t>(int64_t(tiles.size()), 4);
  return svg::sheet(concat("Attention weights: heads 1 to ", heads, " of ", inputs.heads()),
                    "A row for each query, a column for each key; darker is more, in powers of two from half of even "
                    "attention on. The strip at the left has a color for each cluster.",
                    tiles, int(columns));
}

}  // namespace cairn::attend
