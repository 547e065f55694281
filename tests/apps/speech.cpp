// Speech: features, batches and decoding. speech.txt has the program's sessions.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/common/bootstrap.h"
#include "apps/speech/batches.h"
#include "apps/speech/containers.h"
#include "apps/speech/decode.h"
#include "apps/speech/features.h"
#include "apps/speech/model.h"
#include "nn/attention/observe.h"
#include "nn/io/safetensors.h"
#include "tests/io/io_test.h"

namespace {

using namespace cairn;
using namespace cairn::speech;
using Catch::Matchers::ContainsSubstring;

constexpr int64_t bins = default_filterbanks;
const std::string golden = CAIRN_SOURCE_DIR "/tests/golden/speech/";
using Labels = std::vector<int32_t>;

// A sentence whose feature `bin` of frame t is 100 t + bin.
Sentence counting(int64_t frames, const Labels& labels = {1}) {
  std::vector<float> features;
  for (int64_t i = 0; i < frames * bins; ++i) features.push_back(float(100 * (i / bins) + i % bins));
  return {concat("of ", frames), Tensor::from(features, {frames, bins}), labels, {}};
}

Settings settings_with(int64_t stride, int64_t splice) {
  Settings settings;
  settings.stride = stride;
  settings.splice = splice;
  return settings;
}

TEST_CASE("log-mel features are those of kaldi-native-fbank") {
  for (const int64_t filterbanks : {40, 80}) {
    const Tensor expected = read_safetensors(golden + "tone.safetensors").at(concat("features", filterbanks));
    const Tensor got = read_recording(golden + "tone.wav", filterbanks).features;
    REQUIRE(got.shape() == expected.shape());
    for (int64_t i = 0; i < got.elements(); ++i)
      // The values are 5 to 20. Both sum squares in float32, in different orders. On ARM, kissfft fuses multiply-adds.
      CHECK(got.data<float>()[i] == Approx(expected.data<float>()[i]).margin(2e-3));
  }
  // Each filter sees a point of the spectrum; the logarithm of nothing is -16.
  const Tensor most = read_recording(golden + "tone.wav", most_filterbanks).features;
  for (const float x : most.to_vector<float>()) CHECK(x > -10);
}

std::string bytes_of(uint64_t value, size_t count, bool big_endian = false) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += char(value >> 8 * (big_endian ? count - 1 - i : i));
  return bytes;
}

TEST_CASE("a file that ends before its samples is cut off, whatever its container") {
  const std::string samples(101, '\1'), tags = "LIST" + bytes_of(4001, 4) + std::string(4002, '\0');
  const auto page = [&](uint64_t flags) {
    return "OggS" + bytes_of(flags << 8, 8) + std::string(14, '\0') + "\1" + char(101) + samples;
  };
  const std::pair<const char*, std::string> files[] = {
      {"WAV", "RIFF....WAVE" + tags + "data" + bytes_of(101, 4) + samples},
      {"big-endian WAV", "RIFX....WAVEdata" + bytes_of(101, 4, true) + samples},
      {"RF64", "RF64....WAVEds64" + bytes_of(16, 4) + bytes_of(0, 8) + bytes_of(101, 8) + "data" +
                   bytes_of(0xffffffff, 4) + samples},
      {"W64", "riff\x2e\x91\xcf\x11" + std::string(32, '.') + "JUNK" + std::string(12, '.') + bytes_of(25, 8) +
                  std::string(8, '\0') + "data" + std::string(12, '.') + bytes_of(125, 8) + samples},
      {"AIFF", "FORM....AIFFSSND" + bytes_of(101, 4, true) + samples},
      {"CAF", "caff....data" + bytes_of(101, 8, true) + samples},
      {"AU", ".snd" + bytes_of(12, 4, true) + bytes_of(101, 4, true) + samples},
      {"Ogg", page(2) + page(0) + page(4)},
  };
  for (const auto& [container, file] : files) {
    CAPTURE(container);
    CHECK_FALSE(find_samples(file).cut_off);
    CHECK_FALSE(find_samples(file + "more").cut_off);
    for (const size_t missing : {1, 60, 101}) CHECK(find_samples(file.substr(0, file.size() - missing)).cut_off);
  }
  CHECK(find_samples(page(2) + page(0)).cut_off);
}

