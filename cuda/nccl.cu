// Sums over processes that have a GPU each (core/kernels/nccl.h), by NCCL's ring or tree all-reduce: each GPU sends and
// receives 2 (P - 1) / P times the bytes that are summed. Compiled with CAIRN_NCCL=ON alone.
//
// The connection does not block: a process that is gone must not keep this one in a call of NCCL's or CUDA's for ever,
// so whoever waits asks again and again, for as long as they please.
#include "core/kernels/nccl.h"

#include <nccl.h>

#include <cstring>

#include "cuda/launch.h"

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0),
              "NCCL 2.14 or newer is needed: connections that do not block");

namespace cairn::gpu {
namespace {

// Throws DeviceError with NCCL's words, unless the call succeeded or is under way.
void check_nccl(ncclResult_t status, ncclComm_t connection = nullptr) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  const std::string details = ncclGetLastError(connection);
  throw DeviceError(concat("NCCL: ", ncclGetErrorString(status), details.empty() ? "" : ": ", details,
                           "; NCCL_DEBUG=INFO in the environment tells more"));
}

}  // namespace

struct Nccl::State {
  ncclComm_t connection = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t ready = nullptr;
  bool finishing = false;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    ncclResult_t status = ncclInProgress;
    if (finishing) ncclCommGetAsyncError(connection, &status);
    if (status == ncclSuccess)
      ncclCommDestroy(connection);
    else if (connection)
      ncclCommAbort(connection);
    if (ready) cudaEventDestroy(ready);
    if (stream) cudaStreamDestroy(stream);
  }

  // What is queued on the stream from now on comes behind what was queued on `compute` so far.
  void follow(Stream compute) {
    check_cuda(cudaEventRecord(ready, native(compute)));
    check_cuda(cudaStreamWaitEvent(stream, ready, 0));
  }
};

std::array<uint32_t, 4> choose_device(int index) {
  check_cuda(cudaSetDevice(index));
  cudaDeviceProp device;
  check_cuda(cudaGetDeviceProperties(&device, index));
  std::array<uint32_t, 4> uuid;
  static_assert(sizeof uuid == sizeof device.uuid);
  std::memcpy(uuid.data(), &device.uuid, sizeof uuid);
  return uuid;
}

Nccl::Id Nccl::make_id() {
  ncclUniqueId id;
  check_nccl(ncclGetUniqueId(&id));
  Id bytes;
  static_assert(sizeof bytes == sizeof id);
  std::memcpy(bytes.data(), &id, sizeof id);
  return bytes;
}

Nccl::Nccl(const Id& id, int rank, int size) : state_(std::make_unique<State>()) {
  // Its few blocks go before those of kernels that wait for a place.
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  check_cuda(cudaStreamCreateWithPriority(&state_->stream, cudaStreamNonBlocking, greatest));
  check_cuda(cudaEventCreateWithFlags(&state_->ready, cudaEventDisableTiming));
  ncclUniqueId native_id;
  std::memcpy(&native_id, id.data(), sizeof native_id);
  ncclConfig_t configuration = NCCL_CONFIG_INITIALIZER;
  configuration.blocking = 0;
  check_nccl(ncclCommInitRankConfig(&state_->connection, size, native_id, rank, &configuration));
}

Nccl::~Nccl() = default;

void Nccl::start_sum(Stream compute, float* numbers, int64_t n) {
  state_->follow(compute);
  check_nccl(ncclAllReduce(numbers, numbers, size_t(n), ncclFloat32, ncclSum, state_->connection, state_->stream),
             state_->connection);
}

void Nccl::start_broadcast(Stream compute, void* block, size_t bytes, int root) {
  state_->follow(compute);
  check_nccl(ncclBroadcast(block, block, bytes, ncclUint8, root, state_->connection, state_->stream),
             state_->connection);
}

void Nccl::start_finish() {
  state_->finishing = true;
  check_nccl(ncclCommFinalize(state_->connection), state_->connection);
}

bool Nccl::settled() {
  ncclResult_t status = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(state_->connection, &status), state_->connection);
  check_nccl(status, state_->connection);
  return status == ncclSuccess;
}

bool Nccl::done() {
  if (!settled()) return false;
  const cudaError_t status = cudaStreamQuery(state_->stream);
  if (status == cudaErrorNotReady) return false;
  check_cuda(status);
  return true;
}

}  // namespace cairn::gpu
