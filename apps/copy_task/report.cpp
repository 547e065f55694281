#include "apps/copy_task/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "apps/common/progress.h"
#include "apps/common/svg.h"
#include "core/ops.h"
#include "nn/attention/observe.h"

namespace cairn::copy_task {
namespace {

using svg::number;

std::string percent(double value) { return number(value, true); }
// "1 masked symbol", "2 masked symbols".
std::string count(int64_t n, const std::string& what) {
  return concat(number(double(n)), " ", what, n == 1 ? "" : "s");
}

// Weights are rarely large, so levels grow with them.
const std::vector<double> weight_edges{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8};

// ---- curves

// At most about `points` points: of each bucket of records its least and its largest (raw), or the mean of a window
// around it (smooth).
void thin(const std::vector<LossRecord>& losses, size_t points, svg::Series& raw, svg::Series& smooth) {
  const size_t n = losses.size(), bucket = std::max<size_t>(1, n / points), window = std::max<size_t>(1, n / 50);
  for (size_t begin = 0; begin < n; begin += bucket) {
    const size_t end = std::min(n, begin + bucket);
    const auto [low, high] = std::minmax_element(losses.begin() + long(begin), losses.begin() + long(end),
                                                 [](const auto& a, const auto& b) { return a.loss < b.loss; });
    for (auto it : {std::min(low, high), std::max(low, high)}) {
      if (it == std::max(low, high) && low == high) continue;
      raw.x.push_back(double(it->step)), raw.y.push_back(it->loss);
    }
    const size_t middle = (begin + end - 1) / 2, from = middle - std::min(middle, window / 2),
                 to = std::min(n, middle + window / 2 + 1);
    double sum = 0;
    for (size_t i = from; i < to; ++i) sum += losses[i].loss;
    smooth.x.push_back(double(losses[middle].step)), smooth.y.push_back(sum / double(to - from));
  }
}

// Is the loss of a step drawn faint, under its mean?
bool is_long(const ReportInput& in) { return in.losses.size() >= 250; }

struct Curves {
  svg::LineChart loss, accuracy;
};

Curves draw_curves(const ReportInput& in) {
  const auto plateau = find_plateau(in.evaluations);
  svg::LineChart loss{
      "Training loss", "Cross entropy of each training batch over the training steps.", {}, {}, {}, {}, {}};
  loss.x.label = "training step", loss.y.label = "loss, nats a symbol";
  svg::Series raw{"", {}, {}, 0, is_long(in), false}, smooth{"", {}, {}, 0, false, false};
  thin(in.losses, 300, raw, smooth);
  const auto [low, high] = std::minmax_element(raw.y.begin(), raw.y.end());
  loss.y.log = !raw.y.empty() && *low > 0 && *high > 20 * *low;
  if (!loss.y.log) loss.y.low = 0;
  loss.series.push_back(raw);
  if (is_long(in)) loss.series.push_back(smooth);

  svg::LineChart accuracy{
      "Accuracy on fresh sequences", "Share of symbols answered right, over the training steps.", {}, {}, {}, {}, {}};
  accuracy.x.label = "training step", accuracy.y.label = "symbols answered right";
  accuracy.y.percent = true, accuracy.y.low = 0, accuracy.y.high = 1;
  svg::Series all{"all", {}, {}, 0, false, true}, hidden{"masked", {}, {}, 1, false, true};
  for (const EvaluationRecord& record : in.evaluations) {
    for (svg::Series* series : {&all, &hidden}) series->x.push_back(double(record.step));
    all.y.push_back(record.evaluation.accuracy), hidden.y.push_back(record.evaluation.masked_accuracy);
  }
  accuracy.series = {all};
  if (masked_per_half(in.length) > 0) {
    accuracy.series.push_back(hidden);
    accuracy.rules.push_back({1.0 / symbols, "guessing"});
  }
  for (svg::LineChart* chart : {&loss, &accuracy}) {
    chart->x.low = 0;
    if (in.steps > 0) chart->x.high = double(in.steps);
    if (plateau) chart->bands.push_back({double(plateau->first), double(plateau->last), "plateau"});
  }
  return {loss, accuracy};
}

void write_curves(Report& page, const ReportInput& in) {
  page.section("Learning");
  if (int64_t(in.losses.size()) < in.steps)
    page.text(concat("Of ", count(in.steps, "step"), " metrics.jsonl has the records of ", in.losses.size(),
                     " alone; the curves show those."));
  const auto plateau = find_plateau(in.evaluations);
  const double n = double(sequence_length(in.length)), masked = 2 * double(masked_per_half(in.length));
  const Curves curves = draw_curves(in);

  if (plateau) {
    const int64_t one_in = std::llround(1 / std::max(plateau->masked_accuracy, 1e-3));
    page.text(concat("From step ", number(double(plateau->first)), " to step ", number(double(plateau->last)),
                     " training stood on a plateau (shaded). Unmasked symbols were copied, masked ones guessed: ",
                     percent(plateau->accuracy), " of all symbols were right, but only ",
                     percent(plateau->masked_accuracy), " of the masked ones, about 1 in ", one_in,
                     ". To do better, the attention has to find the other copy. ",
                     plateau->over ? concat("By step ", number(double(*plateau->over)), " it had begun to.")
                                   : std::string("In this run it had not done so by the last evaluation.")));
  }
  std::string loss_text =
      curves.loss.y.log ? "Loss of each training batch, on a log scale" : "Loss of each training batch";
  if (is_long(in))
    loss_text += concat("; the strong line is its mean over ", std::max<size_t>(1, in.losses.size() / 50), " steps");
  std::string accuracy_text = "Share of symbols answered right on fresh sequences";
  if (masked > 0)
    accuracy_text +=
        concat(", over all positions and over the masked ones alone. Guessing one of the ", symbols,
               " symbols is right ", percent(1.0 / symbols), " of the time; whoever copies what is visible and ",
               "guesses the rest gets ", percent(1 - masked / n * (1 - 1.0 / symbols)), " of all symbols");
  page.figures({{svg::draw(curves.loss), loss_text + "."}, {svg::draw(curves.accuracy), accuracy_text + "."}}, 2);
}

// ---- one example

// A fresh sequence and all that the model did with it.
struct Example {
  std::vector<int32_t> input, target, answer;
  std::vector<Observation> layers;  // empty: too long for dense weights
};

Example run_example(const ReportInput& in) {
  RandomStream random(in.seed, 0, Purpose::data, 2);  // sequences that neither training nor evaluation has seen
  const Batch batch = make_batch(1, in.length, random);
  const Generator generator(~in.seed);
  Example example{batch.input.to_vector<int32_t>(), batch.target.to_vector<int32_t>(), {}, {}};
  const auto run = [&] {
    example.answer = argmax(in.model(batch.input, {false, &generator}).value()).to_vector<int32_t>();
  };
  if (can_observe(in.length, in.options.heads))
    example.layers = observe(in.model.encoder, run);
  else
    run();
  return example;
}

void write_example(Report& page, const ReportInput& in, const Example& example) {
  page.section("One example");
  constexpr int64_t row = 32;
  const int64_t half = in.length + 1, shown = std::min(half, 2 * row);
  svg::Cells cells{"One sequence: input, target and answer", "Both copies, aligned.", {}};
  for (int64_t begin = 0; begin < shown; begin += row)
    for (int64_t copy = 0; copy < 2; ++copy) {
      svg::CellRow input{concat("copy ", copy + 1, ": input"), {}, begin + copy > 0}, target{"target", {}},
          answer{"answer", {}};
      for (int64_t i = begin; i < std::min(shown, begin + row); ++i) {
        const auto at = size_t(copy * half + i);
        const bool masked = example.input[at] == mask_token, right = example.answer[at] == example.target[at];
        input.cells.push_back({token_text(example.input[at]), "", -1, masked ? svg::Cell::hidden : svg::Cell::plain});
        target.cells.push_back({token_text(example.target[at])});
        answer.cells.push_back({token_text(example.answer[at]), "", -1,
                                !right   ? svg::Cell::wrong
                                : masked ? svg::Cell::found
                                         : svg::Cell::plain});
      }
      for (auto* each : {&input, &target, &answer}) cells.rows.push_back(*each);
    }
  int64_t masked = 0, found = 0, wrong = 0;
  for (size_t i = 0; i < example.input.size(); ++i) {
    const bool hidden = example.input[i] == mask_token, right = example.answer[i] == example.target[i];
    masked += hidden, found += hidden && right, wrong += !hidden && !right;
  }
  std::string caption =
      concat("A fresh sequence. M is masked; the same place of the other copy has the symbol. The model answered ",
             found, " of ", count(masked, "masked symbol"), " right (outlined) and was wrong on ",
             masked - found + wrong, " of ", example.input.size(), " positions (filled).");
  if (shown < half) caption += concat(" Shown: the first ", shown, " of ", half, " places of each copy.");
  page.figure({svg::draw(cells), caption});
}

// ---- attention

// The layers and heads that there is room for.
struct Selection {
  std::vector<int64_t> layers, heads;
  std::string note;  // empty: all
};

Selection select(const ReportInput& in, int64_t maximum) {
  Selection result;
  const int64_t layers = in.options.layers, heads = in.options.heads;
  const int64_t shown = std::min(heads, sequence_length(in.length) > 128 ? maximum / 2 : maximum);
  result.heads.resize(size_t(shown));
  std::iota(result.heads.begin(), result.heads.end(), 0);
  if (layers <= 2 || (layers * shown <= 24 && sequence_length(in.length) <= 128)) {
    result.layers.resize(size_t(layers));
    std::iota(result.layers.begin(), result.layers.end(), 0);
  } else {
    result.layers = {0, layers - 1};
  }
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

// Mean over queries of the summed distance of their weights.
double l1(const std::vector<float>& a, const std::vector<float>& b, int64_t n) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double(a[i]) - double(b[i]));
  return sum / double(n);
}

void write_attention(Report& page, const ReportInput& in, const Example& example) {
  page.section("What the attention looks at");
  if (example.layers.empty()) return page.text("The sequences are too long to write out dense attention weights.");
  const auto n = int64_t(example.input.size()), half = n / 2;
  const Selection selection = select(in, 8);
  svg::Heatmap map;
  map.rows = map.columns = n, map.edges = weight_edges, map.diagonals = {half, -half};
  for (int64_t i = 0; i < n; ++i)
    if (example.input[size_t(i)] == mask_token) map.marked_rows.push_back(i), map.marked_columns.push_back(i);

  double largest = 0, best = -1;
  int64_t best_layer = 0, best_head = 0;
  for (size_t layer = 0; layer < example.layers.size(); ++layer)
    for (int64_t head = 0; head < in.options.heads; ++head) {
      const auto weights = head_of(example.layers[layer].weights, head);
      largest = std::max(largest, l1(weights, head_of(example.layers[layer].full, head), n));
      if (const double share = to_other_copy(weights.data(), example.input); share > best)
        best = share, best_layer = int64_t(layer), best_head = head;
    }
  const bool is_full = largest < 1e-4;

  // How to read a map: the weights that would solve the task.
  svg::Heatmap ideal = map;
  ideal.title = "A map that would solve the task";
  ideal.row_title = "query", ideal.column_title = "key";
  ideal.values.assign(size_t(n * n), 0.0);
  for (int64_t i = 0; i < n; ++i)
    ideal.values[size_t(i * n + (example.input[size_t(i)] == mask_token ? (i + half) % n : i))] = 1;
  std::string reading = concat(
      "How to read a map: each row is a position that asks, each column one that it looks at, from left to right and "
      "top to bottom; a row sums to 100%. Ticks mark masked positions. The main diagonal is a position looking at "
      "itself; the strokes outside the frame mark the two diagonals ",
      half, " positions away, its own place in the other copy, where a masked symbol can be read.");
  if (svg::pooling(n) > 1)
    reading += concat(" Each cell shows the largest of ", svg::pooling(n), " x ", svg::pooling(n), " weights.");
  std::string lead =
      is_full
          ? "The true attention weights of the trained model on the example above; they are those of full attention."
          : concat("The true attention weights of the trained model on the example above: what ", in.attention,
                   " computes, beside what full attention would make of the same queries and keys. Their L1 "
                   "distance is the mean over queries of the summed differences, from 0 to 2.");
  page.text(lead + selection.note);
  if (best >= 0)
    page.text(concat("The head that reads the other copy most is head ", best_head + 1, " of layer ", best_layer + 1,
                     ": masked positions give ", percent(best),
                     " of their attention there to their own place in the other copy."));
  page.figures({{svg::draw(ideal), "Weights that would solve the task in one head."},
                {svg::draw_levels(weight_edges, "attention weight", true), reading}},
               2);

  for (int64_t layer : selection.layers) {
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
      add(head, weights, is_full ? "" : ", this variant", -1);
      if (!is_full) add(head, full, ", full attention", l1(weights, full, n));
    }
    page.figures(maps, 4);
  }
}

