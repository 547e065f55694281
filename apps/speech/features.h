#pragma once
// The acoustic front end: from samples to log-mel energies, as Kaldi computes them.
#include <cstdint>
#include <filesystem>

#include "apps/speech/audio.h"
#include "core/tensor.h"

namespace cairn::speech {

inline constexpr int64_t window = 400, hop = 160;       // samples: 25 ms and 10 ms
inline constexpr int64_t bins = 40;                     // mel filters
inline constexpr double frame_seconds = 0.01;           // hop
inline constexpr double frame_center_seconds = 0.0125;  // of frame 0

// The number of whole windows in so many samples.
constexpr int64_t frame_count(int64_t samples) { return samples < window ? 0 : (samples - window) / hop + 1; }

// float32 [frames, bins] of a recording. Each window: samples in units of 16 bits, without their mean; pre-emphasis by
// 0.97; a Hamming window; the power spectrum of 512 points; 40 triangular filters, equally wide in mel from 20 Hz to 8
// kHz; the logarithm. Error (DataError): the recording in this file is shorter than a window.
Tensor log_mel(const Audio& audio, const std::filesystem::path& file);

}  // namespace cairn::speech
