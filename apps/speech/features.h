#pragma once
// The acoustic front end: from a recording to log-mel energies, as Kaldi computes them.
#include <cstdint>
#include <filesystem>

#include "core/tensor.h"

namespace cairn::speech {

inline constexpr int64_t default_filterbanks = 40;
inline constexpr int64_t most_filterbanks = 100;        // of many more, some lie between two points of the spectrum
inline constexpr double frame_seconds = 0.01;           // from a frame to the next
inline constexpr double frame_center_seconds = 0.0125;  // of frame 0

struct Recording {
  Tensor features;       // float32 [frames, filterbanks]
  int64_t channels = 0;  // in the file; several are averaged to one
};

// Reads a WAV, FLAC or OGG file of 16 kHz. A frame is a window of 25 ms: samples in units of 16 bits, without their
// mean; pre-emphasis by 0.97; a Hamming window; the power spectrum of 512 points; triangular filters (filterbanks),
// equally wide in mel from 20 Hz to 8 kHz; the logarithm. Error (DataError): the file cannot be read, is no audio, is
// cut off, has another sample rate, a sample that is not finite, or less than a window.
Recording read_recording(const std::filesystem::path& file, int64_t filterbanks = default_filterbanks);

}  // namespace cairn::speech
