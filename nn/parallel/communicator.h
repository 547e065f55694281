#pragma once
// The processes that compute together, started by mpirun or Slurm. Each has a rank, and all of them call the same
// functions in the same order, with tensors of the same shapes. This class itself stands for a single process, rank 0
// of 1, and its functions do nothing. connect() returns a communicator for several processes.
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "core/tensor.h"

namespace cairn {

class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  virtual int rank() const { return 0; }
  virtual int size() const { return 1; }
  // How many of the processes, itself included, share this process's processors.
  virtual int sharing_processors() const { return 1; }

  // Adds up x (float32 or float64) over all ranks, in place, with the same bits on all of them.
  virtual void sum(Tensor& x);
  // Copies the elements of x on rank 0 to all ranks.
  virtual void broadcast(Tensor& x);
  // Ends all processes, because this one fails while others wait for it.
  [[noreturn]] virtual void abort(int exit_code);
};

// Connects with the processes that the launcher started beside this one; without a launcher, a single process. Called
// once. Errors (UsageError): a launcher started several processes, but this program was built without MPI, or with
// another MPI than the launcher's.
std::unique_ptr<Communicator> connect();
// The same, if a launcher is known to have started this process; only in builds with MPI. The destructor ends MPI for
// this process, for good.
std::unique_ptr<Communicator> connect_mpi();
// The rank that the launcher gave this process, for errors of connect(); 0 without a launcher.
int launched_rank();

// The sum of a number over all ranks.
double sum(Communicator& ranks, double value);
// Rank 0's value, or text, on all ranks.
template <class T>
T of_rank_0(Communicator& ranks, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (ranks.size() == 1) return value;
  Tensor bytes({int64_t(sizeof value)}, DType::uint8);
  std::memcpy(bytes.mutable_raw(), &value, sizeof value);
  ranks.broadcast(bytes);
  std::memcpy(&value, bytes.raw(), sizeof value);
  return value;
}
std::string of_rank_0(Communicator& ranks, const std::string& text);

}  // namespace cairn
