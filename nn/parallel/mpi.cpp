// The processes of an MPI job (Message Passing Interface 3.1). MPI works on host memory: tensors on a GPU are copied
// there and back.
#include <mpi.h>
#include <sched.h>

#include <cstdlib>
#include <limits>
#include <vector>

#include "nn/parallel/communicator.h"

namespace cairn {
namespace {

int count_of(size_t n, const char* unit) {
  check(n <= size_t(std::numeric_limits<int>::max()), "MPI: ", n, ' ', unit,
        " in one message, expected at most 2^31 - 1");
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
  int sharing_processors() const override { return neighbors_; }

  void sum(Tensor& x) override {
    check(x.dtype() == DType::float32 || x.dtype() == DType::float64,
          "MPI: a sum over ranks: expected float32 or float64, got ", name(x.dtype()));
    const MPI_Datatype type = x.dtype() == DType::float32 ? MPI_FLOAT : MPI_DOUBLE;
    Tensor host = x.to(Device::cpu);
    MPI_Allreduce(MPI_IN_PLACE, host.mutable_raw(), count_of(size_t(x.elements()), "elements"), type, MPI_SUM,
                  MPI_COMM_WORLD);
    if (x.device() != Device::cpu) x.copy_from(host);
  }

  void broadcast(Tensor& x) override {
    Tensor host = x.to(Device::cpu);
    MPI_Bcast(host.mutable_raw(), count_of(host.bytes(), "bytes"), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (x.device() != Device::cpu) x.copy_from(host);
  }

  void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  // Counts the ranks of this machine that may run on this rank's processors. Launchers often give each rank its own.
  void count_neighbors() {
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    int there = 0;
    MPI_Comm_size(machine, &there);
    cpu_set_t mine{};
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> all(static_cast<size_t>(there));
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, machine);
    MPI_Comm_free(&machine);
    neighbors_ = 0;
    for (const cpu_set_t& other : all) {
      cpu_set_t both{};
      CPU_AND(&both, &mine, &other);
      neighbors_ += CPU_COUNT(&both) > 0;
    }
  }

  int rank_ = 0, size_ = 1, neighbors_ = 1;
};

}  // namespace

std::unique_ptr<Communicator> connect_mpi() { return std::make_unique<MpiCommunicator>(); }

}  // namespace cairn
