#pragma once
// Recordings that are cut off. libsndfile takes what is there of a file for a shorter recording, so this looks at the
// lengths in the container.
#include <cstdint>
#include <string_view>

namespace cairn::speech {

struct SampleBytes {
  // The file ends before its samples do. False too for containers that are not known here. Of a FLAC file, libsndfile
  // knows the number of samples.
  bool cut_off = false;
  // Where the samples begin, if the header says that there are none, but was written first and never mended. They are
  // the rest of the file then. 0 for other files.
  uint64_t streamed_from = 0;
};
// Looks at the bytes of a file: WAV (RF64 and W64 too), AIFF, CAF, AU or Ogg.
SampleBytes find_samples(std::string_view file);

}  // namespace cairn::speech
