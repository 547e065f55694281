#include "apps/attend/picture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/common/program.h"
#include "core/random.h"

namespace cairn::attend {
namespace {

constexpr int64_t at_once = 512;                 // rows of one pass
constexpr double cells_of_all_tiles = 64 << 14;  // 64 heatmaps of 128 rows and columns: at most some 10 MB of SVG
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A head's rows as a heatmap of at most `side` rows and columns, whose cells show the largest of the weights there.
struct Pooled {
  int64_t row_factor, column_factor;
  svg::Heatmap map{};

  Pooled(int64_t rows, int64_t columns, int64_t side)
      : row_factor(std::max<int64_t>(1, ceil_div(rows, side))),
        column_factor(std::max<int64_t>(1, ceil_div(columns, side))) {
    map.rows = ceil_div(rows, row_factor), map.columns = ceil_div(columns, column_factor);
    map.values.assign(size_t(map.rows * map.columns), NAN);
    // Half as much as even attention and more: powers of two, to a weight of 1.
    for (double edge = 0.5 / double(std::max<int64_t>(columns, 1)); edge < 1 && map.edges.size() < size_t(svg::ramp);
         edge *= 2)
      map.edges.push_back(edge);
  }
  // The weights [rows, columns] of rows from `first` on.
  void add(const float* weights, int64_t first, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t s = 0; s < columns; ++s) {
        double& largest = map.values[size_t((first + i) / row_factor * map.columns + s / column_factor)];
        const double value = weights[i * columns + s];
        if (!(largest >= value) && !std::isnan(value)) largest = value;
      }
  }
  // Shows beside each row which cluster or (in its first round) bucket its query is in. -1: none.
  void color(const AttentionChoices& made, int64_t head, const std::vector<int64_t>& sample) {
    map.row_colors.assign(size_t(map.rows), -1);  // so that all tiles are of one size
    const Tensor groups = (made["labels"].defined() ? made["labels"] : made["buckets"]);
    if (!groups.defined()) return;
    const auto labels = groups.to_vector<int32_t>();
    const int64_t rounds = groups.rank() == 4 ? groups.size(2) : 1, N = groups.size(-1);
    for (int64_t r = 0; r < map.rows; ++r)
      map.row_colors[size_t(r)] = labels[size_t(head * rounds * N + sample[size_t(r * row_factor)])];
  }
};

}  // namespace

std::vector<int64_t> sample_of(int64_t queries, uint64_t seed) {
  constexpr int64_t most = 4096, drawn = 512;
  const int64_t count = queries > most ? drawn : queries;
  RandomStream random(seed, 0, Purpose::data);
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = queries * i / count, end = queries * (i + 1) / count;
    sample.push_back(begin + random.below(uint32_t(end - begin)));
  }
  return sample;
}

void look_at(std::vector<Result>& results, const Runner& other, const Inputs& inputs,
             const std::vector<int64_t>& sample, bool picture) {
  const int64_t H = inputs.heads(), S = inputs.keys(), heads = picture ? H : 0;
  const auto rows = int64_t(sample.size());
  const double tiles = double(results.size()) * double(std::max<int64_t>(1, H));
  const auto side = std::clamp<int64_t>(int64_t(std::sqrt(cells_of_all_tiles / tiles)), 16, 128);
  std::vector<std::vector<Pooled>> maps(results.size(), std::vector<Pooled>(size_t(heads), {rows, S, side}));
  std::vector<std::vector<double>> l1(results.size(), std::vector<double>(size_t(inputs.batches() * H), 0));
  for (int64_t first = 0; first < rows; first += at_once) {
    const std::vector<int64_t> part(sample.begin() + first, sample.begin() + std::min(rows, first + at_once));
    const Tensor others = other.weights(part);
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].runner) continue;
      if (interrupted()) throw Interrupted();
      const Tensor own = results[i].runner->weights(part);
      const auto distances = sum(unary(Unary::abs, binary(Binary::subtract, own, others)), {2, 3}).to_vector<float>();
      for (size_t head = 0; head < distances.size(); ++head) l1[i][head] += distances[head];
      for (int64_t h = 0; h < heads; ++h)
        maps[i][size_t(h)].add(own.data<float>() + h * int64_t(part.size()) * S, first, int64_t(part.size()), S);
    }
  }
  std::vector<double> counted;  // rows of a batch element; those beyond its length are zeros in all variants
  for (int64_t b = 0; b < inputs.batches(); ++b)
    counted.push_back(double(std::lower_bound(sample.begin(), sample.end(), inputs.queries_of(b)) - sample.begin()));
  for (size_t i = 0; i < results.size(); ++i) {
    Result& result = results[i];
    if (!result.runner) continue;
    const double total = std::accumulate(l1[i].begin(), l1[i].end(), 0.0);
    const double count = std::accumulate(counted.begin(), counted.end(), 0.0) * double(H);
    if (count > 0) result.l1 = total / count;
    for (int64_t h = 0; h < heads; ++h) {
      Pooled& drawn = maps[i][size_t(h)];
      const std::string title = H > 1 ? concat(result.spec, ", head ", h + 1) : result.spec;
      drawn.map.title = "Attention weights of " + title;
      drawn.color(result.outcome.made, h, sample);
      const double of_head = l1[i][size_t(h)] / counted[0];
      result.tiles.push_back({svg::draw(drawn.map), title,
                              std::isnan(of_head) ? "" : concat("L1 to ", other.spec(), " ", svg::number(of_head))});
    }
  }
}

std::string draw_picture(const std::vector<Result>& results, const Inputs& inputs, const std::vector<int64_t>& sample) {
  std::vector<svg::Tile> tiles;
  for (const Result& result : results) tiles.insert(tiles.end(), result.tiles.begin(), result.tiles.end());
  const bool all = int64_t(sample.size()) == inputs.queries();
  const int64_t columns = inputs.heads() > 1 && results.size() > 1 ? inputs.heads() : 4;
  return svg::sheet(concat("Attention weights of ", inputs.heads(), " heads"),
                    concat("A row for each ",
                           all ? "query" : concat("of ", sample.size(), " queries, drawn out of ", inputs.queries()),
                           ", a column for each key; darker is more, in powers of two from half of even attention on. "
                           "The strip at the left has a color for each cluster."),
                    tiles, int(std::min<int64_t>(columns, int64_t(tiles.size()))));
}

}  // namespace cairn::attend
