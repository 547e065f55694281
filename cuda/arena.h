#pragma once
// Memory of recorded work. A replay writes to the addresses that were recorded, so nobody else may have them as long as
// the recording can be replayed; within the recording a block that was given back is used again.
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace cairn::gpu {

class Arena {
 public:
  Arena() = default;
  // Blocks that are still in use become ordinary ones, freed when they are given back.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Null if the device has no memory left.
  void* take(size_t bytes);
  // Memory of the host that is not paged, kept as long as the arena.
  void* host(size_t bytes);

  // A block of the stream's that was given back while work is recorded: freeing it now would become part of that work.
  void free_afterwards(void* block) { outside_.push_back(block); }
  // What was said to be freed afterwards.
  std::vector<void*> outside() { return std::exchange(outside_, {}); }

  // The arena of the recording under way, or null.
  static Arena*& recording();
  // Takes back a block if it is one of some arena's, living or not.
  static bool give_back(void* block);

 private:
  struct Owner;
  std::map<size_t, std::vector<void*>> free_;
  std::vector<void*> host_, outside_;
};

}  // namespace cairn::gpu
