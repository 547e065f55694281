// speech prepare: computes the features of recordings.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/speech/corpus.h"
#include "apps/speech/decode.h"
#include "apps/speech/features.h"
#include "core/error.h"
#include "nn/io/file.h"
#include "nn/io/json.h"

namespace cairn::speech {
namespace {

namespace fs = std::filesystem;

// ---- recordings with their phones

struct Source {
  std::string name;
  fs::path audio;
  std::vector<std::string> phones;
  std::vector<double> ends{};  // of the phones, in seconds; empty: unknown
};

// The pause of the alignments. It is no phone of a target.
constexpr const char* pause = "pau";

// A file of labels: after a line "#", each line has the end of a phone in seconds, a color, and the phone. Error
// (DataError): it has another form; no name for a phone.
void read_lab(const fs::path& file, Source& source) {
  std::istringstream text(read_file(file));
  std::string line, color, phone;
  int number = 1;
  while (std::getline(text, line) && line != "#") ++number;
  check<DataError>(line == "#", file, ": no line \"#\", after which the labels of a Festival voice begin");
  while (std::getline(text, line)) {
    ++number;
    std::istringstream words(line);
    double end = 0;
    check<DataError>(bool(words >> end >> color >> phone), file, ": line ", number,
                     ": expected the end of a phone in seconds, a color and the phone, got ", in_quotes(line));
    check_phone(phone, concat(file, ": line ", number));
    source.phones.push_back(phone);
    source.ends.push_back(end);
  }
}

// A Festival voice: the labels are in lab/NAME.lab, the recordings in wav/NAME.wav.
std::vector<Source> read_festvox(const fs::path& folder) {
  std::vector<Source> sources;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder / "lab", error)) {
    if (entry.path().extension() != ".lab") continue;
    const std::string name = entry.path().stem();
    check<DataError>(is_utf8(name), folder / "lab", ": the name of a file is not UTF-8: ", in_quotes(name),
                     "; rename it and its recording");
    sources.push_back({name, folder / "wav" / (name + ".wav"), {}});
    read_lab(entry.path(), sources.back());
  }
  check<DataError>(!error && !sources.empty(), "--festvox ", folder,
                   ": no Festival voice: there are no files in lab/; apps/speech/corpus.sh fetches one");
  return sources;
}

// A file with an object in each line, such as {"audio": "a.wav", "labels": ["k", "a"]}. The path is relative to the
// file.
std::vector<Source> read_manifest(const fs::path& file) {
  std::vector<Source> sources;
  std::istringstream text(read_file(file));
  std::string line;
  for (size_t number = 1; std::getline(text, line); ++number) try {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const Json json = parse_json(line, concat(file, ": line ", number));
      const std::string audio = json.at("audio");
      check<DataError>(audio.find('\0') == std::string::npos, file, ": line ", number, ": audio: a path has no NUL");
      sources.push_back({audio, file.parent_path() / audio, json.at("labels")});
      for (const std::string& phone : sources.back().phones) check_phone(phone, concat(file, ": line ", number));
    } catch (const Json::exception&) {
      throw DataError(
          concat(file, ": line ", number, R"(: expected an object like {"audio": "a.wav", "labels": ["k", "a"]})"));
    }
  check<DataError>(!sources.empty(), file, ": no recordings");
  return sources;
}

// ---- what they become

// All phones, in the order of their names.
std::vector<std::string> phones_of(const std::vector<Source>& sources) {
  std::set<std::string> phones;
  for (const Source& source : sources)
    for (const std::string& phone : source.phones)
      if (phone != pause) phones.insert(phone);
  return {phones.begin(), phones.end()};
}

void add_labels(const Source& source, const FrontEnd& front_end, Sentence& sentence) {
  for (const std::string& phone : source.phones)
    if (phone != pause) sentence.labels.push_back(front_end.label(phone));
  check<DataError>(positions_needed(sentence.labels) <= sentence.frames(), source.audio, ": its ",
                   sentence.labels.size(), " phones do not fit into ", sentence.frames(), " frames");
  size_t phone = 0;
  for (int64_t frame = 0; frame < sentence.frames() && !source.ends.empty(); ++frame) {
    const double time = frame_center_seconds + double(frame) * frame_seconds;
    while (phone < source.ends.size() && source.ends[phone] <= time) ++phone;
    sentence.alignment.push_back(phone < source.ends.size() ? front_end.label(source.phones[phone]) : 0);
  }
}