TEST_CASE("a WAV file that was streamed does not tell its size") {
  const std::string head = "RIFF....WAVEdata", samples(101, '\1');
  for (const uint64_t size : {0xffffffffU, 0xffffff00U, 0x7ffff000U, 0x80000000U, 0U})
    CHECK_FALSE(find_samples(head + bytes_of(size, 4) + samples).cut_off);
  CHECK(find_samples(head + bytes_of(0, 4) + samples).streamed_from == 20);
  CHECK(find_samples(head + bytes_of(0, 4) + "LIST" + bytes_of(101, 4) + samples).streamed_from == 0);
}

TEST_CASE("greedy decoding of CTC") {
  const Labels best{0, 1, 1, 0, 1, 2, 2, 0, 0, 3, 3};
  const std::vector<Spike> spikes = decode(best.data(), 10);
  CHECK(labels_of(spikes) == Labels{1, 1, 2, 3});
  std::vector<int64_t> positions;
  for (const Spike& spike : spikes) positions.push_back(spike.position);
  CHECK(positions == std::vector<int64_t>{1, 4, 5, 9});
  CHECK(decode(best.data(), 0).empty());
}

TEST_CASE("the fewest positions for labels") {
  CHECK(positions_needed({}) == 0);
  CHECK(positions_needed({1, 2, 1}) == 3);
  CHECK(positions_needed({1, 1, 2, 2, 2}) == 8);
}

TEST_CASE("labels of a reference and an answer are aligned with the fewest errors") {
  using Pairs = std::vector<std::pair<int32_t, int32_t>>;
  CHECK(align({}, {}) == Pairs{});
  CHECK(align({1, 2}, {}) == Pairs{{1, 0}, {2, 0}});
  CHECK(align({}, {1}) == Pairs{{0, 1}});
  CHECK(align({1, 2, 3}, {1, 3}) == Pairs{{1, 1}, {2, 0}, {3, 3}});
  CHECK(align({1, 2}, {1, 3, 2}) == Pairs{{1, 1}, {0, 3}, {2, 2}});
  CHECK(align({1, 2, 3}, {1, 4, 3}) == Pairs{{1, 1}, {2, 4}, {3, 3}});
  // "kitten" and "sitting" differ by two substitutions and an insertion.
  const Pairs pairs = align({11, 9, 20, 20, 5, 14}, {19, 9, 20, 20, 9, 14, 7});
  CHECK(std::count_if(pairs.begin(), pairs.end(), [](const auto& pair) { return pair.first != pair.second; }) == 3);
}

TEST_CASE("a position sees its frames and their neighbors") {
  const Batch batch = make_batch({counting(7, {5, 6}), counting(4)}, settings_with(3, 1));
  REQUIRE(batch.input.shape() == Shape{2, 3, 5 * bins});
  // The first features of the five frames that a position sees; 0: beyond an end (frame 0 has 0 too).
  const auto frames_of = [&](int64_t sequence, int64_t position) {
    std::vector<float> first;
    for (int64_t frame = 0; frame < 5; ++frame)
      first.push_back(batch.input.at<float>({sequence, position, frame * bins + 1}));
    return first;
  };
  CHECK(frames_of(0, 0) == std::vector<float>{0, 1, 101, 201, 301});
  CHECK(frames_of(0, 1) == std::vector<float>{201, 301, 401, 501, 601});
  CHECK(frames_of(0, 2) == std::vector<float>{501, 601, 0, 0, 0});
  CHECK(frames_of(1, 1) == std::vector<float>{201, 301, 0, 0, 0});
  CHECK(frames_of(1, 2) == std::vector<float>{0, 0, 0, 0, 0});
  CHECK(batch.lengths.to_vector<int32_t>() == Labels{3, 2});
  CHECK(batch.targets.to_vector<int32_t>() == Labels{5, 6, 1, 0});
  CHECK(batch.target_lengths.to_vector<int32_t>() == Labels{2, 1});
}

TEST_CASE("sentences are joined one after another") {
  const std::vector<Sentence> sequences = join({counting(2, {1}), counting(3, {2, 3}), counting(1, {4})}, 2);
  REQUIRE(sequences.size() == 2);
  CHECK(sequences[0].frames() == 5);
  CHECK(sequences[0].labels == Labels{1, 2, 3});
  CHECK(sequences[0].features.at<float>({2, 1}) == 1);  // frame 0 of the second
  CHECK(sequences[1].labels == Labels{4});
}

