// A launch: checks its shape as a GPU would, and distributes the blocks over host threads.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "core/parallel.h"
#include "cuda/emulator/host_cuda.h"
#include "cuda/emulator/multiprocessor.h"

namespace cairn::host_cuda {
namespace {

// What a multiprocessor of the claimed architecture has ("Compute Capabilities" in the CUDA C++ Programming Guide).
struct Capacity {
  int threads, blocks;
  size_t shared, reserved;  // KB of shared memory; of these, what each block takes in addition to its own

  size_t of_block() const { return (shared - reserved) * 1024; }
};
Capacity capacity() {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  if (major < 8) return {1024, 16, 64, 0};  // 7.5
  if (major >= 12 || (major == 8 && minor == 9)) return {1536, 24, 100, 1};
  if (major == 8 && minor > 0) return {1536, 16, minor == 6 ? size_t{100} : 164, 1};
  return {2048, 32, major == 8 ? size_t{164} : 228, 1};
}

// Bytes of dynamic shared memory that a kernel may use without asking.
constexpr size_t shared_by_default = 48 * 1024;

std::mutex launching;                       // one kernel at a time, like the operations of one stream
std::atomic<uint64_t> threads_that_waited;  // for earlier launches, in this one

Options from_environment() {
  Options options;
  if (const char* order = std::getenv("CAIRN_HOST_CUDA_ORDER")) {
    const std::string_view word = order;
    if (word == "forward")
      options.order = Order::forward;
    else if (word == "shuffled")
      options.order = Order::shuffled;
    else
      throw UsageError(concat("CAIRN_HOST_CUDA_ORDER: expected forward or shuffled, got '", word, "'"));
  }
  if (const char* seed = std::getenv("CAIRN_HOST_CUDA_SEED")) options.seed = std::strtoull(seed, nullptr, 10);
  return options;
}

Options& current_options() {
  static Options options = from_environment();
  return options;
}

// The limits of dynamic shared memory that kernels have requested.
std::map<const void*, size_t>& shared_limits() {
  static std::map<const void*, size_t> limits;
  return limits;
}
size_t shared_limit(const void* kernel) {
  const auto asked = shared_limits().find(kernel);
  return asked == shared_limits().end() ? shared_by_default : std::min(asked->second, capacity().of_block());
}

// The number of the i-th of n blocks to run. A one-to-one map, because n is smaller than the prime.
uint64_t block_number(uint64_t i, uint64_t n, const Options& options) {
  constexpr uint64_t prime = 2654435761;
  return options.order == Order::forward ? i : (i * prime + options.seed % n) % n;
}

// Block clusters have up to 8 blocks on every GPU that has them.
bool fits_block_cluster(dim3 grid, int blocks) {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  return blocks == 1 || (blocks >= 1 && blocks <= 8 && grid.x % unsigned(blocks) == 0 && major >= 9);
}

void run_grid(const Grid& grid) {
  const dim3 shape(grid.blocks.x / grid.block_cluster, grid.blocks.y, grid.blocks.z);  // in block clusters
  const uint64_t blocks = uint64_t(shape.x) * shape.y * shape.z;
#if CAIRN_HOST_CUDA_ASAN
  const int64_t multiprocessors = 1;  // because __shared__ is then static
#else
  const int64_t multiprocessors = grid.options.threads ? grid.options.threads : threads();
#endif
  std::atomic<uint64_t> next{0};
  parallel_tasks(std::min<int64_t>(multiprocessors, int64_t(blocks)), [&](int64_t) {
    try {
      for (uint64_t i; (i = next.fetch_add(1)) < blocks;) {
        const uint64_t number = block_number(i, blocks, grid.options);
        Multiprocessor::mine().run(grid, {unsigned(number % shape.x) * grid.block_cluster,
                                          unsigned(number / shape.x % shape.y), unsigned(number / shape.x / shape.y)});
      }
    } catch (...) {
      next = blocks;  // the others stop too
      throw;
    }
  });
}

}  // namespace

void configure(Options options) {
  check<UsageError>(options.threads >= 0, "host_cuda::configure: threads must be at least 0, got ", options.threads);
  std::lock_guard guard(launching);
  current_options() = options;
}

Options options() { return current_options(); }

cudaError_t launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                   const std::function<void()>& run_thread, SourceLine where, int block_cluster, bool overlapped) {
  std::lock_guard guard(launching);
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z, block_threads = uint64_t(block.x) * block.y * block.z;
  if (blocks == 0 || block_threads == 0 || block_threads > 1024 || block.z > 64 ||
      !fits_block_cluster(grid, block_cluster))
    return report(cudaErrorInvalidConfiguration);
  if (shared_bytes > shared_limit(kernel)) return report(cudaErrorInvalidValue);
  check<DeviceError>(blocks < uint64_t{1} << 31, "the emulator runs grids of up to 2^31 blocks, got ", blocks);
  threads_that_waited = 0;
  run_grid({grid, block, unsigned(block_cluster), shared_bytes, run_thread, where, current_options()});
  check<KernelError>(!overlapped || threads_that_waited == blocks * block_threads, to_string(where),
                     ": an overlapped launch, but only ", threads_that_waited.load(), " of its ",
                     blocks * block_threads, " threads called wait_for_earlier_launches()");
  return cudaSuccess;
}

void wait_for_earlier_launches() { ++threads_that_waited; }

}  // namespace cairn::host_cuda

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  using namespace cairn::host_cuda;
  if (value < 0 || size_t(value) > capacity().of_block()) return report(cudaErrorInvalidValue);
  std::lock_guard guard(launching);
  shared_limits()[kernel] = size_t(value);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes) {
  using namespace cairn::host_cuda;
  if (threads < 1 || threads > 1024) return report(cudaErrorInvalidValue);
  std::lock_guard guard(launching);
  const auto [all_threads, most, shared, reserved] = capacity();
  const int by_threads = all_threads / 32 / ((threads + 31) / 32);
  const int by_shared = int(shared * 1024 / std::max(shared_bytes + reserved * 1024, size_t{1}));
  *blocks = shared_bytes > shared_limit(kernel) ? 0 : std::min({most, by_threads, by_shared});
  return cudaSuccess;
}
