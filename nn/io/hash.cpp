#include "nn/io/hash.h"

#define XXH_INLINE_ALL
#ifdef __AVX512F__
#define XXH_VECTOR XXH_AVX2  // gcc 12 warns of its own header for AVX-512
#endif
#include <xxhash.h>

namespace cairn {

struct Xxh128::State {
  XXH3_state_t state;
};
Xxh128::Xxh128() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->state); }
Xxh128::~Xxh128() = default;
void Xxh128::add(std::string_view bytes) { XXH3_128bits_update(&state_->state, bytes.data(), bytes.size()); }

std::string Xxh128::text() const {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(&state_->state));
  std::string text;
  for (const unsigned char byte : digest.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string xxh128(std::string_view bytes) {
  Xxh128 hash;
  hash.add(bytes);
  return hash.text();
}

}  // namespace cairn