TEST_CASE("batches have at most so many frames with padding, and similar lengths") {
  using Batches = std::vector<std::vector<size_t>>;
  const std::vector<Sentence> sentences{counting(30), counting(10), counting(50), counting(11), counting(12)};
  CHECK(cut_batches(sentences, 40) == Batches{{1, 3, 4}, {0}, {2}});
  CHECK(cut_batches(sentences, 60) == Batches{{1, 3, 4}, {0}, {2}});
  CHECK(cut_batches({counting(10), counting(10), counting(10)}, 20) == Batches{{0, 1}, {2}});
  CHECK(cut_batches({}, 20).empty());
}

TEST_CASE("an epoch has every sentence once, in an order of its own, which a later start finds again") {
  std::vector<Sentence> sentences;
  for (int32_t i = 1; i <= 12; ++i) sentences.push_back(counting(10 * i, {i}));
  Settings settings;
  settings.join = 2;
  settings.batch_frames = 300;
  Epochs epochs(sentences, settings), again(sentences, settings);
  // The sentences of a step's sequences.
  const auto of_step = [](Epochs& from, int64_t step) {
    std::vector<Labels> labels;
    for (const Sentence& sequence : from.sequences(step)) labels.push_back(sequence.labels);
    return labels;
  };
  int64_t step = 0;
  std::set<std::vector<Labels>> orders;
  std::vector<Labels> last;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<Labels> sequences;
    std::set<int32_t> seen;
    while (sequences.size() < 6) {
      last = of_step(epochs, step++);
      sequences.insert(sequences.end(), last.begin(), last.end());
    }
    for (const Labels& sequence : sequences) seen.insert(sequence.begin(), sequence.end());
    CHECK(seen.size() == 12);
    orders.insert(sequences);
  }
  CHECK(orders.size() == 3);
  CHECK(of_step(again, step - 1) == last);  // without the steps before
}

TEST_CASE("SpecAugment hides two bands of bins and two spans of frames") {
  std::set<int64_t> hidden_bins, hidden_frames;
  for (uint64_t step = 0; step < 20; ++step) {
    Sentence sentence{"", Tensor::full({100, bins}, 1), {1}, {}};
    const Tensor before = sentence.features;
    RandomStream random(1, step, Purpose::test);
    hide_at_random(sentence, random);
    CHECK(before.at<float>({0, 0}) == 1);  // the data stay as they are
    int64_t bands = 0, spans = 0;
    for (int64_t bin = 0; bin < bins; ++bin) {
      bool all = true;
      for (int64_t frame = 0; frame < 100; ++frame) all = all && sentence.features.at<float>({frame, bin}) == 0;
      bands += all;
    }
    for (int64_t frame = 0; frame < 100; ++frame) {
      bool all = true;
      for (int64_t bin = 0; bin < bins; ++bin) all = all && sentence.features.at<float>({frame, bin}) == 0;
      spans += all;
    }
    CHECK(bands <= 16);
    CHECK(spans <= 50);
    hidden_bins.insert(bands);
    hidden_frames.insert(spans);
  }
  CHECK(hidden_bins.size() > 5);
  CHECK(hidden_frames.size() > 5);
}

TEST_CASE("offset heads look at the neighbors of their position when training starts") {
  Settings settings;
  settings.model.layers = 1;
  settings.model.heads = 4;
  settings.model.head_size = 36;
  Generator generator(1);
  const Model model(settings, bins, 3, generator);
  const Batch batch = make_batch({{"", Tensor::zeros({180, bins}), {1}, {}}}, settings);
  const NoGrad no_grad;
  const auto seen = observe({&model.encoder.layers[0]->attention}, [&] { model(batch, 0, {}); });
  const int64_t offsets[] = {-2, -1, 1, 2};
  for (int64_t head = 0; head < 4; ++head)
    for (int64_t i = 10; i < 50; ++i) {
      const auto* row = seen[0].weights.data<float>() + (head * 60 + i) * 60;
      CHECK(std::abs(std::max_element(row, row + 60) - row - (i + offsets[head])) <= 1);
    }
}

