#include "apps/speech/features.h"

#include <kiss_fftr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <vector>

#include "core/error.h"

namespace cairn::speech {
namespace {

constexpr int64_t points = 512;  // of the Fourier transform
constexpr double low_frequency = 20, high_frequency = sample_rate / 2.0, pre_emphasis = 0.97;
constexpr float units = 32768;  // 16-bit steps in a sample of 1

double mel(double frequency) { return 1127 * std::log1p(frequency / 700); }

// A triangle over the points first, first + 1, ... of the spectrum.
struct Filter {
  int64_t first = 0;
  std::vector<float> weights;
};

std::array<Filter, bins> make_filters() {
  std::array<Filter, bins> filters;
  const double lowest = mel(low_frequency), half = (mel(high_frequency) - lowest) / (bins + 1);
  for (int64_t bin = 0; bin < bins; ++bin) {
    const double center = lowest + half * double(bin + 1);
    Filter& filter = filters[size_t(bin)];
    for (int64_t point = 0; point < points / 2; ++point) {
      const double distance = std::abs(mel(double(point) * sample_rate / points) - center) / half;
      if (distance >= 1) continue;
      if (filter.weights.empty()) filter.first = point;
      filter.weights.push_back(float(1 - distance));
    }
  }
  return filters;
}

std::array<float, window> make_hamming() {
  std::array<float, window> weights;
  for (int64_t i = 0; i < window; ++i)
    weights[size_t(i)] = float(0.54 - 0.46 * std::cos(2 * std::numbers::pi * double(i) / (window - 1)));
  return weights;
}

// The samples of one window as the Fourier transform takes them.
std::array<float, points> prepared(const float* samples) {
  static const std::array<float, window> hamming = make_hamming();
  std::array<float, points> x{};
  const float mean = std::accumulate(samples, samples + window, 0.0F) / window;
  std::transform(samples, samples + window, x.begin(), [&](float sample) { return units * (sample - mean); });
  for (int64_t i = window - 1; i >= 0; --i) {
    const float before = x[size_t(std::max<int64_t>(i - 1, 0))];
    x[size_t(i)] = (x[size_t(i)] - float(pre_emphasis) * before) * hamming[size_t(i)];
  }
  return x;
}

}  // namespace

Tensor log_mel(const Audio& audio, const std::filesystem::path& file) {
  static const std::array<Filter, bins> filters = make_filters();
  const std::unique_ptr<kiss_fftr_state, void (*)(void*)> transform(kiss_fftr_alloc(points, 0, nullptr, nullptr),
                                                                    [](void* state) { kiss_fftr_free(state); });
  const auto samples = int64_t(audio.samples.size()), frames = frame_count(samples);
  check<DataError>(frames > 0, file, ": has ", samples, " samples, which is shorter than a window of ", window);
  Tensor features({frames, bins});
  auto* out = features.mutable_data<float>();
  std::array<kiss_fft_cpx, points / 2 + 1> spectrum;
  for (int64_t frame = 0; frame < frames; ++frame) {
    kiss_fftr(transform.get(), prepared(audio.samples.data() + frame * hop).data(), spectrum.data());
    std::array<float, points / 2> power;
    for (size_t i = 0; i < power.size(); ++i) power[i] = spectrum[i].r * spectrum[i].r + spectrum[i].i * spectrum[i].i;
    for (const Filter& filter : filters) {
      const float energy =
          std::inner_product(filter.weights.begin(), filter.weights.end(), power.begin() + filter.first, 0.0F);
      *out++ = std::log(std::max(energy, std::numeric_limits<float>::epsilon()));
    }
  }
  return features;
}

}  // namespace cairn::speech
