#pragma once
// A streaming multiprocessor: runs one block at a time, or the blocks of one block cluster together. Their CUDA threads
// run one after another on one host thread.
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
  unsigned block_cluster = 1;  // blocks that run together
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

  // Runs one block, or a block cluster: this block and those after it in x. Throws KernelError, and whatever the kernel
  // throws.
  void run(const Grid& grid, uint3 block);

  // The running CUDA thread calls these; see cuda_runtime.h.
  int block_barrier(int predicate, SourceLine where) { return wait_with(blocks_[running_->block], predicate, where); }
  void block_cluster_barrier(SourceLine where) { wait_with(block_cluster_, 0, where); }
  void warp_collective(const char* name, unsigned mask, const void* value, const ReadLanes& read, SourceLine where);
  unsigned completed_barriers() const { return blocks_[running_->block].barriers; }
  void* dynamic_shared_memory() {
    dynamic_shared_used_ = true;
    return blocks_[running_->block].dynamic_shared.data();
  }
  void* in_block(int rank, const void* mine, SourceLine where);
  void fill_static_shared();
  [[noreturn]] void refuse(const std::string& what, SourceLine where) const;
  [[noreturn]] void refuse_to_read(unsigned read, unsigned reader);

  AsyncCopies& async_copies() { return running_->copies; }
  bool copies_at_once();

 private:
  enum class State : uint8_t { runnable, in_barrier, in_warp, ended };

  struct Together;

  struct CudaThread {
    uint3 index{};
    unsigned block = 0, lane = 0, warp = 0;
    State state = State::runnable;
    Fiber* fiber = nullptr;
    // The barrier or collective where it waits, and what it passes to it.
    const Together* waits_with = nullptr;
    SourceLine where;
    int predicate = 0;
    const char* collective = "";
    const void* value = nullptr;
    const ReadLanes* read = nullptr;
    AsyncCopies copies;
  };

  // Threads that have a barrier: those of a block, or of a block cluster.
  struct Together {
    unsigned alive = 0, waiting = 0;
    const CudaThread* first_waiting = nullptr;
    unsigned barriers = 0;  // completed barriers
    // For the thread sanitizer. Barriers use the two addresses alternately, because a thread may arrive at the next
    // barrier before others have left this one.
    char sync_addresses[2] = {};
  };
  struct Block : Together {
    uint3 index{};
    DynamicShared dynamic_shared;
  };

  // A pending collective, identified by its mask, and the lanes that have arrived.
  struct Collective {
    unsigned mask, arrived;
  };
  struct Warp {
    unsigned first = 0;  // thread
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

  int wait_with(Together& together, int predicate, SourceLine where);
  void complete_barrier(Together& together);
  void complete_collectives(unsigned warp);
  void exchange_values(unsigned warp, unsigned taking_part);
  CudaThread& lane(unsigned warp, unsigned lane_number) { return threads_[warps_[warp].first + lane_number]; }

  void check_dynamic_shared(const char* before, SourceLine where) const;
  [[noreturn]] void fail(const std::string& what, SourceLine where, const CudaThread& thread) const;
  [[noreturn]] void fail_deadlocked() const;
  std::string launched() const;

  const Grid* grid_ = nullptr;
  Together block_cluster_;
  std::vector<Block> blocks_;
  uint64_t random_ = 0;
  std::vector<CudaThread> threads_;
  std::vector<Warp> warps_;
  std::vector<CudaThread*> runnable_;  // the last one runs first
  std::vector<CudaThread*> group_;     // about to become runnable
  CudaThread* running_ = nullptr;
  std::exception_ptr failure_;  // of a CUDA thread; ends the block
  bool dynamic_shared_used_ = false;
  const std::vector<std::span<unsigned char>> static_shared_ = static_shared_variables();

  Fiber host_;  // the stack that run() was called on
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace cairn::host_cuda
