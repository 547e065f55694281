#pragma once
// A fiber: a stack on which a CUDA thread runs until it has to wait for others. A switch takes about 15 ns.
#include <cstddef>

// The switch is in assembly for x86-64. Other processors use ucontext, which takes six times as long; so do builds
// that define CAIRN_HOST_CUDA_UCONTEXT.
#if !defined(CAIRN_HOST_CUDA_UCONTEXT) && !defined(__x86_64__)
#define CAIRN_HOST_CUDA_UCONTEXT 1
#endif
#if CAIRN_HOST_CUDA_UCONTEXT
#include <ucontext.h>  // IWYU pragma: export
#endif

namespace cairn::host_cuda {

class Fiber {
 public:
  // The present stack of the calling host thread.
  Fiber();
  // A new stack. The first switch to it calls entry, which must never return. `index` only spreads stacks over the
  // processor's cache sets. Error: out of memory.
  Fiber(void (*entry)(), int index);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Resets the stack, without unwinding. The next switch to it calls entry again.
  void restart();

  // Continues where `to` left off. `from` is the present stack; the call returns at the next switch to it.
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