// ---- clusters

// Names clusters by first appearance: 0, 1, ... Those with one member get -1.
std::vector<int> in_order(const int32_t* labels, int64_t n) {
  std::vector<int> names(size_t(n), -1);
  int next = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (labels[i] < 0 || names[size_t(i)] >= 0 || std::count(labels, labels + n, labels[i]) < 2) continue;
    for (int64_t j = i; j < n; ++j)
      if (labels[j] == labels[i]) names[size_t(j)] = next;
    ++next;
  }
  return names;
}

// a, b, ... z, aa, ab, ...
std::string letters(int cluster) {
  if (cluster < 0) return "";
  return (cluster >= 26 ? letters(cluster / 26 - 1) : std::string()) + char('a' + cluster % 26);
}

void write_strips(Report& page, const ReportInput& in, const Example& example) {
  const auto n = int64_t(example.input.size()), half = n / 2;
  constexpr int64_t row = 32;
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
      const auto names = in_order(example.layers[size_t(layer)].choices["labels"].data<int32_t>() + head * n, n);
      const auto cell = [&](int64_t i) {
        return svg::Cell{token_text(example.input[size_t(i)]), letters(names[size_t(i)]), names[size_t(i)]};
      };
      svg::Cells by_position{concat("Layer ", layer + 1, ", head ", head + 1, ": clusters by position"), "", {}};
      for (int64_t begin = 0; begin < half; begin += row)
        for (int64_t copy = 0; copy < 2; ++copy) {
          svg::CellRow cells{"", {}, begin > 0 && copy == 0};
          for (int64_t i = begin; i < std::min(half, begin + row); ++i) cells.cells.push_back(cell(copy * half + i));
          by_position.rows.push_back(cells);
        }
      std::vector<int64_t> order(size_t(n), 0);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const auto key = [&](int64_t i) { return std::pair(example.input[size_t(i)], names[size_t(i)]); };
        return key(a) < key(b);
      });
      svg::Cells by_token{concat("Layer ", layer + 1, ", head ", head + 1, ": clusters by token"), "", {}};
      for (int64_t begin = 0; begin < n; begin += row) {
        svg::CellRow cells{"", {}};
        for (int64_t i = begin; i < std::min(n, begin + row); ++i) {
          cells.cells.push_back(cell(order[size_t(i)]));
          cells.cells.back().gap =
              i > begin && example.input[size_t(order[size_t(i)])] != example.input[size_t(order[size_t(i - 1)])];
        }
        by_token.rows.push_back(cells);
      }
      pictures.push_back({svg::draw(by_position), concat("Head ", head + 1, ", by position")});
      pictures.push_back({svg::draw(by_token), concat("Head ", head + 1, ", by token")});
    }
    page.figures(pictures, 2);
  }
}

