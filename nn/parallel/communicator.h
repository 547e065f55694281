#pragma once
// The processes that compute together, as mpirun or Slurm started them: each has a rank, and all of them call the same
// functions in the same order, with tensors of the same shapes. This class by itself is one process, rank 0 of 1, for
// which nothing is to be done; mpi.h connects several, and nccl.h those with a GPU each.
//
// A wait for others, but for meet(), ends with an Error after CAIRN_WATCHDOG seconds (an environment variable; 60
// without it): one of them was stopped, or its machine is gone.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

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

  // Gives this process a GPU that no other one has; before anything else of CUDA runs. Returns why not all processes
  // can have theirs, the same on all of them; empty if they can.
  virtual std::string take_gpu() { return {}; }

  // Starts to add up x over all ranks, in place, with the same bits on all of them. Until wait() its numbers are
  // nobody's. float32 or float64.
  virtual void start_sum(const Tensor& x);
  // Lets the sums that were started go on: MPI does so only while it is called.
  virtual void progress() {}
  // Returns when all sums that were started are there.
  virtual void wait() {}
  // Gives all ranks the numbers of x on rank `root`.
  virtual void broadcast(Tensor& x, int root = 0);
  // Returns when all ranks are here. Without a watchdog: for those who wait for an evaluation or a save.
  virtual void meet() {}
  // Ends all processes; for one that fails while others wait for it.
  [[noreturn]] virtual void abort(int exit_code);

 protected:
  static double watchdog_seconds();
  // How long a wait for others has taken. While this process is stopped itself, so is its clock.
  class Patience {
   public:
    Patience(const Communicator& ranks, double seconds) : ranks_(ranks), seconds_(seconds) {}
    // To be called again and again while it waits. Error: it has waited longer than that.
    void check();

   private:
    const Communicator& ranks_;
    double seconds_, waited_ = 0;
    std::chrono::steady_clock::time_point before_ = std::chrono::steady_clock::now();
  };
};

// Connects with the processes that were started beside this one; null: no launcher started it. Not called twice. Errors
// (UsageError): a launcher started several, and this program was built without MPI, or with another MPI than the
// launcher's.
std::unique_ptr<Communicator> connect();
// This process's rank as the launcher gave it, known before connect(); without a launcher, 0.
int launched_rank();

// This process by itself.
Communicator& this_process();

// The text, or the value, of rank `root`.
std::string broadcast_text(Communicator& ranks, std::string text, int root = 0);
bool broadcast_flag(Communicator& ranks, bool flag, int root = 0);
// The texts of all ranks, in their order.
std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text);
// Empty where all ranks have the same text; else, on all of them, the first line that is another on some rank: "rank 0
// has ..., rank 2 has ...".
std::string difference(Communicator& ranks, const std::string& text);

// Part `index` of `count` of the numbers [0, n), in their order. Sizes differ by one at most.
struct Part {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
Part part_of(int64_t n, int index, int count);

}  // namespace cairn
