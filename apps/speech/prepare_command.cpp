// speech prepare: computes the features of recordings.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/speech/audio.h"
#include "apps/speech/commands.h"
#include "apps/speech/corpus.h"
#include "apps/speech/decode.h"
#include "apps/speech/features.h"
#include "apps/speech/sources.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn::speech {
namespace {

struct PrepareCommand : Command {
  PrepareCommand()
      : Command(
            "prepare", "Compute the features of recordings, for training and evaluation",
            "Recordings: WAV, FLAC or OGG, 16 kHz; several channels are averaged. Names are sorted. Of each ten, the\n"
            "fifth is for choices while training (dev), and the tenth for the test. A line of --manifest may say\n"
            "otherwise with \"part\": \"train\", \"dev\" or \"test\".\n\n"
            "Examples:\n"
            "  speech prepare --festvox corpus/msu_ru_nsh_clunits --out russian.data\n"
            "  speech prepare --manifest own.jsonl --out own.data\n"
            "with lines in own.jsonl such as {\"audio\": \"a.wav\", \"labels\": [\"k\", \"a\"]}") {}

  void fields(SettingFields& f) override {
    f("festvox", festvox, Text::folder,
      "the folder of a Festival voice, with wav/ and lab/; apps/speech/corpus.sh fetches one", Keep::no);
    f("manifest", manifest, Text::file, "a file with a JSON object for each recording in a line", Keep::no);
    f("out", out, Text::file, "the file to write", Keep::no);
  }

  void run(Communicator&) override {
    catch_interrupts(quiet);
    check<UsageError>(festvox.empty() != manifest.empty(), "expected either --festvox or --manifest");
    check<UsageError>(!out.empty(), "expected --out with a file for the prepared data");
    const std::filesystem::path path = output_path("--out", out, manifest);
    const Stopwatch time;
    const std::vector<Source> sources = manifest.empty() ? read_festvox(festvox) : read_manifest(manifest);
    Corpus corpus;
    corpus.front_end.phones = phones_of(sources);
    const std::vector<Sentence> sentences = read_all(sources, corpus.front_end.phones);
    for (size_t i = 0; i < sources.size(); ++i) corpus.part(sources[i].part).push_back(sentences[i]);
    normalize(corpus.train, corpus.front_end);
    int64_t frames = 0;
    for (const Sentence& sentence : sentences) frames += sentence.frames();
    write_corpus(path, corpus);
    const double hours = double(frames) * frame_seconds / 3600;
    tell({{"out", out},
          {"train", corpus.train.size()},
          {"dev", corpus.dev.size()},
          {"test", corpus.test.size()},
          {"phones", corpus.front_end.phones.size()},
          {"hours", hours},
          {"seconds", time.seconds()}},
         concat(out, ": recordings: ", sentences.size(), " (train ", corpus.train.size(), ", dev ", corpus.dev.size(),
                ", test ", corpus.test.size(), "); ", formatted("%.2f hours", hours),
                "; phones: ", corpus.front_end.phones.size(), "; ", formatted("%.1f s\n", time.seconds())));
  }

 private:
  // The phones of the training part, sorted.
  std::vector<std::string> phones_of(const std::vector<Source>& sources) const {
    std::set<std::string> phones;
    for (const Source& source : sources)
      if (source.part == "train") phones.insert(source.phones.begin(), source.phones.end());
    phones.erase(pause);
    check<DataError>(!phones.empty(), festvox.empty() ? manifest : festvox, ": no phones to train on");
    return {phones.begin(), phones.end()};
  }

  std::vector<Sentence> read_all(const std::vector<Source>& sources, const std::vector<std::string>& phones) const {
    std::map<std::string, int32_t> labels = {{pause, 0}};
    for (const std::string& phone : phones) labels.emplace(phone, int32_t(labels.size()));
    std::vector<Sentence> sentences;
    int64_t mixed = 0;
    Progress progress(int64_t(sources.size()), quiet);
    for (const Source& source : sources) {
      if (interrupted()) throw Interrupted();
      const Audio audio = read_audio(source.audio);
      mixed += audio.channels > 1;
      sentences.push_back({source.name, log_mel(audio, source.audio), {}, {}});
      add_labels(source, labels, sentences.back());
      progress.update(int64_t(sentences.size()), "recordings");
    }
    progress.finish();
    if (mixed > 0) note(concat("recordings with several channels, which are averaged: ", mixed), quiet);
    return sentences;
  }

  static void add_labels(const Source& source, const std::map<std::string, int32_t>& labels, Sentence& sentence) {
    std::vector<int32_t> with_pauses;
    for (const std::string& phone : source.phones) {
      const auto found = labels.find(phone);
      check<DataError>(found != labels.end(), source.audio, ": the phone ", in_quotes(phone),
                       " is in no training recording");
      with_pauses.push_back(found->second);
      if (found->second > 0) sentence.labels.push_back(found->second);
    }
    check<DataError>(positions_needed(sentence.labels) <= sentence.frames(), source.audio, ": its ",
                     sentence.labels.size(), " phones do not fit into ", sentence.frames(), " frames");
    size_t phone = 0;
    for (int64_t frame = 0; frame < sentence.frames() && !source.ends.empty(); ++frame) {
      const double time = frame_center_seconds + double(frame) * frame_seconds;
      while (phone < source.ends.size() && source.ends[phone] <= time) ++phone;
      sentence.alignment.push_back(phone < source.ends.size() ? with_pauses[phone] : 0);
    }
  }

  static void normalize(const std::vector<Sentence>& sentences, FrontEnd& front_end) {
    std::vector<double> sum(bins), squares(bins);
    double frames = 0;
    for (const Sentence& sentence : sentences) {
      const auto* x = sentence.features.data<float>();
      for (int64_t i = 0; i < sentence.features.elements(); ++i) {
        sum[size_t(i % bins)] += x[i];
        squares[size_t(i % bins)] += double(x[i]) * x[i];
      }
      frames += double(sentence.frames());
    }
    for (size_t bin = 0; bin < size_t(bins); ++bin) {
      const double mean = sum[bin] / frames, variance = squares[bin] / frames - mean * mean;
      front_end.mean.push_back(float(mean));
      front_end.deviation.push_back(float(std::sqrt(std::max(variance, 1e-10))));
    }
  }

  std::string festvox, manifest, out;
};

}  // namespace

std::unique_ptr<Command> make_prepare() { return std::make_unique<PrepareCommand>(); }

}  // namespace cairn::speech
