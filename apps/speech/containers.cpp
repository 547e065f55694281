#include "apps/speech/containers.h"

#include <algorithm>
#include <cstddef>

namespace cairn::speech {
namespace {

uint64_t number(std::string_view bytes, bool big_endian) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value = value << 8 | uint8_t(bytes[big_endian ? i : bytes.size() - 1 - i]);
  return value;
}

// A container of chunks. A chunk has a name, a size and its contents.
struct Chunks {
  std::string_view begin;    // of the file
  uint64_t first;            // where the chunks begin
  size_t name, size;         // bytes of a chunk's name and of its size
  bool big_endian;           // the sizes
  uint64_t counted;          // bytes of the chunk's head that the size counts too
  uint64_t unit;             // a chunk is filled up to a multiple of this, a power of two
  std::string_view samples;  // how the name of the chunk with the samples begins
};
constexpr Chunks containers[] = {
    {"RIFF", 12, 4, 4, false, 0, 2, "data"},                    // WAV
    {"RIFX", 12, 4, 4, true, 0, 2, "data"},                     // the same with big-endian numbers
    {"RF64", 12, 4, 4, false, 0, 2, "data"},                    // the same for long files
    {"riff\x2e\x91\xcf\x11", 40, 16, 8, false, 24, 8, "data"},  // W64
    {"FORM", 12, 4, 4, true, 0, 2, "SSND"},                     // AIFF
    {"caff", 8, 4, 8, true, 0, 1, "data"},                      // CAF
};

// Programs that write into a pipe do not know the size. They say 0, or at most 16 MB less than 2 GB, than 4 GB or than
// the largest number.
bool is_known(uint64_t size) {
  constexpr uint64_t half = uint64_t(1) << 31, below = 1 << 24;
  return size % half > 0 && size % half < half - below;
}

// Does a chunk of WAV begin here? Samples hardly look like one.
bool is_chunk(std::string_view bytes) {
  const auto is_printed = [](char c) { return ' ' <= c && c <= '~'; };
  return bytes.size() >= 8 && std::all_of(bytes.begin(), bytes.begin() + 4, is_printed) &&
         number(bytes.substr(4, 4), false) <= bytes.size() - 8;
}

SampleBytes find_in_chunks(std::string_view file, const Chunks& container) {
  uint64_t long_size = 0;  // of the samples in RF64
  for (uint64_t at = container.first; at + container.name + container.size <= file.size();) {
    const std::string_view name = file.substr(at, container.name);
    at += container.name;
    uint64_t size = number(file.substr(at, container.size), container.big_endian) - container.counted;
    at += container.size;
    if (name.starts_with(container.samples)) {
      if (name == "data" && (size == 0xffffffff || size == 0)) size = long_size;
      return {is_known(size) && size > file.size() - at, size == 0 && !is_chunk(file.substr(at)) ? at : 0};
    }
    if (size > file.size() - at) break;
    if (name == "ds64" && size >= 16) long_size = number(file.substr(at + 8, 8), false);
    at += size;
    at += -at % container.unit;
  }
  return {};
}

// Ogg has pages. The last one says so.
bool lacks_pages(std::string_view file) {
  bool is_last = false;
  while (file.starts_with("OggS") && file.size() >= 27) {
    is_last = (file[5] & 4) != 0;
    const std::string_view parts = file.substr(27, uint8_t(file[26]));
    uint64_t size = 27 + parts.size();
    for (const char part : parts) size += uint8_t(part);
    if (size > file.size()) return true;
    file.remove_prefix(size);
  }
  return !is_last;
}

}  // namespace

SampleBytes find_samples(std::string_view file) {
  if (file.starts_with("OggS")) return {lacks_pages(file)};
  const bool is_big_endian = file.starts_with(".snd");
  if ((is_big_endian || file.starts_with("dns.")) &&
      file.size() >= 12) {  // AU: where the samples begin, and their size
    const uint64_t begin = number(file.substr(4, 4), is_big_endian), size = number(file.substr(8, 4), is_big_endian);
    return {is_known(size) && begin + size > file.size()};
  }
  for (const Chunks& container : containers)
    if (file.starts_with(container.begin)) return find_in_chunks(file, container);
  return {};
}

}  // namespace cairn::speech