// [layer][head], over fresh sequences.
std::vector<std::vector<ClusterPairs>> count_pairs(const ReportInput& in, int64_t sequences) {
  const NoGrad no_grad;
  const int64_t n = sequence_length(in.length), heads = in.options.heads;
  auto& layers = in.model.encoder.layers;
  std::vector<std::vector<ClusterPairs>> pairs(layers.size(), std::vector<ClusterPairs>(size_t(heads)));
  std::vector<AttentionChoices> made(layers.size());
  RandomStream random(in.seed, 1, Purpose::data, 2);
  Generator generator(~in.seed);
  for (int64_t done = 0; done < sequences; done += evaluation_batch) {
    const Batch batch = make_batch(std::min(evaluation_batch, sequences - done), in.length, random);
    generator.set_step(uint64_t(done) + 1);
    for (size_t i = 0; i < layers.size(); ++i) layers[i]->attention.report = &made[i];
    in.model(batch.input, {false, &generator});
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i]->attention.report = nullptr;
      for (int64_t b = 0; b < batch.input.size(0); ++b)
        for (int64_t h = 0; h < heads; ++h)
          pairs[i][size_t(h)].add(made[i]["labels"].data<int32_t>() + (b * heads + h) * n,
                                  batch.input.data<int32_t>() + b * n, n);
    }
  }
  return pairs;
}

