#pragma once
// Recordings, read with libsndfile.
#include <cstdint>
#include <filesystem>
#include <vector>

namespace cairn::speech {

inline constexpr int64_t sample_rate = 16000;  // Hz

struct Audio {
  std::vector<float> samples;  // finite; those of integer formats in [-1, 1]
  int64_t channels = 0;        // in the file; several are averaged to one
};

// Reads a WAV, FLAC or OGG file. Error (DataError): it cannot be read, is no audio, is cut off, has no samples, or
// another sample rate.
Audio read_audio(const std::filesystem::path& file);

}  // namespace cairn::speech
