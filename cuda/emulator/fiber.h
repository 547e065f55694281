#pragma once
// A stack of its own, on which a CUDA thread runs until it has to wait for others. Switching takes some 15 ns.
#include <cstddef>

// The switch is hand-written for x86-64. Other processors use ucontext, which is six times slower; so does a
// build that defines CAIRN_HOST_CUDA_UCONTEXT.
#if !defined(CAIRN_HOST_CUDA_UCONTEXT) && !defined(__x86_64__)
#define CAIRN_HOST_CUDA_UCONTEXT 1
#endif
#if CAIRN_HOST_CUDA_UCONTEXT
#include <ucontext.h>  // IWYU pragma: export
#endif

namespace cairn::host_cuda {

class Fiber {
 public:
  // The stack on which the calling host thread is now.
  Fiber();
  // A new stack. The first switch to it calls entry, which must never return. `index` only spreads stacks over the
  // processor's cache sets. Error: no memory for it.
  Fiber(void (*entry)(), int index);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Forgets what was going on on this stack (nothing is unwound): the next switch to it calls entry again.
  void restart();

  // Goes on where `to` left off, and returns when someone switches back to `from`, on which we are.
  static void switch_to(Fiber& from, Fiber& to);

 private:
  static void begin();
  static void arrived();

  void (*entry_)() = nullptr;  // null for the host thread's own stack
  int index_ = 0;
  char* stack_ = nullptr;
  size_t bytes_ = 0;
#if CAIRN_HOST_CUDA_UCONTEXT
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;
#endif
  void* fake_stack_ = nullptr;    // the address sanitizer's
  void* thread_state_ = nullptr;  // the thread sanitizer's
};

}  // namespace cairn::host_cuda
