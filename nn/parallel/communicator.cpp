#include "nn/parallel/communicator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "nn/io/json.h"

#if CAIRN_MPI
#include "nn/parallel/mpi.h"
#endif

namespace cairn {
namespace {

// The number in the first of these environment variables that is there; without any, 0.
int number_in(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) return std::atoi(text);
  return 0;
}

// How many processes the launcher says that it started; 0: there is no launcher, or it does not say. This is what Open
// MPI's mpirun sets, that of MPICH and its relatives, and Slurm's srun (which sets PMIX_RANK for what it starts, but
// not for a batch script).
int launched() {
  return number_in({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", std::getenv("PMIX_RANK") ? "SLURM_NTASKS" : ""});
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

void Communicator::start_sum(const Tensor&) {}
void Communicator::broadcast(Tensor&, int) {}
void Communicator::abort(int exit_code) { std::_Exit(exit_code); }

double Communicator::watchdog_seconds() {
  const char* text = std::getenv("CAIRN_WATCHDOG");
  if (!text) return 60;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  check<UsageError>(end != text && !*end && seconds > 0 && std::isfinite(seconds),
                    "CAIRN_WATCHDOG: expected seconds above 0, got ", in_quotes(text));
  return seconds;
}

void Communicator::Patience::check() {
  const auto now = std::chrono::steady_clock::now();
  waited_ += std::min(std::chrono::duration<double>(now - before_).count(), 1.0);
  before_ = now;
  cairn::check(waited_ < seconds_, "rank ", ranks_.rank(), " of ", ranks_.size(), " has waited ", seconds_,
               " s for the others: one of them was stopped, or its machine is gone (the environment variable ",
               "CAIRN_WATCHDOG sets the seconds)");
}

std::unique_ptr<Communicator> connect() {
  const int expected = launched();
#if CAIRN_MPI
  if (expected == 0 && !std::getenv("PMIX_RANK")) return nullptr;
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
  return nullptr;
#endif
}

int launched_rank() { return number_in({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}); }

Communicator& this_process() {
  static Communicator alone;
  return alone;
}

std::string broadcast_text(Communicator& ranks, std::string text, int root) {
  if (ranks.size() == 1) return text;
  Tensor size = Tensor::from<int32_t>({int32_t(text.size())}, {1});
  ranks.broadcast(size, root);
  Tensor bytes({size.data<int32_t>()[0]}, DType::uint8);
  if (ranks.rank() == root && !text.empty()) std::memcpy(bytes.mutable_raw(), text.data(), text.size());
  ranks.broadcast(bytes, root);
  return {static_cast<const char*>(bytes.raw()), bytes.bytes()};
}

bool broadcast_flag(Communicator& ranks, bool flag, int root) {
  if (ranks.size() == 1) return flag;
  Tensor value = Tensor::from<int32_t>({flag}, {1});
  ranks.broadcast(value, root);
  return value.data<int32_t>()[0] != 0;
}

std::vector<std::string> gather_texts(Communicator& ranks, const std::string& text) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks.size(); ++rank) texts.push_back(broadcast_text(ranks, text, rank));
  return texts;
}

std::string difference(Communicator& ranks, const std::string& text) {
  if (ranks.size() == 1) return "";
  const std::string first = broadcast_text(ranks, text);
  Tensor differs = Tensor::zeros({ranks.size()}, DType::float64);
  differs.mutable_data<double>()[ranks.rank()] = text != first;
  ranks.start_sum(differs);
  ranks.wait();
  int other = 1;
  while (other < ranks.size() && differs.data<double>()[other] == 0) ++other;
  if (other == ranks.size()) return "";
  const auto here = lines_of(first), there = lines_of(broadcast_text(ranks, text, other));
  size_t at = 0;
  while (at < here.size() && at < there.size() && here[at] == there[at]) ++at;
  const auto line = [&](const auto& lines) { return at < lines.size() ? lines[at] : std::string("nothing"); };
  return concat("rank 0 has ", line(here), ", rank ", other, " has ", line(there));
}

Part part_of(int64_t n, int index, int count) {
  const int64_t each = n / count, more = n % count;  // the first `more` parts have one more
  const auto begin = [&](int64_t i) { return i * each + std::min(i, more); };
  return {begin(index), begin(index + 1)};
}

}  // namespace cairn
