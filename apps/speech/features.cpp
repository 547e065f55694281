#include "apps/speech/features.h"

#include <kiss_fftr.h>
#include <sndfile.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <vector>

#include "apps/speech/containers.h"
#include "core/error.h"
#include "nn/io/file.h"

namespace cairn::speech {
namespace {

constexpr int64_t sample_rate = 16000;      // Hz
constexpr int64_t window = 400, hop = 160;  // samples: 25 ms and 10 ms
constexpr int64_t points = 512;             // of the Fourier transform
constexpr double low_frequency = 20, high_frequency = sample_rate / 2.0, pre_emphasis = 0.97;
constexpr float units = 32768;  // 16-bit steps in a sample of 1

double mel(double frequency) { return 1127 * std::log1p(frequency / 700); }

// A triangle over the points first, first + 1, ... of the spectrum.
struct Filter {
  int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Filter> make_filters(int64_t count) {
  std::vector<Filter> filters(static_cast<size_t>(count));
  const double lowest = mel(low_frequency), half = (mel(high_frequency) - lowest) / double(count + 1);
  for (int64_t bin = 0; bin < count; ++bin) {
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

Tensor log_mel(const std::vector<float>& samples, int64_t filterbanks) {
  const std::vector<Filter> filters = make_filters(filterbanks);
  const std::unique_ptr<kiss_fftr_state, void (*)(void*)> transform(kiss_fftr_alloc(points, 0, nullptr, nullptr),
                                                                    [](void* state) { kiss_fftr_free(state); });
  const int64_t frames = (int64_t(samples.size()) - window) / hop + 1;
  Tensor features({frames, filterbanks});
  auto* out = features.mutable_data<float>();
  std::array<kiss_fft_cpx, points / 2 + 1> spectrum;
  for (int64_t frame = 0; frame < frames; ++frame) {
    kiss_fftr(transform.get(), prepared(samples.data() + frame * hop).data(), spectrum.data());
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

}  // namespace

Recording read_recording(const std::filesystem::path& path, int64_t filterbanks) {
  const SampleBytes place = find_samples(read_file(path));
  SF_INFO info{};
  std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_READ, &info), sf_close);
  check<DataError>(file != nullptr, path, ": no audio file that libsndfile can read: ", sf_strerror(nullptr));
  check<DataError>(info.samplerate == sample_rate, path, ": has ", info.samplerate, " samples per second, expected ",
                   sample_rate, "; convert it, for example with sox IN -r ", sample_rate, " OUT");
  // Of these formats, a file that is cut off can be told from a whole one.
  constexpr int known[] = {SF_FORMAT_WAV, SF_FORMAT_WAVEX, SF_FORMAT_RF64, SF_FORMAT_W64, SF_FORMAT_AIFF,
                           SF_FORMAT_CAF, SF_FORMAT_AU,    SF_FORMAT_FLAC, SF_FORMAT_OGG};
  check<DataError>(std::count(std::begin(known), std::end(known), info.format & SF_FORMAT_TYPEMASK) > 0, path,
                   ": expected WAV, FLAC, Ogg, AIFF, CAF or AU, got another format; convert it, for example with sox");
  if (place.streamed_from > 0 && info.frames == 0) {  // libsndfile believes the header
    info.format = (info.format & ~SF_FORMAT_TYPEMASK) | SF_FORMAT_RAW;
    file.reset(sf_open(path.c_str(), SFM_READ, &info));
    info.frames = 0;  // those from the start of the file
    auto begin = sf_count_t(place.streamed_from);
    sf_command(file.get(), SFC_SET_RAW_START_OFFSET, &begin, sizeof begin);
    sf_seek(file.get(), 0, SEEK_SET);
  }
  std::vector<float> samples;  // those of integer formats in [-1, 1]
  std::vector<float> buffer(size_t(info.channels) << 14);
  sf_count_t read = 0;
  bool failed = false;
  while (const sf_count_t count = sf_readf_float(file.get(), buffer.data(), 1 << 14)) {
    for (sf_count_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int channel = 0; channel < info.channels; ++channel) sum += buffer[size_t(i * info.channels + channel)];
      check<DataError>(std::isfinite(sum), path, ": sample ", read + i, " is not a finite number");
      samples.push_back(sum / float(info.channels));
    }
    read += count;
    failed = failed || sf_error(file.get()) != SF_ERR_NO_ERROR;
  }
  failed = failed || sf_error(file.get()) != SF_ERR_NO_ERROR;
  // A FLAC file that was written into a pipe does not tell its number of samples; cut off, it ends within a frame.
  const bool is_whole = info.frames == SF_COUNT_MAX ? !failed : read >= info.frames;
  check<DataError>(is_whole && !place.cut_off, path, ": the recording is cut off after ", read, " samples");
  check<DataError>(read >= window, path, ": has ", read, " samples, which is shorter than a window of ", window);
  const Tensor features = log_mel(samples, filterbanks);
  const std::vector<float> numbers = features.to_vector<float>();
  check<DataError>(std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); }), path,
                   ": samples so large that their energy is infinite; expected them between -1 and 1");
  return {features, info.channels};
}

}  // namespace cairn::speech
