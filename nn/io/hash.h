#pragma once
// A hash that detects damage, not malice.
#include <memory>
#include <string>
#include <string_view>

namespace cairn {

// The 128-bit XXH3 hash of all bytes added so far. text() is hexadecimal, as xxh128sum(1) prints it.
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