// The mean and the deviation of each feature. Returns the features that do not vary; their deviation counts as 1.
std::string find_statistics(const std::vector<Sentence>& sentences, FrontEnd& front_end) {
  // Rounding leaves a constant feature a deviation. The largest part is below: a difference of two sums, each wrong by
  // up to frames * 1e-16 * mean^2, which is a deviation of 1e-4 of the mean after 1e8 frames. The float32 sums of an
  // energy leave less. In speech, features deviate by 1 and more.
  constexpr double rounding = 1e-4;
  const auto bins = size_t(sentences[0].filterbanks());
  std::vector<double> sum(bins), squares(bins);
  double frames = 0;
  std::string constant;
  for (const Sentence& sentence : sentences) {
    const auto* x = sentence.features.data<float>();
    for (int64_t i = 0; i < sentence.features.elements(); ++i) {
      sum[size_t(i) % bins] += x[i];
      squares[size_t(i) % bins] += double(x[i]) * x[i];
    }
    frames += double(sentence.frames());
  }
  for (size_t bin = 0; bin < bins; ++bin) {
    const double mean = sum[bin] / frames, variance = squares[bin] / frames - mean * mean;
    const double deviation = std::sqrt(std::max(variance, 0.0));
    const bool varies = deviation > rounding * std::max(std::abs(mean), 1.0);
    front_end.mean.push_back(float(mean));
    front_end.deviation.push_back(varies ? float(deviation) : 1);
    if (!varies) constant += concat(" ", bin);
  }
  return constant;
}

}  // namespace

void prepare_command(CommandLine& line) {
  std::string festvox, manifest, out;
  int64_t filterbanks = default_filterbanks;
  line("festvox", festvox, Text::folder,
       "the folder of a Festival voice, with wav/ and lab/; apps/speech/corpus.sh fetches one", Keep::not_in_config);
  line("manifest", manifest, Text::file, "a file with a JSON object for each recording in a line", Keep::not_in_config);
  line("filterbanks", filterbanks, {1, most_filterbanks}, "log-mel features of a frame; the paper has 40 and 80");
  line("out", out, Text::file, "the file to write", Keep::not_in_config);
  line.footer(
      "Recordings: WAV, FLAC or OGG, 16 kHz; several channels are averaged. Names are sorted. Of each ten, the\n"
      "fifth is for choices while training (dev), and the tenth for the test.\n\n"
      "Examples:\n"
      "  speech prepare --festvox corpus/msu_ru_nsh_clunits --out russian.data\n"
      "  speech prepare --manifest own.jsonl --out own.data\n"
      "with lines in own.jsonl such as {\"audio\": \"a.wav\", \"labels\": [\"k\", \"a\"]}");
  line.parse();
  check<UsageError>(festvox.empty() != manifest.empty(), "expected either --festvox or --manifest");
  check<UsageError>(!out.empty(), "expected --out with a file for the prepared data");
  const fs::path path = output_path("--out", out, manifest);
  const Stopwatch time;
  std::vector<Source> sources = manifest.empty() ? read_festvox(festvox) : read_manifest(manifest);
  std::sort(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.name < b.name; });
  Corpus corpus{{phones_of(sources), {}, {}}}, plan = corpus;
  const Tensor frame({1, filterbanks});
  for (std::vector<Sentence>& all = plan.parts["train"]; const Source& source : sources) {
    check<DataError>(all.empty() || source.name != all.back().name, manifest, ": ", in_quotes(source.name),
                     " appears twice");
    all.push_back({source.name, frame, {}, std::vector<int32_t>(source.ends.empty() ? 0 : 1)});
  }
  check_fits(path, plan);
  auto &train = corpus.parts["train"], &dev = corpus.parts["dev"], &test = corpus.parts["test"];
  int64_t frames = 0, mixed = 0;
  Progress progress(int64_t(sources.size()), line.quiet);
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    const Recording recording = read_recording(source.audio, filterbanks);
    Sentence sentence{source.name, recording.features, {}, {}};
    add_labels(source, corpus.front_end, sentence);
    (i % 10 == 9 ? test : i % 10 == 4 ? dev : train).push_back(sentence);
    frames += sentence.frames();
    mixed += recording.channels > 1;
    progress.update(int64_t(i) + 1, "recordings");
  }
  progress.finish();
  if (mixed > 0) note(concat("recordings with several channels, which are averaged: ", mixed), line.quiet);
  const std::string constant = find_statistics(train, corpus.front_end);
  if (!constant.empty())
    note(concat("features (0 to ", filterbanks - 1,
                ") that do not vary in train; their deviation counts as 1:", constant),
         line.quiet);
  write_corpus(path, corpus);
  const double hours = double(frames) * frame_seconds / 3600;
  line.tell({{"out", out},
             {"train", train.size()},
             {"dev", dev.size()},
             {"test", test.size()},
             {"phones", corpus.front_end.phones.size()},
             {"filterbanks", filterbanks},
             {"hours", hours},
             {"seconds", time.seconds()}},
            concat(out, ": recordings: ", sources.size(), " (train ", train.size(), ", dev ", dev.size(), ", test ",
                   test.size(), "); ", formatted("%.2f hours", hours), "; phones: ", corpus.front_end.phones.size(),
                   "; ", formatted("%.1f s\n", time.seconds())));
}

}  // namespace cairn::speech
