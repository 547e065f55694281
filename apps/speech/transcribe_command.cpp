// speech transcribe: the phones of recordings, with their times.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
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

std::vector<Spike> spikes_of(const SavedRun& run, const std::string& file, bool quiet) {
  const Recording recording = read_recording(file, run.front_end.filterbanks());
  if (recording.channels > 1) note(concat(file, ": ", recording.channels, " channels, which are averaged"), quiet);
  const Tensor features = run.front_end.normalized(recording.features);
  // In positions.
  const int64_t stride = run.settings.stride, positions = position_count(features.size(0), stride);
  const int64_t overlap = overlap_frames / stride, step = piece_frames / stride - 2 * overlap;
  std::vector<Sentence> pieces;
  for (int64_t begin = 0; begin == 0 || begin + overlap < positions; begin += step) {
    const int64_t first = std::max<int64_t>(begin - overlap, 0), end = begin + step + overlap;
    pieces.push_back({file, features.slice(first * stride, std::min(end * stride, features.size(0))), {}, {}});
  }
  std::vector<Spike> spikes;
  const std::vector<std::vector<Spike>> answers = recognize(*run.model, pieces, run.settings, true).answers;
  for (size_t i = 0; i < answers.size(); ++i) {
    const int64_t begin = int64_t(i) * step, first = std::max<int64_t>(begin - overlap, 0);
    for (const Spike& spike : answers[i])
      if (const int64_t position = first + spike.position;
          position >= begin && (position < begin + step || i + 1 == answers.size()))
        spikes.push_back({spike.label, position});
  }
  return spikes;
}

}  // namespace

void transcribe_command(CommandLine& line) {
  std::string folder;
  std::optional<Device> device;
  std::vector<std::string> files;
  line("run", folder, Text::folder, "the run's folder", Keep::not_in_config);
  line.threads();
  device_field(line, device);
  line.words("FILE", files, "recordings");
  line.footer(
      "Recordings: WAV, FLAC or OGG, 16 kHz, of any length. A line has the file, the time in seconds and the\n"
      "phone, with tabs between them.\n\nExample:\n  speech transcribe --run run a.wav b.flac");
  line.parse();
  check<UsageError>(!files.empty(), "expected the FILE of a recording");
  const SavedRun run("--run", folder, device);
  catch_interrupts(line.quiet);
  Json results = Json::array();
  for (const std::string& file : files) {
    Json phones = Json::array();
    std::string text;
    for (const Spike& spike : spikes_of(run, file, line.quiet)) {
      const auto stride = double(run.settings.stride);
      const double time = frame_center_seconds + frame_seconds * (double(spike.position) * stride + (stride - 1) / 2);
      phones.push_back({{"time", time}, {"phone", run.front_end.phone(spike.label)}});
      text += concat(file, "\t", formatted("%.2f", time), "\t", run.front_end.phone(spike.label), "\n");
    }
    results.push_back({{"file", file}, {"phones", phones}});
    if (!line.json) print(text);  // at once: an error in a later file takes nothing back
  }
  line.tell({{"run", run.folder}, {"files", results}}, "");
}

}  // namespace cairn::speech
