#include "apps/speech/report_page.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/progress.h"
#include "apps/common/report.h"
#include "apps/speech/features.h"
#include "apps/speech/report_analysis.h"
#include "core/ops.h"

namespace cairn::speech {
namespace {

using svg::number;
using Json = nlohmann::ordered_json;

// NaN for null, and for a run without an evaluation.
double metric(const Json& metrics, const char* name) {
  return metrics.is_null() || metrics.at(name).is_null() ? NAN : metrics.at(name).get<double>();
}

// ---- learning

// The curves in metrics.jsonl.
struct Curves {
  svg::Series loss, error_rate{"", {}, {}, 0, true};
};

Curves curves_of(const Artifact& run) try {
  Curves curves;
  for (const Json& line : run.lines()) {
    curves.loss.x.push_back(line.at("step"));
    curves.loss.y.push_back(line.at("loss"));
    if (!line.contains("evaluation")) continue;
    curves.error_rate.x.push_back(line.at("step"));
    curves.error_rate.y.push_back(metric(line.at("evaluation"), "phone_error_rate"));
  }
  return curves;
} catch (const Json::exception&) {
  throw DataError(concat(run / "metrics.jsonl", ": not the metrics of a speech run"));
}

void write_curves(Report& page, const Curves& curves, int64_t steps) {
  page.section("Learning");
  std::vector<Report::Picture> pictures;
  const auto add = [&](const std::string& caption, const svg::Axis& y, const svg::Series& series) {
    pictures.push_back(training_curve({y.label, caption, {}, y, {series}, {}}, steps));
  };
  const size_t batches = (curves.loss.x.size() + 99) / 100;
  add(concat("Training loss on a log scale. Each point is a mean over ", count(int64_t(batches), "step"), "."),
      {.label = "nats per sequence", .log = true}, means(curves.loss, batches));
  if (!curves.error_rate.x.empty())
    add("Phone error rate on dev. A model that answers nothing has 100%.",
        {.label = "phone error rate", .low = 0, .percent = true}, curves.error_rate);
  page.figures(pictures, 2);
}

// ---- one sentence

struct Example {
  const Sentence& sentence;
  int64_t stride;  // frames of a position
  std::vector<Spike> answer;
  Tensor probabilities;             // float32 [1, positions, classes]
  std::vector<Observation> layers;  // empty: the sentence is too long for dense weights
};

// The first sentence of dev that is short enough to show, or else the first, and what the model does with it.
Example run_example(SpeechTask& task) {
  const std::vector<Sentence>& dev = task.data().dev;
  const auto found = std::find_if(dev.begin(), dev.end(), [](const Sentence& s) { return s.frames() <= 700; });
  const Settings& settings = task.settings();
  Example example{found == dev.end() ? dev[0] : *found, settings.stride, {}, {}, {}};
  const Batch batch = make_batch({example.sentence}, settings);
  const Generator generator(~uint64_t(settings.compute.seed));
  const auto run = [&] {
    const Tensor logits = task.model()(batch, 0, {.generator = &generator}).value();
    example.answer = decode(argmax(logits).data<int32_t>(), batch.positions());
    example.probabilities = softmax(logits);
  };
  example.layers = observe_sequence(task.model().encoder.attentions(), batch.positions(), run);
  return example;
}

// When a frame begins to be the nearest one, in seconds.
double time_of(int64_t frame) { return frame_center_seconds + frame_seconds * (double(frame) - 0.5); }

// The frames [first, first + frames) of the sentence: whole positions.
std::string draw_frames(const Example& example, const FrontEnd& front_end, int64_t first, int64_t frames) {
  const Sentence& sentence = example.sentence;
  const int64_t stride = example.stride, end = std::min(first + frames, sentence.frames());
  svg::Strip strip{.map = svg::Heatmap(bins, frames, frames),
                   .x = {.label = "time (s)", .low = time_of(first), .high = time_of(first + frames)},
                   .above_label = sentence.alignment.empty() ? "" : "phones",
                   .map_label = "frequency",
                   .lines_label = "probability",
                   .below_label = "answer"};
  strip.map.title = "Spectrogram and answer";
  strip.map.edges = {-1.5, -1, -0.5, 0, 0.3, 0.6, 0.9, 1.2, 1.6};
  std::fill(strip.map.values.begin(), strip.map.values.end(), -10.0F);  // blank beyond the end
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

// The answer below the reference, phone by phone.
std::string draw_answer(const Example& example, const FrontEnd& front_end) {
  svg::Cells cells{"Reference and answer", "", {}, 25};
  const auto text = [&](int32_t label) { return label == 0 ? "–" : front_end.phone(label); };
  size_t column = 0;
  for (const auto& [expected, got] : align(example.sentence.labels, labels_of(example.answer))) {
    if (column++ % 24 == 0) cells.rows.insert(cells.rows.end(), {{"phones", {}, column > 1}, {"answer", {}}});
    (cells.rows.end() - 2)->cells.push_back({text(expected), "cell"});
    cells.rows.back().cells.push_back({text(got), expected == got ? "cell" : "wrong"});
  }
  return svg::draw(cells);
}

void write_sentence(Report& page, const Example& example, const FrontEnd& front_end) {
  page.section("One sentence");
  constexpr int64_t row_frames = 240, most_rows = 6;
  const int64_t frames = example.sentence.frames(), shown = std::min(frames, most_rows * row_frames);
  // Rows of equal length, and of whole positions.
  const int64_t rows = (shown + row_frames - 1) / row_frames;
  const int64_t step = position_count((shown + rows - 1) / rows, example.stride) * example.stride;
  std::vector<Report::Picture> pictures;
  for (int64_t begin = 0; begin < shown; begin += step)
    pictures.push_back({draw_frames(example, front_end, begin, step), ""});
  page.text(concat(example.sentence.name, ", a sentence of dev of ", number(time_of(frames)), " seconds",
                   shown < frames ? ". This is its beginning" : "",
                   example.sentence.alignment.empty() ? ". The data does not say when its phones are spoken."
                                                      : ". At the top are its phones, when they are spoken."));
  pictures.back().caption = concat(
      "Frequency: ", bins, " bands in mel, from 20 Hz (bottom) to 8 kHz; a strong color is loud for its band. ",
      "Probability, from 0 to 1: gray for CTC's blank; a peak for each answered phone, at one position (",
      example.stride * 10, " ms). CTC leaves open at which one, so a peak may be early or late. Wrong phones are red.");
  page.figures(pictures, 1);
  page.figure({draw_answer(example, front_end), "The phones without times. Red: an error; a dash: no phone."});
}

// ---- all of dev

void write_errors(Report& page, const SpeechTask& task) {
  page.section("Errors by phone");
  const FrontEnd& front_end = task.data().front_end;
  int64_t spoken = 0, substituted = 0, deleted = 0, inserted = 0;
  std::vector<std::vector<std::string>> rows;
  for (const PhoneErrors& phone : errors_by_phone(join(task.data().dev, task.settings().join),
                                                  task.recognize_dev(false).answers, front_end.classes())) {
    spoken += phone.spoken;
    substituted += phone.substituted();
    deleted += phone.deleted;
    inserted += phone.inserted;
    if (rows.size() == 12 || phone.errors() == 0) continue;
    const auto most = std::max_element(phone.taken_for.begin(), phone.taken_for.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    rows.push_back({front_end.phone(phone.label), number(double(phone.spoken)),
                    number(double(phone.right) / double(phone.spoken), true),
                    most == phone.taken_for.end() ? "–" : concat(front_end.phone(most->first), " (", most->second, ")"),
                    number(double(phone.deleted)), number(double(phone.inserted))});
  }
  page.text(concat(count(int64_t(task.data().dev.size()), "sentence"), " of dev with ", count(spoken, "phone"), ": ",
                   count(substituted, "substitution"), " (another phone), ", count(deleted, "deletion"), ", ",
                   count(inserted, "insertion"), " (a phone too many). The phones with most errors:"));
  page.table({"phone", "in the reference", "right", "most often taken for", "deletions", "insertions"}, rows);
}

// ---- attention

constexpr int64_t reach = 5;  // positions; attention beyond them is far

// The share of a head's weights [n, n] that is far.
double far_share(const float* weights, int64_t n) {
  double far = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      if (std::abs(i - j) > reach) far += double(weights[i * n + j]);
  return far / double(n);
}

void write_attention(Report& page, const std::string& attention, const Example& example) {
  page.section("What the attention looks at");
  if (attention == "none") return page.text("This model has no attention.");
  if (example.layers.empty()) return page.text("The sentence is too long to show attention weights.");
  const int64_t n = example.probabilities.size(1);
  std::vector<ShownHead> heads;
  for (const Observation& seen : example.layers) {
    std::vector<double> shares;
    for (int64_t head = 0; head < seen.weights.size(1); ++head)
      shares.push_back(far_share(seen.weights.data<float>() + head * n * n, n));
    const auto most = std::max_element(shares.begin(), shares.end());
    heads.push_back({most - shares.begin(), concat("Far away: ", number(*most, true))});
  }
  const std::string reading = concat(
      "Attention weights in the sentence above, for the head of each layer that has most weight on positions more "
      "than ",
      reach, " (", reach * example.stride * 10, " ms) away; those of a variant beside full attention on the same ",
      "queries and keys. Rows are query positions, columns key positions, in order of time; a row sums to 100%.");
  write_attention_maps(page, attention, example.layers, heads, reading);
}

// Writes nothing for a variant without clusters.
void write_clusters(Report& page, SpeechTask& task) {
  std::vector<Sentence> sentences = task.data().dev;
  sentences.resize(std::min<size_t>(sentences.size(), 16));
  const auto layers = purity(task.model(), sentences, task.settings());
  if (layers.empty()) return;
  page.section("Do clusters follow phones?");
  if (layers[0][0].positions == 0) return page.text("The data does not say when phones are spoken.");
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<Purity>& heads : layers) {
    rows.push_back({concat("Layer ", rows.size() + 1)});
    for (const auto groups : {&Purity::clusters, &Purity::runs, &Purity::random, &Purity::whole}) {
      std::vector<double> shares;
      for (const Purity& head : heads) shares.push_back(double(head.*groups) / double(head.positions));
      rows.back().push_back(number(median(shares), true));
    }
  }
  page.text(concat(
      "Purity: the share of positions whose phone, or pause, is the most frequent one of their cluster. Small groups ",
      "are pure by chance, and neighbors share phones. So compare with groups of the same sizes: runs of consecutive ",
      "positions, and random groups; and with a single group. Over ", count(int64_t(sentences.size()), "sentence"),
      " of dev, one by one; the median over the heads."));
  page.table({"", "clusters", "runs of positions", "random groups", "a single group"}, rows);
}

}  // namespace

void write_report(Artifact& run, SpeechTask& task, const TrainState& state, const Json& result) {
  if (!run.keeps()) return;
  const NoGrad no_grad;
  Model& model = task.model();
  model.place(Device::cpu, DType::float32);
  const Settings& settings = task.settings();
  const std::string& attention = settings.model.attention;
  const Curves curves = curves_of(run);
  const std::vector<double>& evaluated = curves.error_rate.x;
  const Json& found = result.is_null() ? state.metrics : result;
  const std::string when = !result.is_null()   ? chosen_model(result)
                           : evaluated.empty() ? "not evaluated yet"
                                               : concat("last evaluation, at step ", evaluated.back());
  Report page(
      concat("Speech recognition with ", attention, " attention"),
      concat("A transformer with ", count(settings.model.layers, "layer"), " of ", count(settings.model.heads, "head"),
             " learned to write down phones, the sounds of speech. It was not told when they are spoken."));
  page.summary({{"Phone error rate on dev", number(metric(found, "phone_error_rate"), true), when},
                {"Loss on dev", number(metric(found, "loss")), "nats per phone"},
                {"Training", clock_time(state.seconds),
                 concat(count(state.step, "step"), ", ", count(int64_t(task.data().train.size()), "sentence"))},
                {"Parameters", number(double(parameter_count(model))), concat("seed ", settings.compute.seed)}});
  page.text(
      "Phone error rate: substitutions, deletions and insertions, divided by the number of spoken phones. Dev: "
      "sentences that the model did not learn from, but that chose the best model.");
  if (result.is_null()) {
    const auto best = newest_checkpoint(run.folder() / "best");
    page.text(concat("The run was interrupted after ", count(state.step, "step"), ". The model of step ",
                     best ? state_of(*best).step : state.step, " made the pictures and tables below."));
  }
  int64_t longest = 0;
  for (const Sentence& sequence : join(task.data().dev, settings.join))
    longest = std::max(longest, position_count(sequence.frames(), settings.stride));
  const std::string note = full_attention_note(*model.encoder.attentions()[0]->attention, longest, longest);
  if (!note.empty()) page.text(note + ".");
  write_curves(page, curves, state.step);
  const Example example = run_example(task);
  write_sentence(page, example, task.data().front_end);
  write_errors(page, task);
  write_attention(page, attention, example);
  write_clusters(page, task);
  write_origin(page, run);
  run.write("report.html", page.html());
}

}  // namespace cairn::speech
