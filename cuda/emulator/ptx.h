#pragma once
// The asynchronous copies that kernels use through inline PTX (cuda/mma.cuh). They are in a header, compiled with the
// kernels, so that sanitizers check their reads and writes.
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/emulator/cuda_runtime.h"

namespace cairn::host_cuda {

// An asynchronous copy is carried out between its call and the wait for it. Done late, it reveals a forgotten wait.
// Done at once, it reveals a buffer that is still being read.
struct AsyncCopy {
  void* to;
  const void* from;
  int bytes, read;  // bytes beyond those read become 0
  int group;

  void carry_out() const {
    std::memcpy(to, from, size_t(read));
    std::memset(static_cast<char*>(to) + read, 0, size_t(bytes - read));
  }
};
struct AsyncCopies {
  std::vector<AsyncCopy> waiting;  // the oldest first
  int group = 0;                   // the open group
};
AsyncCopies& async_copies();  // of the calling thread
bool copies_at_once();        // whether the next copy is done at once: never in forward order, random in shuffled order

inline void async_copy(void* to, const void* from, int bytes, int read, SourceLine where) {
  if (reinterpret_cast<uintptr_t>(to) % unsigned(bytes) || reinterpret_cast<uintptr_t>(from) % unsigned(bytes))
    refuse("an asynchronous copy from or to an address that is not aligned to its size", where);
  AsyncCopies& copies = async_copies();
  const AsyncCopy copy{to, from, bytes, read, copies.group};
  if (copies_at_once())
    copy.carry_out();
  else
    copies.waiting.push_back(copy);
}
inline void commit_async_copies() { ++async_copies().group; }
// Carries out all but the last `pending` committed groups.
inline void wait_for_async_copies(int pending) {
  AsyncCopies& copies = async_copies();
  auto copy = copies.waiting.begin();
  for (; copy != copies.waiting.end() && copy->group < copies.group - pending; ++copy) copy->carry_out();
  copies.waiting.erase(copies.waiting.begin(), copy);
}

}  // namespace cairn::host_cuda
