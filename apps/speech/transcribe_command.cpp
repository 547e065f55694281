// speech transcribe: the phones of recordings, with their times.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/common/format.h"
#include "apps/common/program.h"
#include "apps/speech/features.h"
#include "apps/speech/train.h"
#include "core/error.h"
#include "core/ops.h"

namespace cairn::speech {
namespace {

// Long recordings are cut into pieces, because a model may be bad at positions that its training did not have. A piece
// overlaps its neighbors, so that it sees what is around the phones that it answers.
constexpr int64_t piece_frames = 1200, overlap_frames = 100;

struct TranscribeCommand : Command {
  TranscribeCommand()
      : Command(
            "transcribe", "Write down the phones of recordings",
            "Recordings: WAV, FLAC or OGG, 16 kHz, of any length. A line has the file, the time in seconds and the\n"
            "phone, with tabs between them.\n\nExample:\n  speech transcribe --run run a.wav b.flac") {}

  void fields(SettingFields& f) override {
    run_.fields(f);
    f.words("FILE", files, "recordings");
  }

  void run(Communicator&) override {
    check<UsageError>(!files.empty(), "expected the FILE of a recording");
    run_.read();
    catch_interrupts(quiet);
    Json results = Json::array();
    for (const std::string& file : files) {
      Json phones = Json::array();
      std::string text;
      for (const Spike& spike : spikes_of(file)) {
        const auto stride = double(run_.settings.stride);
        const double time = frame_center_seconds + frame_seconds * (double(spike.position) * stride + (stride - 1) / 2);
        phones.push_back({{"time", time}, {"phone", run_.front_end.phone(spike.label)}});
        text += concat(file, "\t", formatted("%.2f", time), "\t", run_.front_end.phone(spike.label), "\n");
      }
      results.push_back({{"file", file}, {"phones", phones}});
      if (!json) print(text);  // at once: an error in a later file takes nothing back
    }
    tell({{"run", run_.folder}, {"files", results}}, "");
  }

 private:
  std::vector<Spike> spikes_of(const std::string& file) const {
    const Recording recording = read_recording(file, run_.front_end.filterbanks());
    if (recording.channels > 1) note(concat(file, ": ", recording.channels, " channels, which are averaged"), quiet);
    const Tensor features = run_.front_end.normalized(recording.features);
    // In positions.
    const int64_t stride = run_.settings.stride, positions = position_count(features.size(0), stride);
    const int64_t overlap = overlap_frames / stride, step = piece_frames / stride - 2 * overlap;
    std::vector<Sentence> pieces;
    for (int64_t begin = 0; begin == 0 || begin + overlap < positions; begin += step) {
      const int64_t first = std::max<int64_t>(begin - overlap, 0), end = begin + step + overlap;
      pieces.push_back({file, features.slice(first * stride, std::min(end * stride, features.size(0))), {}, {}});
    }
    std::vector<Spike> spikes;
    const std::vector<std::vector<Spike>> answers = recognize(*run_.model, pieces, run_.settings, true).answers;
    for (size_t i = 0; i < answers.size(); ++i) {
      const int64_t begin = int64_t(i) * step, first = std::max<int64_t>(begin - overlap, 0);
      for (const Spike& spike : answers[i])
        if (const int64_t position = first + spike.position;
            position >= begin && (position < begin + step || i + 1 == answers.size()))
          spikes.push_back({spike.label, position});
    }
    return spikes;
  }

  SavedRun run_;
  std::vector<std::string> files;
};

}  // namespace

std::unique_ptr<Command> make_transcribe() { return std::make_unique<TranscribeCommand>(); }

}  // namespace cairn::speech
