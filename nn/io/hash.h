#pragma once
// A fingerprint of bytes that notices damage, not malice.
#include <string>
#include <string_view>

namespace cairn {

// XXH3's 128 bits in hexadecimal, as xxh128sum(1) prints them.
std::string xxh128(std::string_view bytes);

}  // namespace cairn
