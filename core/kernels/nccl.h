#pragma once
// Sums over processes that have a GPU each, by NVIDIA's library NCCL. In builds with CAIRN_NCCL=ON alone.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/device.h"

namespace cairn::gpu {

// Makes one of the GPUs that device_count() counts this process's own, before anything else of CUDA runs. Returns its
// UUID, which no other GPU has.
std::array<uint32_t, 4> choose_device(int index);

// The processes that share sums. All of them call the same functions in the same order. No call waits for another
// process: each begins something, and the next may be called only when settled() says so. Errors (DeviceError): NCCL's
// or CUDA's, in their words; another process or the network may be the cause. Only the destructor may follow.
class Nccl {
 public:
  // By what processes find each other: one makes it and gives it to all.
  using Id = std::array<uint8_t, 128>;
  static Id make_id();

  Nccl(const Id& id, int rank, int size);
  ~Nccl();  // ends what is not done
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // Adds up n numbers over all processes, in place, or gives all of them the bytes of process `root`: on a stream of
  // NCCL's own, behind what was queued on `compute` so far.
  void start_sum(Stream compute, float* numbers, int64_t n);
  void start_broadcast(Stream compute, void* block, size_t bytes, int root);
  // Begins to end the connection.
  void start_finish();

  // Is NCCL done with the last call on the host?
  bool settled();
  // Is all that was started done on the GPU?
  bool done();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::gpu
