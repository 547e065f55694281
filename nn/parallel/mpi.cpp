#include "nn/parallel/mpi.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#if CAIRN_NCCL
#include "nn/parallel/nccl.h"
#endif

namespace cairn {
namespace {

int count_of(int64_t n) {
  check(n <= std::numeric_limits<int>::max(), "MPI: ", n, " elements in one message, at most 2^31 - 1 go");
  return int(n);
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);  // ends the process where it fails
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    count_neighbors();
  }
  ~MpiCommunicator() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int on_processors() const override { return neighbors_; }
  std::string take_gpu() override {
    if (size_ == 1) return {};
    return "this program was built without NCCL, by which several processes with GPUs add up (configure it "
           "with --preset nccl)";
  }
  // This process is number place() of the there() on its machine.
  int place() const { return place_; }
  int there() const { return there_; }

  // Iallreduce, so that it goes on while this rank computes the next gradients.
  void start_sum(const Tensor& x) override {
    check(x.device() == Device::cpu, "MPI: a sum over ranks of a tensor that is not in the host's memory");
    check(x.dtype() == DType::float32 || x.dtype() == DType::float64, "MPI: expected float32 or float64, got ",
          name(x.dtype()));
    Tensor own = x;
    const MPI_Datatype type = x.dtype() == DType::float32 ? MPI_FLOAT : MPI_DOUBLE;
    void* const numbers = own.mutable_raw();
    MPI_Iallreduce(MPI_IN_PLACE, numbers, count_of(x.elements()), type, MPI_SUM, MPI_COMM_WORLD,
                   &started_.emplace_back());
    kept_.push_back(std::move(own));
  }
  void progress() override {
    int done = 0;
    MPI_Testall(int(started_.size()), started_.data(), &done, MPI_STATUSES_IGNORE);
  }
  void wait() override { wait(watchdog_); }

  void broadcast(Tensor& x, int root) override {
    Tensor host = x.to(Device::cpu);
    MPI_Ibcast(host.mutable_raw(), count_of(int64_t(host.bytes())), MPI_BYTE, root, MPI_COMM_WORLD,
               &started_.emplace_back());
    wait(watchdog_);
    if (x.device() != Device::cpu) x.copy_from(host);
  }

  void meet() override {
    MPI_Ibarrier(MPI_COMM_WORLD, &started_.emplace_back());
    wait(std::numeric_limits<double>::infinity());
  }

  void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  // Counts the ranks of this machine that may run on processors of this one: launchers often give each rank its own.
  void count_neighbors() {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &place_);
    MPI_Comm_size(machine, &there_);
    cpu_set_t mine{};
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> all(static_cast<size_t>(there_));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, machine);
    MPI_Comm_free(&machine);
    neighbors_ = 0;
    for (const cpu_set_t& other : all) {
      cpu_set_t both{};
      CPU_AND(&both, &mine, &other);
      neighbors_ += CPU_COUNT(&both) > 0;
    }
  }

  // Looks again and again, first without a pause, because the others are seldom far behind, then with one: where ranks
  // outnumber processors, they need this one's.
  void wait(double seconds) {
    Patience patience(*this, seconds);
    for (int64_t looks = 0;; ++looks) {
      int done = 0;
      MPI_Testall(int(started_.size()), started_.data(), &done, MPI_STATUSES_IGNORE);
      if (done) break;
      if (looks < 1000) continue;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      patience.check();
    }
    started_.clear();
    kept_.clear();
  }

  int rank_ = 0, size_ = 1, place_ = 0, there_ = 1, neighbors_ = 1;
  double watchdog_ = watchdog_seconds();
  std::vector<MPI_Request> started_;
  std::vector<Tensor> kept_;  // what they work on
};

}  // namespace

std::unique_ptr<Communicator> connect_mpi() {
  auto ranks = std::make_unique<MpiCommunicator>();
#if CAIRN_NCCL
  const int place = ranks->place(), there = ranks->there();
  if (ranks->size() > 1) return with_gpus(std::move(ranks), place, there);
#endif
  return ranks;
}

}  // namespace cairn
