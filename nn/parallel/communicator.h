#pragma once
// The processes that compute together, as mpirun or Slurm started them. Each has a rank, and all of them call the same
// functions in the same order, with tensors of the same shapes. This class by itself is one process, rank 0 of 1, for
// which there is nothing to do; connect() returns one for several processes.
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
  // How many of the processes share this one's processors, itself included.
  virtual int on_processors() const { return 1; }

  // Adds up x (float32 or float64) over all ranks, in place, with the same bits on all of them.
  virtual void sum(Tensor& x);
  // Gives all ranks the elements that x has on rank 0.
  virtual void broadcast(Tensor& x);
  // Ends all processes: for one that fails while others wait for it.
  [[noreturn]] virtual void abort(int exit_code);
};

// Connects with the processes that were started beside this one; without a launcher, this process alone. Called once.
// Errors (UsageError): a launcher started several, and this program was built without MPI, or with another MPI than the
// launcher's.
std::unique_ptr<Communicator> connect();
// The same where a launcher is known to have started this process; in builds with MPI alone. The destructor ends MPI
// for this process, for good.
std::unique_ptr<Communicator> connect_mpi();
// The rank that the launcher gave this process, for errors of connect(); without a launcher, 0.
int launched_rank();

// The sum of a number over all ranks.
double sum(Communicator& ranks, double value);
// The value, or the text, that rank 0 has.
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
