#pragma once
// A streaming multiprocessor: runs one block at a time. The block's CUDA threads run one after another on one host
// thread.
//
// A CUDA thread runs until it waits (at a barrier, in a warp collective) or ends; then the next runnable one runs. The
// thread that completes a barrier or a collective makes all threads that wait there runnable again. If no thread is
// runnable and not all have ended, the kernel is deadlocked.
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/emulator/cuda_runtime.h"
#include "cuda/emulator/fiber.h"
#include "cuda/emulator/host_cuda.h"
#include "cuda/emulator/ptx.h"
#include "cuda/emulator/shared_memory.h"

namespace cairn::host_cuda {

// One launch.
struct Grid {
  dim3 blocks, threads;
  size_t shared_bytes = 0;
  const std::function<void()>& run_thread;
  SourceLine where;  // of the launch
  Options options;
};

class Multiprocessor {
 public:
  // The multiprocessor of the calling host thread.
  static Multiprocessor& mine();
  // The multiprocessor that runs the calling CUDA thread. Error: called outside of a kernel.
  static Multiprocessor& current();

  // Runs one block. Throws KernelError, and whatever the kernel throws.
  void run(const Grid& grid, uint3 block);

  // The running CUDA thread calls these; see cuda_runtime.h.
  int block_barrier(int predicate, SourceLine where);
  void warp_collective(const char* name, unsigned mask, const void* value, const ReadLanes& read, SourceLine where);
  void* dynamic_shared_memory() {
    dynamic_shared_used_ = true;
    return dynamic_shared_.data();
  }
  void fill_static_shared();
  [[noreturn]] void refuse(const std::string& what, SourceLine where) const;
  [[noreturn]] void refuse_to_read(unsigned read, unsigned reader);

  AsyncCopies& async_copies() { return running_->copies; }
  bool copies_at_once();

 private:
  enum class State : uint8_t { runnable, in_barrier, in_warp, ended };

  struct CudaThread {
    uint3 index{};
    unsigned lane = 0, warp = 0;
    State state = State::runnable;
    Fiber* fiber = nullptr;
    // The barrier or collective where it waits, and what it passes to it.
    SourceLine where;
    int predicate = 0;
    const char* collective = "";
    const void* value = nullptr;
    const ReadLanes* read = nullptr;
    AsyncCopies copies;
  };

  // A pending collective, identified by its mask, and the lanes that have arrived.
  struct Collective {
    unsigned mask, arrived;
  };
  struct Warp {
    unsigned alive = 0;  // lanes that have not ended
    int pending = 0;
    Collective collectives[32];
  };

  void prepare(const Grid& grid, uint3 block);
  static void fiber_main();
  void run_current_thread();
  void end_current_thread();
  void suspend(Fiber& from);
  void resume_group();

  void complete_barrier();
  void complete_collectives(unsigned warp);
  void exchange_values(unsigned warp, unsigned taking_part);
  CudaThread& lane(unsigned warp, unsigned lane_number) { return threads_[warp * 32 + lane_number]; }

  void check_dynamic_shared(const char* before, SourceLine where) const;
  [[noreturn]] void fail(const std::string& what, SourceLine where, const CudaThread& thread) const;
  [[noreturn]] void fail_deadlocked() const;
  std::string launched() const;

  const Grid* grid_ = nullptr;
  uint3 block_{};
  uint64_t random_ = 0;
  std::vector<CudaThread> threads_;
  std::vector<Warp> warps_;
  unsigned alive_ = 0;
  unsigned in_barrier_ = 0;
  const CudaThread* first_in_barrier_ = nullptr;
  unsigned barriers_ = 0;  // completed barriers
  // For the thread sanitizer. Barriers use the two addresses alternately, because a thread may arrive at the next
  // barrier before others have left this one.
  char sync_addresses_[2] = {};
  std::vector<CudaThread*> runnable_;  // the last one runs first
  std::vector<CudaThread*> group_;     // about to become runnable
  CudaThread* running_ = nullptr;
  std::exception_ptr failure_;  // of a CUDA thread; ends the block
  DynamicShared dynamic_shared_;
  bool dynamic_shared_used_ = false;
  const std::vector<std::span<unsigned char>> static_shared_ = static_shared_variables();

  Fiber host_;  // the stack that run() was called on
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace cairn::host_cuda
