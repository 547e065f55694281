#include "nn/parallel/communicator.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace cairn {
namespace {

// The number in the first of these environment variables that is set; 0 if none is.
int number_in(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

// How many processes the launcher started; 0: there is no launcher, or it does not say. The variables are those of Open
// MPI's mpirun, of MPICH's and its relatives', and of Slurm's srun (which sets PMIX_RANK for processes that it starts,
// but not for a batch script).
int launched() {
  return number_in({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", std::getenv("PMIX_RANK") ? "SLURM_NTASKS" : ""});
}

}  // namespace

void Communicator::sum(Tensor&) {}
void Communicator::broadcast(Tensor&) {}
void Communicator::abort(int exit_code) { std::_Exit(exit_code); }

std::unique_ptr<Communicator> connect() {
  const int expected = launched();
#if CAIRN_MPI
  if (expected == 0 && !std::getenv("PMIX_RANK")) return std::make_unique<Communicator>();
  auto ranks = connect_mpi();
  check<UsageError>(
      ranks->size() > 1 || expected <= 1, "started as one of ", expected,
      " processes, but they cannot find each other: the launcher belongs to another MPI than the one that ",
      "this program was built with");
  return ranks;
#else
  check<UsageError>(expected <= 1, "started as one of ", expected,
                    " processes, but this program was built without MPI: configure it with --preset mpi, or start it ",
                    "without mpirun");
  return std::make_unique<Communicator>();
#endif
}

int launched_rank() { return number_in({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}); }

double sum(Communicator& ranks, double value) {
  Tensor all = Tensor::full({1}, value, DType::float64);
  ranks.sum(all);
  return all.item();
}

std::string of_rank_0(Communicator& ranks, const std::string& text) {
  if (ranks.size() == 1) return text;
  Tensor bytes({of_rank_0(ranks, int64_t(text.size()))}, DType::uint8);
  if (ranks.rank() == 0 && !text.empty()) std::memcpy(bytes.mutable_raw(), text.data(), text.size());
  ranks.broadcast(bytes);
  return {static_cast<const char*>(bytes.raw()), bytes.bytes()};
}

}  // namespace cairn