TEST_CASE("far heads look at one distance each, when training starts") {
  Settings settings;
  settings.init = Settings::Start::far;
  settings.model.layers = 1;
  settings.model.heads = 4;
  settings.model.head_size = 36;
  Generator generator(1);
  const Model model(settings, bins, 3, generator);
  constexpr int64_t n = 700, middle = n / 2;  // positions, and one that sees all distances
  const Batch batch = make_batch({{"", Tensor::zeros({3 * n, bins}), {1}, {}}}, settings);
  const NoGrad no_grad;
  const auto seen = observe({&model.encoder.layers[0]->attention}, [&] { model(batch, 0, {}); });
  int64_t longest = 0;
  for (int64_t head = 0; head < 4; ++head) {
    const auto distance = [&](int64_t i) {
      const auto* row = seen[0].weights.data<float>() + (head * n + i) * n;
      return std::max_element(row, row + n) - row - i;
    };
    CHECK(((distance(middle) < 0) == (head < 2)));
    for (int64_t i = middle - 20; i < middle + 20; ++i) CHECK(std::abs(distance(i) - distance(middle)) <= 1);
    longest = std::max(longest, std::abs(distance(middle)));
  }
  CHECK(longest > 32);
  CHECK(longest <= 321);
}

TEST_CASE("a model's answer does not depend on the batch that a sentence is in") {
  Settings settings;
  settings.init = Settings::Start::plain;  // heads that look everywhere
  settings.model.layers = 2;
  Generator generator(1);
  Model model(settings, bins, 30, generator);  // many classes, so that padding would answer something else
  const NoGrad no_grad;
  model.output.bias.mutable_value().mutable_data<float>()[0] = 0;  // or all answers would be blanks
  RandomStream random(1, 0, Purpose::test);
  const Sentence sentence{"", random_normal({30, bins}, random), {1, 2, 1}, {}};
  const Sentence longer{"", random_normal({50, bins}, random), {2, 1}, {}};
  const Tensor alone = model(make_batch({sentence}, settings), 0, {}).value();
  const Tensor padded = model(make_batch({sentence, longer}, settings), 0, {}).value();
  for (int64_t i = 0; i < alone.elements(); ++i)
    CHECK(padded.data<float>()[i] == Approx(alone.data<float>()[i]).margin(1e-5));
  const Tensor shifted = model(make_batch({sentence}, settings), 7, {}).value();
  CHECK(shifted.at<float>({0, 0, 0}) != alone.at<float>({0, 0, 0}));

  const Recognition both = recognize(model, {sentence, longer}, settings);
  const Recognition one = recognize(model, {sentence}, settings);
  CHECK(labels_of(both.answers[0]) == labels_of(one.answers[0]));
  CHECK(both.answers[0].back().position == one.answers[0].back().position);
  double errors = 0;
  std::vector<std::vector<int64_t>> confusions(30, std::vector<int64_t>(30));
  for (const size_t i : {0, 1})
    for (const auto& [expected, got] : align(i == 0 ? sentence.labels : longer.labels, labels_of(both.answers[i]))) {
      ++confusions[size_t(expected)][size_t(got)];
      errors += expected != got;
    }
  CHECK(both.confusions == confusions);
  CHECK(both.phone_error_rate == errors / 5);
  CHECK(double(both.errors[0] + both.errors[1]) == errors);
  CHECK((one.errors[0] == both.errors[0] && both.errors[1] != both.errors[0]));
  CHECK(one.seconds > 0);
}

TEST_CASE("a difference of error rates: the interval is over the sequences, which both models share") {
  std::vector<double> hard, worse, mixed, phones;
  for (int i = 0; i < 400; ++i) {
    phones.push_back(10);
    hard.push_back(i % 10);                          // of very different difficulty,
    worse.push_back(hard.back() + 1);                // but one model makes an error more in each
    mixed.push_back(hard.back() + (i % 2 * 2 - 1));  // or one more and one fewer in turn
  }
  const Difference same = difference_of(hard, hard, phones), always = difference_of(worse, hard, phones);
  CHECK((same.value == 0 && same.low == 0 && same.high == 0));
  CHECK(always.value == Approx(0.1));
  CHECK((always.low == Approx(0.1) && always.high == Approx(0.1)));
  // The standard error of a mean of 400 numbers, each 0.1 or -0.1.
  const Difference chance = difference_of(mixed, hard, phones);
  CHECK(chance.value == Approx(0).margin(1e-12));
  CHECK(chance.low == Approx(-1.96 * 0.1 / 20).epsilon(0.05));
  CHECK(chance.high == Approx(1.96 * 0.1 / 20).epsilon(0.05));
  // A long sequence counts for as many phones as it has.
  CHECK(difference_of({3, 0}, {0, 0}, {10, 20}).value == Approx(0.1));
  CHECK(difference_of({3, 0}, {0, 0}, {10, 20}).high == Approx(0.3));
  CHECK(std::isnan(difference_of({0}, {0}, {0}).value));
}

