#include "apps/speech/report.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/common/training_run.h"
#include "apps/speech/features.h"
#include "apps/speech/train.h"
#include "autograd/ops.h"
#include "nn/io/json.h"

namespace cairn::speech {
namespace {

using svg::number;

// ---- one sentence

struct Example {
  const Sentence& sentence;
  int64_t stride;  // frames of a position
  std::vector<Spike> answer;
  Tensor probabilities;             // float32 [1, positions, classes]
  std::vector<Observation> layers;  // empty: the sentence is too long for dense weights
};

// What the model does with a sentence.
Example run_example(Model& model, const Sentence& sentence, const Settings& settings) {
  Example example{sentence, settings.stride, {}, {}, {}};
  const Batch batch = make_batch({sentence}, settings);
  const Generator generator(~uint64_t(settings.compute.seed));
  const auto run = [&] {
    const Tensor logits = model(batch, 0, {.generator = &generator}).value();
    example.answer = decode(argmax(logits).data<int32_t>(), batch.positions());
    example.probabilities = softmax(logits).value();
  };
  example.layers = observe_sequence(model.encoder.attentions(), batch.positions(), run);
  return example;
}

// When a frame begins to be the nearest one, in seconds.
double time_of(int64_t frame) { return frame_center_seconds + frame_seconds * (double(frame) - 0.5); }

// The frames [first, first + frames) of the sentence: whole positions.
std::string draw_frames(const Example& example, const FrontEnd& front_end, int64_t first, int64_t frames) {
  const Sentence& sentence = example.sentence;
  const int64_t stride = example.stride, end = std::min(first + frames, sentence.frames());
  const int64_t bins = sentence.filterbanks();
  svg::Strip strip{svg::Heatmap(bins, frames, std::max(bins, frames))};  // a cell for each value
  strip.x.label = "time (s)";
  strip.x.low = time_of(first);
  strip.x.high = time_of(first + frames);
  if (!sentence.alignment.empty()) strip.above_label = "phones";
  strip.map_label = "frequency";
  strip.lines_label = "probability";
  strip.below_label = "answer";
  strip.map.title = "Spectrogram and answer";
  strip.map.edges = {-1.5, -1, -0.5, 0, 0.3, 0.6, 0.9, 1.2, 1.6};
  for (int64_t frame = first; frame < end; ++frame)
    for (int64_t bin = 0; bin < bins; ++bin)  // the lowest at the bottom
      strip.map.values[size_t((bins - 1 - bin) * frames + frame - first)] =
          sentence.features.data<float>()[frame * bins + bin];
  const std::vector<int32_t>& phones = sentence.alignment;
  for (int64_t begin = first, next; begin < end && !phones.empty(); begin = next) {
    const int32_t label = phones[size_t(begin)];
    for (next = begin + 1; next < end && phones[size_t(next)] == label;) ++next;
    if (label != 0) strip.above.push_back({time_of(begin), time_of(next), front_end.phone(label)});
  }
  // The probability of a label at the positions from `low` up to `high`, as far as they are in the row.
  const auto add_line = [&](int32_t label, int64_t low, int64_t high, int color) {
    svg::Series& line = strip.lines.emplace_back();
    line.color = color;
    for (int64_t i = std::max(low, first / stride); i < std::min(high, position_count(end, stride)); ++i) {
      line.x.push_back((time_of(i * stride) + time_of((i + 1) * stride)) / 2);
      line.y.push_back(double(example.probabilities.data<float>()[i * front_end.classes() + label]));
    }
  };
  add_line(0, 0, end, 7);
  size_t spikes = 0;
  for (const auto& [expected, got] : align(sentence.labels, labels_of(example.answer))) {
    if (got == 0) continue;
    const int64_t position = example.answer[spikes++].position, begin = position * stride;
    if (begin < first || begin >= end) continue;
    add_line(got, position - 2, position + 3, expected == got ? 0 : 1);
    strip.below.push_back({time_of(begin), time_of(begin + stride), front_end.phone(got), expected != got});
  }
  return svg::draw(strip);
}

void write_sentence(Report& page, const Example& example, const FrontEnd& front_end) {
  page.section("One sentence");
  constexpr int64_t row_frames = 240, most_rows = 6;
  const int64_t frames = example.sentence.frames(), shown = std::min(frames, most_rows * row_frames);
  // Rows of equal length, and of whole positions.
  const int64_t rows = (shown + row_frames - 1) / row_frames;
  const int64_t row = position_count((shown + rows - 1) / rows, example.stride) * example.stride;
  std::vector<svg::Picture> pictures;
  for (int64_t begin = 0; begin < shown; begin += row)
    pictures.push_back({draw_frames(example, front_end, begin, row), ""});
  page.text(concat(example.sentence.name, ", a sentence of dev of ", number(time_of(frames)), " seconds",
                   shown < frames ? ". This is its beginning" : "",
                   example.sentence.alignment.empty() ? ". The data does not say when its phones are spoken."
                                                      : ". At the top are its phones, when they are spoken."));
  pictures.back().caption = concat(
      "Frequency: ", front_end.filterbanks(),
      " bands in mel, from 20 Hz (bottom) to 8 kHz; a strong color is loud for its band. ",
      "Probability, from 0 to 1: gray for CTC's blank; a peak for each answered phone, at one position (",
      example.stride * 10, " ms). CTC leaves open at which one, so a peak may be early or late. Wrong phones are red.");
  page.figures(pictures, 1);
}

// ---- all of dev

// counts: Recognition::confusions.
void write_errors(Report& page, const std::vector<std::vector<int64_t>>& counts, const FrontEnd& front_end) {
  page.section("Errors by phone");
  const auto sum = [](const std::vector<int64_t>& row) { return std::accumulate(row.begin(), row.end(), int64_t(0)); };
  std::vector<std::pair<int64_t, size_t>> errors;  // of each label
  int64_t spoken = 0, right = 0, deleted = 0;
  for (size_t label = 1; label < counts.size(); ++label) {
    const int64_t here = sum(counts[label]);
    errors.emplace_back(here - counts[label][label] + counts[0][label], label);
    spoken += here;
    right += counts[label][label];
    deleted += counts[label][0];
  }
  std::stable_sort(errors.begin(), errors.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  errors.resize(std::min<size_t>(errors.size(), 12));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [wrong, label] : errors) {
    const int64_t here = sum(counts[label]);
    std::vector<int64_t> others = counts[label];
    others[0] = others[label] = 0;
    const auto most = std::max_element(others.begin(), others.end());
    const auto other = int32_t(most - others.begin());
    rows.push_back({front_end.phone(int32_t(label)), number(double(here)),
                    number(double(counts[label][label]) / double(here), true),
                    *most == 0 ? "–" : concat(front_end.phone(other), " (", *most, ")"),
                    number(double(counts[label][0])), number(double(counts[0][label]))});
  }
  page.text(concat("In dev there are ", count(spoken, "phone"), ". Errors: ",
                   count(spoken - right - deleted, "substitution"), " (another phone), ", count(deleted, "deletion"),
                   ", ", count(sum(counts[0]), "insertion"), " (a phone too many). The phones with most errors:"));
  page.table({"phone", "in the reference", "right", "most often taken for", "deletions", "insertions"}, rows);
}

// ---- attention

constexpr int64_t reach = 5;  // positions; attention beyond them is far

void write_attention(Report& page, const std::string& attention, const Example& example) {
  page.section("What the attention looks at");
  if (attention == no_attention) return page.text("This model has no attention.");
  if (example.layers.empty()) return page.text("The sentence is too long to show attention weights.");
  const std::string reading = concat(
      "Attention weights in the sentence above, for the head of each layer that has most weight on positions more "
      "than ",
      reach, " (", reach * example.stride * 10, " ms) away; those of a variant beside full attention on the same ",
      "queries and keys. Rows are query positions, columns key positions, in order of time; a row sums to 100%.");
  const auto far = weight_shares(example.layers, example.probabilities.size(1),
                                 [](int64_t i, int64_t j) { return std::abs(i - j) > reach; });
  write_attention_maps(page, attention, example.layers, far, "Far away", reading);
}

// ---- clusters

// The positions whose phone is the most frequent one of their cluster (or run).
int64_t in_majority(const std::vector<int32_t>& labels, const std::vector<int32_t>& phones) {
  std::map<std::pair<int32_t, int32_t>, int64_t> counts;
  std::map<int32_t, int64_t> most;  // by label
  int64_t sum = 0;                  // of `most`
  for (size_t i = 0; i < labels.size(); ++i) {
    if (++counts[{labels[i], phones[i]}] <= most[labels[i]]) continue;
    ++most[labels[i]];
    ++sum;
  }
  return sum;
}

// Of each layer, over the sentences with an alignment; empty: the attention has no clusters.
std::vector<Purity> purity_of(Model& model, const std::vector<Sentence>& sentences, const Settings& settings) {
  Generator generator(~uint64_t(settings.compute.seed));
  const auto layers = model.encoder.attentions();
  std::vector<Purity> result(layers.size());
  for (const Sentence& sentence : sentences) {
    generator.advance();
    const Batch batch = make_batch({sentence}, settings);
    const auto seen = observe(
        layers, [&] { model(batch, 0, {.generator = &generator}); }, false);
    if (!seen[0].choices.labels.defined()) return {};
    if (sentence.alignment.empty()) continue;
    const int64_t n = seen[0].choices.labels.size(2);
    for (size_t i = 0; i < layers.size(); ++i)
      for (int64_t head = 0; head < settings.model.heads; ++head) {
        const auto* labels = seen[i].choices.labels.data<int32_t>() + head * n;
        result[i].add({labels, labels + n}, sentence.alignment, settings.stride);
      }
  }
  return result;
}

void write_clusters(Report& page, const std::vector<Purity>& layers) {
  if (layers.empty()) return;
  page.section("Do clusters follow phones?");
  if (layers[0].positions == 0) return page.text("The data does not say when phones are spoken.");
  page.text(
      "Purity: the share of positions whose phone, or pause, is the most frequent one of their cluster. Small clusters "
      "are pure by chance, and neighbors share phones. So compare with runs of consecutive positions, as long as the "
      "clusters are large. Counted over all heads of a layer and all sentences of dev, each by itself.");
  std::vector<std::vector<std::string>> rows;
  for (const Purity& layer : layers) {
    const auto share = [&](int64_t pure) { return number(double(pure) / double(layer.positions), true); };
    rows.push_back({concat("Layer ", rows.size() + 1), share(layer.clusters), share(layer.runs)});
  }
  page.table({"", "clusters", "runs of positions"}, rows);
}

}  // namespace

void Purity::add(std::vector<int32_t> labels, const std::vector<int32_t>& alignment, int64_t stride) {
  std::vector<int32_t> phones;
  for (size_t i = 0; i < labels.size(); ++i)
    phones.push_back(alignment[std::min(i * size_t(stride) + size_t(stride) / 2, alignment.size() - 1)]);
  positions += int64_t(labels.size());
  clusters += in_majority(labels, phones);
  std::sort(labels.begin(), labels.end());
  runs += in_majority(labels, phones);
}

void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  const TrainingData& data, Model& model) {
  const NoGrad no_grad;
  place(model, {Device::cpu, DType::float32});
  const std::string& attention = settings.model.attention;
  const Json& found = result.is_null() ? state.metrics : result;
  const auto metric = [&](const char* name) { return found.is_null() ? NAN : number_or_nan(found.at(name)); };
  Report page(
      concat("Speech recognition with ", attention, " attention"),
      concat("A transformer with ", count(settings.model.layers, "layer"), " of ", count(settings.model.heads, "head"),
             " learned to write down phones, the sounds of speech. It was not told when they are spoken."));
  page.summary({{"Phone error rate on dev", number(metric("phone_error_rate"), true),
                 result.is_null() ? "last evaluation" : evaluated_model(result)},
                {"Loss on dev", number(metric("loss")), "nats per phone"},
                {"Training", clock_time(state.seconds),
                 concat(count(state.step, "step"), ", ", count(int64_t(data.train.size()), "sentence"))},
                {"Parameters", number(double(parameter_count(model))), concat("seed ", settings.compute.seed)}});
  page.text(
      "Phone error rate: substitutions, deletions and insertions, divided by the number of spoken phones. Dev: "
      "sentences that the model did not learn from, but that chose the best model.");
  if (result.is_null())
    page.text(concat("The run was interrupted after ", count(state.step, "step"),
                     ". What follows shows the best model of an evaluation, or without one the last model."));
  const std::vector<Sentence> sequences = join(data.dev, settings.join);
  int64_t longest = 0;
  for (const Sentence& sequence : sequences)
    longest = std::max(longest, position_count(sequence.frames(), settings.stride));
  const std::string note = full_attention_note(*model.encoder.attentions()[0]->attention, longest, longest);
  if (!note.empty()) page.text(note + ".");

  svg::LineChart errors;
  errors.title = "Phone error rate on dev";
  errors.description = "Phone error rate on dev. A model that answers nothing has 100%.";
  errors.y = {.label = "phone error rate", .low = 0, .percent = true};
  errors.series = {evaluation_curve(run, "phone_error_rate", "")};
  write_curves(page, run, state.step, "nats per sequence", errors);

  const auto is_short = [](const Sentence& sentence) { return sentence.frames() <= 700; };
  const auto shown = std::find_if(data.dev.begin(), data.dev.end(), is_short);
  const Example example = run_example(model, shown == data.dev.end() ? data.dev[0] : *shown, settings);
  write_sentence(page, example, data.front_end);
  write_errors(page, recognize(model, sequences, settings).confusions, data.front_end);
  write_attention(page, attention, example);
  write_clusters(page, purity_of(model, data.dev, settings));
  write_page(page, run);
}

}  // namespace cairn::speech
