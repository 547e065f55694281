#pragma once
// The processes of an MPI job (Message Passing Interface 3.1), for tensors in the host's memory. In builds with
// CAIRN_MPI=ON alone.
#include <memory>

#include "nn/parallel/communicator.h"

namespace cairn {

// Connects with them; the end of its life ends MPI, for this process for good.
std::unique_ptr<Communicator> connect_mpi();

}  // namespace cairn
