#include "nn/io/hash.h"

#define XXH_INLINE_ALL
#ifdef __AVX512F__
#define XXH_VECTOR XXH_AVX2  // gcc 12 warns of its own header for AVX-512
#endif
#include <xxhash.h>

namespace cairn {

std::string xxh128(std::string_view bytes) {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes.data(), bytes.size()));
  std::string text;
  for (const unsigned char byte : digest.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace cairn