double median(std::vector<double> values) {
  values.erase(std::remove_if(values.begin(), values.end(), [](double v) { return std::isnan(v); }), values.end());
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// What plays a part in a layer, from the medians over its heads. The three are not ranked: each is compared with pairs
// of its own, and so has a ceiling of its own.
std::string verdict(const std::vector<double>& lifts) {
  static constexpr const char* names[] = {"proximity", "content", "the place in the copy"};
  std::vector<std::string> found;
  for (size_t i = 0; i < std::min(lifts.size(), std::size(names)); ++i)
    if (lifts[i] > 1.25) found.push_back(names[i]);  // less is hardly more than chance
  if (found.empty()) return "none of the three stands out from chance";
  std::string list = found[0];
  for (size_t i = 1; i < found.size(); ++i) list += (i + 1 < found.size() ? ", " : " and ") + found[i];
  return list + (found.size() == 1 ? " plays a part" : " play a part");
}

void write_clusters(Report& page, const ReportInput& in, const Example& example) {
  if (example.layers.empty() || !example.layers[0].choices["labels"].defined()) return;
  page.section("What shares a cluster: proximity or content?");
  constexpr int64_t sequences = 64;
  const auto pairs = count_pairs(in, sequences);
  svg::DotChart chart{"Proximity, content and place in clusters",
                      "How many times likelier positions with something in common are to share a cluster.",
                      {},
                      {},
                      {},
                      {}};
  chart.series = {"near each other", "same token", "same place of the two copies"};
  chart.x.label = "times as likely to share a cluster as like pairs";
  chart.x.log = true, chart.x.low = 0.1, chart.rules = {{1, "chance"}};
  for (size_t layer = 0; layer < pairs.size(); ++layer) {
    std::vector<std::vector<double>> lifts(3);
    for (size_t head = 0; head < pairs[layer].size(); ++head) {
      const ClusterPairs& p = pairs[layer][head];
      const std::vector<double> values{p.near.lift(), p.token.lift(), p.place.lift()};
      for (size_t i = 0; i < 3; ++i) lifts[i].push_back(values[i]);
      if (chart.rows.size() < 48) chart.rows.push_back({concat("layer ", layer + 1, ", head ", head + 1), values});
    }
    std::vector<double> middle;
    std::transform(lifts.begin(), lifts.end(), std::back_inserter(middle), median);
    page.text(concat("Layer ", layer + 1, ": ", verdict(middle), ". Two positions are ", number(middle[0]),
                     " times as likely to share a cluster if they are near each other, ", number(middle[1]),
                     " times if they hold the same token and ", number(middle[2]),
                     " times if they are the same place of the two copies, each compared with pairs alike otherwise "
                     "(medians over the heads)."));
  }
  std::string caption = concat(
      "How many times likelier pairs of positions with a property are to share a cluster than all pairs that are like "
      "them otherwise, over ",
      sequences, " fresh sequences. Near each other: at most ", ClusterPairs::reach,
      " positions apart, among pairs of different input tokens. Same token: the same input token (M is one), among "
      "pairs further apart that are not the same place of the two copies. Same place: position i of both copies, among "
      "pairs of a position in each copy of which one is masked, so that their tokens differ. A hollow mark at the left "
      "edge is below 0.1.");
  if (pairs.size() * size_t(in.options.heads) > chart.rows.size()) caption += " The first 48 heads are shown.";
  page.figure({svg::draw(chart), caption});
  write_strips(page, in, example);
}

}  // namespace

