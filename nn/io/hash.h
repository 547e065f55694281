#pragma once
// A fingerprint of bytes that notices damage, not malice.
#include <memory>
#include <string>
#include <string_view>

namespace cairn {

// XXH3's 128 bits of what it is given, piece after piece, in hexadecimal, as xxh128sum(1) prints them.
class Xxh128 {
 public:
  Xxh128();
  ~Xxh128();
  void add(std::string_view bytes);
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::string xxh128(std::string_view bytes);

}  // namespace cairn
