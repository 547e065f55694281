#include "apps/speech/audio.h"

#include <sndfile.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "core/error.h"
#include "nn/io/file.h"

namespace cairn::speech {
namespace {

// Does the file end before the samples that the header of a WAV file announces? libsndfile then reads the rest, and
// says so only in its log: "data : 514556 (should be 19956)". Programs that write into a pipe do not know the size, and
// announce about 2 or 4 GB.
bool header_announces_more(SNDFILE* file) {
  constexpr uint64_t unknown_size = 0x7fff0000;
  std::string log(1 << 14, '\0');
  sf_command(file, SFC_GET_LOG_INFO, log.data(), int(log.size()));
  const size_t data = log.find("\ndata : ");
  return data != std::string::npos &&
         log.substr(data + 1, log.find('\n', data + 1) - data).find("should be") != std::string::npos &&
         std::strtoull(log.c_str() + data + 8, nullptr, 10) < unknown_size;
}

}  // namespace

Audio read_audio(const std::filesystem::path& path) {
  open_file(path);  // names a missing file, or one that is no regular file
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_READ, &info), sf_close);
  check<DataError>(file != nullptr, path, ": no audio file that libsndfile can read: ", sf_strerror(nullptr));
  check<DataError>(info.samplerate == sample_rate, path, ": has ", info.samplerate, " samples per second, expected ",
                   sample_rate, "; convert it, for example with sox IN -r ", sample_rate, " OUT");
  Audio audio{{}, info.channels};
  std::vector<float> block(size_t(info.channels) << 14);
  sf_count_t read = 0;
  while (const sf_count_t count = sf_readf_float(file.get(), block.data(), 1 << 14)) {
    for (sf_count_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int channel = 0; channel < info.channels; ++channel) sum += block[size_t(i * info.channels + channel)];
      check<DataError>(std::isfinite(sum), path, ": sample ", read + i, " is not a finite number");
      audio.samples.push_back(sum / float(info.channels));
    }
    read += count;
  }
  check<DataError>(sf_error(file.get()) == SF_ERR_NO_ERROR && read >= info.frames && !header_announces_more(file.get()),
                   path, ": the recording is cut off after ", read, " samples");
  check<DataError>(read > 0, path, ": the recording has no samples");
  return audio;
}

}  // namespace cairn::speech
