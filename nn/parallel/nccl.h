#pragma once
// Processes with a GPU each. In builds with CAIRN_NCCL=ON alone.
#include <memory>

#include "nn/parallel/communicator.h"

namespace cairn {

// The processes of `host`, which works for tensors in the host's memory, now for those in GPUs' memory too. This
// process is number `place` of the `there` on its machine. NCCL (2.14 or newer) connects at the first sum or broadcast
// on a GPU.
std::unique_ptr<Communicator> with_gpus(std::unique_ptr<Communicator> host, int place, int there);

}  // namespace cairn