std::optional<Plateau> find_plateau(const std::vector<EvaluationRecord>& evaluations) {
  size_t best = 0, best_size = 1;
  const auto flat = [&](size_t i) {
    return i < evaluations.size() && evaluations[i].evaluation.accuracy > 0.8 &&
           evaluations[i].evaluation.masked_accuracy < 0.3;
  };
  for (size_t i = 0, end; i < evaluations.size(); i = end + 1) {
    for (end = i; flat(end);) ++end;
    if (end - i > best_size) best = i, best_size = end - i;
  }
  if (best_size < 2) return {};
  const size_t end = best + best_size;
  Plateau result{evaluations[best].step, evaluations[end - 1].step, 0, 0, {}};
  for (size_t i = best; i < end; ++i) {
    result.accuracy += evaluations[i].evaluation.accuracy / double(best_size);
    result.masked_accuracy += evaluations[i].evaluation.masked_accuracy / double(best_size);
  }
  if (end < evaluations.size() && evaluations[end].evaluation.masked_accuracy >= 0.3)
    result.over = evaluations[end].step;
  return result;
}

void ClusterPairs::add(const int32_t* labels, const int32_t* input, int64_t n) {
  const int64_t half = n / 2;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n && labels[i] >= 0; ++j) {
      if (labels[j] < 0) continue;
      const bool together = labels[i] == labels[j], same_token = input[i] == input[j], same_place = j - i == half;
      const bool close = j - i <= reach, one_masked = (input[i] == mask_token) != (input[j] == mask_token);
      const auto tally = [together](Kind& kind, bool comparable, bool has) {
        if (!comparable) return;
        ++kind.among.all, kind.among.together += together;
        kind.with.all += has, kind.with.together += has && together;
      };
      tally(near, !same_token, close);
      tally(token, !close && !same_place, same_token);
      tally(place, i < half && j >= half && one_masked, same_place);
    }
}

