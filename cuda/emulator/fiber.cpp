#include "cuda/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"

#if CAIRN_HOST_CUDA_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if CAIRN_HOST_CUDA_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#if !CAIRN_HOST_CUDA_UCONTEXT
// Saves the callee-saved registers on the present stack and restores them from the other stack. `ret` then returns to
// the caller on the other stack; unlike a jump, it keeps the processor's return prediction.
extern "C" void cairn_host_cuda_switch(void** save_stack_pointer, void* stack_pointer);
asm(R"(
.text
.p2align 4
.globl cairn_host_cuda_switch
.type cairn_host_cuda_switch, @function
cairn_host_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cairn_host_cuda_switch, .-cairn_host_cuda_switch
)");
#endif

namespace cairn::host_cuda {
namespace {

// Sanitized code needs larger frames. Pages that are never touched cost nothing.
constexpr size_t stack_bytes = 256 * 1024;

size_t page_bytes() {
  static const size_t bytes = size_t(sysconf(_SC_PAGESIZE));
  return bytes;
}

// The present switch of this host thread.
thread_local Fiber* leaving = nullptr;
thread_local Fiber* entering = nullptr;

}  // namespace

Fiber::Fiber() {
#if CAIRN_HOST_CUDA_TSAN
  thread_state_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(void (*entry)(), int index) : entry_(entry), index_(index), bytes_(stack_bytes) {
  const int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* block = mmap(nullptr, page_bytes() + bytes_, access, kind, -1, 0);
  check<DeviceError>(block != MAP_FAILED, "out of memory for the stack of an emulated CUDA thread");
  mprotect(block, page_bytes(), PROT_NONE);  // an overflow faults instead of overwriting other memory
  stack_ = static_cast<char*>(block) + page_bytes();
  restart();
}

Fiber::~Fiber() {
  if (!entry_) return;
#if CAIRN_HOST_CUDA_ASAN
  __asan_unpoison_memory_region(stack_, bytes_);
#endif
#if CAIRN_HOST_CUDA_TSAN
  __tsan_destroy_fiber(thread_state_);
#endif
  munmap(stack_ - page_bytes(), page_bytes() + bytes_);
}

void Fiber::restart() {
#if CAIRN_HOST_CUDA_ASAN
  __asan_unpoison_memory_region(stack_, bytes_);
  fake_stack_ = nullptr;
#endif
#if CAIRN_HOST_CUDA_TSAN
  if (thread_state_) __tsan_destroy_fiber(thread_state_);
  thread_state_ = __tsan_create_fiber(0);
#endif
#if CAIRN_HOST_CUDA_UCONTEXT
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
#else
  // The switch pops six registers and the return address. Above them is a null, the caller of begin(), so that the
  // stack pointer is 8 modulo 16 there, as after a call. Stacks that all start at the same offset within a page would
  // compete for the same cache sets.
  void** top = reinterpret_cast<void**>(stack_ + bytes_ - size_t(index_) * 320 % 8192);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&Fiber::begin);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  leaving = &from;
  entering = &to;
#if CAIRN_HOST_CUDA_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.bytes_);
#endif
#if CAIRN_HOST_CUDA_TSAN
  // A switch does not order CUDA threads; only barriers do.
  __tsan_switch_to_fiber(to.thread_state_, __tsan_switch_to_fiber_no_sync);
#endif
#if CAIRN_HOST_CUDA_UCONTEXT
  swapcontext(&from.context_, &to.context_);
#else
  cairn_host_cuda_switch(&from.stack_pointer_, to.stack_pointer_);
#endif
  arrived();
}

// The first thing to do on a stack after a switch to it.
void Fiber::arrived() {
#if CAIRN_HOST_CUDA_ASAN
  const void* stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(entering->fake_stack_, &stack, &bytes);
  if (!leaving->entry_) {  // the host thread's own stack: now its bounds are known
    leaving->stack_ = static_cast<char*>(const_cast<void*>(stack));
    leaving->bytes_ = bytes;
  }
#endif
}

void Fiber::begin() {
  arrived();
  entering->entry_();
}

}  // namespace cairn::host_cuda