TEST_CASE("prepared data are written and read again") {
  Corpus corpus;
  corpus.front_end = {{"a", "k"}, std::vector<float>(bins, 0.5F), std::vector<float>(bins, 2)};
  std::vector<Sentence>& train = corpus.parts["train"];
  train = {counting(6, {1, 2}), counting(4)};
  train[1].alignment = {0, 1, 1, 0};
  corpus.parts["test"] = {counting(5)};
  const TemporaryFolder folder;
  write_corpus(folder / "data", corpus);
  const Corpus read = read_corpus(TensorReader(folder / "data"));
  CHECK(read.front_end == corpus.front_end);
  REQUIRE(read.parts.at("train").size() == 2);
  CHECK(read.parts.at("dev").empty());
  CHECK(read.parts.at("train")[0].labels == Labels{1, 2});
  CHECK(read.parts.at("train")[1].alignment == Labels{0, 1, 1, 0});
  CHECK(read.parts.at("test")[0].frames() == 5);

  FrontEnd model = read.front_end;
  model.phones = {"k", "q", "a"};
  const std::vector<Sentence> sentences = sentences_of(read, "train", model, settings_with(3, 0));
  CHECK(sentences[0].labels == Labels{3, 1});
  CHECK(sentences[1].alignment == Labels{0, 3, 3, 0});
  CHECK(sentences[0].features.at<float>({1, 2}) == (102 - 0.5F) / 2);
  const auto error_with = [&](int64_t stride, int64_t join, const char* part) {
    Settings settings = settings_with(stride, 0);
    settings.join = join;
    return data_error([&] { sentences_of(read, part, model, settings); });
  };
  CHECK_THAT(error_with(6, 1, "train"), ContainsSubstring(R"(data: "of 6": its 2 phones do not fit into 1 positions)"));
  CHECK_THAT(error_with(3, 2, "train"), ContainsSubstring("do not fit into 1 positions"));  // one is lost at the seam
  CHECK_THAT(error_with(3, 1, "dev"), ContainsSubstring("data: the part dev has no sentences"));
  model.phones = {"a"};
  CHECK_THAT(error_with(3, 1, "train"), ContainsSubstring(R"(data: "of 6": the model does not know the phone "k")"));
  model.mean.resize(80);
  CHECK_THAT(error_with(3, 1, "train"), ContainsSubstring("data: has 40 filterbanks, the model takes 80"));
}

TEST_CASE("prepared data that are damaged") {
  const TemporaryFolder folder;
  const TensorFile good = read_safetensors(golden + "short.data");
  const auto error_of = [&](const char* name, const Tensor& tensor) {
    TensorFile file = good;
    for (auto& [key, value] : file.tensors)
      if (key == name) value = tensor;
    write_safetensors(folder / "data", file);
    return data_error([&] { read_corpus(TensorReader(folder / "data")); });
  };
  CHECK_THAT(error_of("ru_0001/features", Tensor::zeros({3, 39})), ContainsSubstring("features [frames, 40]"));
  CHECK_THAT(error_of("ru_0001/labels", Tensor::of<int32_t>({1, 51})), ContainsSubstring("labels 1 to 50, got 51"));
  CHECK_THAT(error_of("ru_0001/labels", Tensor::of<int32_t>({0})), ContainsSubstring("labels 1 to 50, got 0"));
  CHECK_THAT(error_of("ru_0001/labels", Tensor::zeros({2})), ContainsSubstring("expected int32 [n], got float32 [2]"));
  CHECK_THAT(error_of("ru_0001/alignment", Tensor::of<int32_t>({0})), ContainsSubstring("the alignment has 1 frames"));
  const auto about = [&](const char* key, const std::string& text) {
    TensorFile file = good;
    file.metadata[key] = text;
    write_safetensors(folder / "data", file);
    data_error([&] { read_corpus(TensorReader(folder / "data")); });
  };
  about("front_end", "{}");
  for (const char* mean : {"[1]", "[]", "[1, 2]"})
    about("front_end", concat(R"({"phones": [], "mean": )", mean, R"(, "deviation": [1]})"));
  about("parts", R"({"train": ["ru_0009"], "dev": [], "test": []})");
  about("parts", "[");
  about("parts", "{}");
}

}  // namespace