double ClusterPairs::Kind::lift() const {
  if (with.all == 0 || among.together == 0) return NAN;
  return double(with.together) / double(with.all) / (double(among.together) / double(among.all));
}

bool can_observe(int64_t length, int64_t heads) {
  // A layer's take this many numbers, four times over.
  const double n = double(sequence_length(length));
  return n * n * double(heads) <= double(1 << 25);
}

double to_other_copy(const float* weights, const std::vector<int32_t>& input) {
  const auto n = int64_t(input.size());
  double sum = 0;
  int64_t masked = 0;
  for (int64_t i = 0; i < n; ++i)
    if (input[size_t(i)] == mask_token) sum += weights[i * n + (i + n / 2) % n], ++masked;
  return masked ? sum / double(masked) : NAN;
}

std::string make_curves(const ReportInput& in) {
  const Curves curves = draw_curves(in);
  const std::string run = concat(in.attention, ", ", count(in.length, "symbol"), ", seed ", in.seed);
  return svg::sheet(concat("Copy task, ", run), "Loss and accuracy over the training steps.",
                    {{svg::draw(curves.loss), run,
                      is_long(in) ? "Loss of each training batch, and its mean." : "Loss of each batch."},
                     {svg::draw(curves.accuracy), "", "Symbols answered right on fresh sequences."}},
                    2, 520, 390);
}

std::string make_report(const ReportInput& in) {
  const NoGrad no_grad;
  const Evaluation& result = in.final_evaluation;
  const int64_t masked = masked_per_half(in.length);
  Report page(concat("Copy task with ", in.attention, " attention"),
              concat("A transformer of ", count(in.options.layers, "layer"), " with ", count(in.options.heads, "head"),
                     " was trained on sequences 0w0w with ", count(in.length, "symbol"), " in w, of which ", masked,
                     " in each copy are masked. What is masked in one copy stands in the other."));
  page.summary({{"Masked symbols right", percent(result.masked_accuracy), "on fresh sequences"},
                {"All symbols right", percent(result.accuracy), "copying what is visible included"},
                {"Loss", number(result.loss), "nats a symbol"},
                {"Training", clock_time(in.seconds), count(in.steps, "step")},
                {"Parameters", number(double(parameter_count(in.model))), concat("seed ", in.seed)}});
  write_curves(page, in);
  const Example example = run_example(in);
  write_example(page, in, example);
  write_attention(page, in, example);
  write_clusters(page, in, example);
  page.section("How this run was made");
  page.table("Configuration", in.configuration);
  page.table("Provenance", in.provenance);
  return page.html();
}

}  // namespace cairn::copy_task
