// What the emulator finds wrong with kernels of clusters: each detection is triggered by a kernel that has just that
// mistake. (tests/cuda/launch.cpp has a correct one.)
#include "cuda/cluster.cuh"

#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::cluster_rank;
using gpu::cluster_sync;
using gpu::dynamic_shared;
using gpu::launch;
using gpu::neighbor_shared;

namespace {

// What block `rank` of the cluster has at the place of this thread.
int* of_block(unsigned rank, SourceLine where = SourceLine::current()) {
  return neighbor_shared(dynamic_shared<int>() + threadIdx.x, rank, where);
}

__global__ void correct(int* out) {
  *of_block(cluster_rank()) = int(10 * blockIdx.x);
  cluster_sync();
  out[blockDim.x * blockIdx.x + threadIdx.x] = *of_block(1 - cluster_rank());
  cluster_sync();
}

// The message that a launch of 2 clusters of 2 blocks ends with; afterwards the emulator must work.
template <class... Parameters, class... Args>
std::string message_of(void (*kernel)(Parameters...), unsigned threads, Args... args) {
  std::string message;
  try {
    launch(kernel, {4, threads, threads * sizeof(int), {}, 2}, args...);
  } catch (const host_cuda::KernelError& error) {
    message = error.what();
  }
  OnDevice<int> out(4);
  launch(correct, {4, 1, sizeof(int), {}, 2}, out.data());
  CHECK(out.values() == std::vector<int>{10, 0, 30, 20});
  return message;
}

std::string in_file(int line) { return "clusters.cpp:" + std::to_string(line) + ": "; }

constexpr int line_of_divergent = __LINE__ + 3;
__global__ void divergent() {
  if (cluster_rank() == 1)
    cluster_sync();
  else
    cluster_sync();
}
constexpr int line_of_stuck = __LINE__ + 3;
__global__ void stuck() {
  if (cluster_rank() == 1 && threadIdx.x < 5)
    __syncthreads();
  else
    cluster_sync();
}

TEST_CASE("detected: blocks of a cluster wait at different barriers", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(message_of(divergent, 40),
               ContainsSubstring("divergent barrier: this thread comes to cluster_sync while thread (") &&
                   ContainsSubstring("of block (") && ContainsSubstring(":" + std::to_string(line_of_divergent)) &&
                   ContainsSubstring(":" + std::to_string(line_of_divergent + 2)));
    CHECK_THAT(message_of(stuck, 40), Catch::Matchers::StartsWith(in_file(line_of_stuck)) &&
                                          ContainsSubstring("(a cluster of 2): 0 of 80 threads have ended") &&
                                          ContainsSubstring("5 wait in __syncthreads at") &&
                                          ContainsSubstring("75 wait in cluster_sync at"));
  });
}

// Threads and blocks that have ended are not waited for.
__global__ void some_end(int* out) {
  if (threadIdx.x == 1) return;
  cluster_sync();
  if (cluster_rank() == 1) return;
  cluster_sync();
  out[blockIdx.x] = 1;
}

TEST_CASE("a cluster does not wait for threads that have ended", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(std::vector<int>(4, 0));
    launch(some_end, {4, 2, 0, {}, 2}, out.data());
    CHECK(out.values() == std::vector<int>{1, 0, 1, 0});
  });
}

constexpr int line_of_early = __LINE__ + 3;
__global__ void too_early() {
  __syncthreads();  // which is no barrier of the cluster
  *of_block(1 - cluster_rank()) = 1;
  cluster_sync();
}
constexpr int line_of_late = __LINE__ + 5;
__global__ void too_late() {
  cluster_sync();
  if (cluster_rank() == 0) return;
  __nanosleep(1);
  *of_block(0) = 1;
}
constexpr int line_of_outside = __LINE__ + 1;
__global__ void outside() { of_block(2); }
constexpr int line_of_foreign = __LINE__ + 1;
__global__ void not_shared(int* global) { neighbor_shared(global, 0); }
constexpr int line_of_static = __LINE__ + 2;
__global__ void static_shared(int* out) {
  __shared__ int kept;
  out[0] = kept;
}

TEST_CASE("detected: shared memory that a neighbor does not have", "[gpu][host]") {
  in_every_order([] {
    const auto starts = [](int line) { return Catch::Matchers::StartsWith(in_file(line)); };
    CHECK_THAT(message_of(too_early, 8), starts(line_of_early) && ContainsSubstring("before the first cluster_sync") &&
                                             ContainsSubstring("in block ("));
    CHECK_THAT(message_of(too_late, 1), starts(line_of_late) && ContainsSubstring("a block that has ended"));
    CHECK_THAT(message_of(outside, 8), starts(line_of_outside) && ContainsSubstring("block 2 of a cluster of 2"));
    OnDevice<int> global(1);
    CHECK_THAT(message_of(not_shared, 8, global.data()),
               starts(line_of_foreign) && ContainsSubstring("not this block's dynamic shared memory"));
    CHECK_THAT(message_of(static_shared, 8, global.data()),
               starts(line_of_static) && ContainsSubstring("static __shared__ memory"));
  });
}

#if !CAIRN_HOST_CUDA_ASAN  // which finds this first

__global__ void overrun() {
  cluster_sync();
  if (cluster_rank() == 0 && threadIdx.x == 5) *(of_block(1) + 3) = 1;
  cluster_sync();
}

TEST_CASE("detected: shared memory of a neighbor is written out of bounds", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(message_of(overrun, 8), ContainsSubstring("byte 32 of 32 of block (") &&
                                           ContainsSubstring("before cluster_sync") &&
                                           ContainsSubstring("thread (5,0,0)"));
  });
}

#endif

// Reads its neighbor's memory without a barrier after the write, or when the neighbor may have ended.
__global__ void missing_barrier(bool at_the_end, int* out) {
  *of_block(cluster_rank()) = 1;
  cluster_sync();
  const int* const there = of_block(1 - cluster_rank());
  if (at_the_end) {
    cluster_sync();
    if (cluster_rank() == 0) return;
    __nanosleep(1);
  } else {
    *of_block(cluster_rank()) = 2;
  }
  out[blockIdx.x] = *there;
  if (!at_the_end) cluster_sync();
}

TEST_CASE("visible: a missing barrier of a cluster gives wrong numbers in every order", "[gpu][host][race]") {
  in_every_order([] {
    OnDevice<int> out(std::vector<int>(2, 1));
    launch(missing_barrier, {2, 1, sizeof(int), {}, 2}, false, out.data());
    CHECK(out.values() != std::vector<int>{2, 2});
    launch(missing_barrier, {2, 1, sizeof(int), {}, 2}, true, out.data());
    CHECK(out.values()[1] == -1);
  });
}

__global__ void nothing() {}

TEST_CASE("clusters that no GPU takes are refused", "[gpu][host]") {
  const auto refused = [](int64_t blocks, unsigned cluster) {
    CHECK_THROWS_WITH(launch(nothing, {blocks, 1, 0, {}, cluster}), ContainsSubstring("cudaErrorInvalidClusterSize"));
  };
  refused(8, 0);
  refused(18, 9);
  refused(8, 3);
  launch(nothing, {9, 1, 0, {}, 3});
  launch(nothing, {{8, 3, 2}, 1, 0, {}, 8});
  CHECK(gpu::has_clusters());
  const int before = host_cuda::claim_architecture(89);
  CHECK(!gpu::has_clusters());
  refused(8, 2);
  launch(nothing, {8, 1, 0, {}, 1});
  host_cuda::claim_architecture(before);
}

}  // namespace
