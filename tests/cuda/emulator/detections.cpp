// Mistakes that the emulator detects. Each detection is triggered by a kernel with just that mistake. Lines of kernels
// that a message must name are marked, so that the test knows them.
#include <cmath>
#include <stdexcept>

#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::launch;

namespace {

constexpr unsigned full = 0xffffffffu;

std::string in_file(int line) { return "detections.cpp:" + std::to_string(line) + ":"; }

// ---- barriers

constexpr int line_of_divergent = __LINE__ + 3;
__global__ void divergent_barriers() {
  if (threadIdx.x + 32 * threadIdx.y < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_CASE("detected: threads of a block wait at different barriers", "[gpu][host]") {
  in_every_order([] {
    const auto message = message_of(divergent_barriers, {{3, 2}, 64});
    CHECK_THAT(message, ContainsSubstring("divergent barrier") && ContainsSubstring("block (") &&
                            ContainsSubstring("thread (") &&
                            ContainsSubstring(":" + std::to_string(line_of_divergent)) &&
                            ContainsSubstring(":" + std::to_string(line_of_divergent + 2)));
  });
  with_options({1, host_cuda::Order::forward, 1}, [] {
    const auto message = message_of(divergent_barriers, {{3, 2}, dim3(32, 2)});
    CHECK_THAT(message, StartsWith(in_file(line_of_divergent + 2)) &&
                            ContainsSubstring("in block (0,0,0) thread (8,1,0)") &&
                            ContainsSubstring("thread (0,0,0) waits in the barrier at detections.cpp:" +
                                              std::to_string(line_of_divergent)));
  });
}

constexpr int line_of_stuck = __LINE__ + 3;
__global__ void stuck() {
  if (threadIdx.x == 5)
    __syncthreads();
  else if (threadIdx.x < 32)
    __syncwarp();
}

TEST_CASE("detected: a warp waits for a lane that waits for the block", "[gpu][host]") {
  in_every_order([] {
    const auto message = message_of(stuck, {2, 48});
    CHECK_THAT(message, StartsWith(in_file(line_of_stuck)) && ContainsSubstring("deadlock in block (") &&
                            ContainsSubstring("16 of 48 threads have ended") &&
                            ContainsSubstring("1 wait in a barrier at") && ContainsSubstring("(thread (5,0,0))") &&
                            ContainsSubstring("31 wait in __syncwarp at"));
  });
}

// ---- launches

__global__ void starts_too_early() {
  if (threadIdx.x > 0) gpu::wait_for_earlier_launches();
}

TEST_CASE("detected: a thread of an overlapped launch that does not wait for earlier ones", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(message_of(starts_too_early, gpu::overlapped({2, 32})),
               ContainsSubstring("only 62 of its 64 threads called wait_for_earlier_launches()"));
  });
}

// ---- warps

constexpr int line_of_absent = __LINE__ + 2;
__global__ void absent_lane(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_down_sync(0x0000ffffu, 1, 4);
}
__global__ void ended_lane(int* out) {
  if (threadIdx.x == 20) return;
  out[threadIdx.x] = __shfl_sync(full, 1, 20);
}
__global__ void lane_beyond_block(int* out) { out[threadIdx.x] = __shfl_xor_sync(full, 1, 16); }

TEST_CASE("detected: a shuffle reads a lane that does not take part", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(64);
    const auto message = message_of(absent_lane, {1, 32}, out.data());
    CHECK_THAT(message, StartsWith(in_file(line_of_absent)) && ContainsSubstring("__shfl_down_sync reads lane 16") &&
                            ContainsSubstring("in block (0,0,0) thread (12,0,0)"));
    CHECK_THAT(message_of(ended_lane, {1, 32}, out.data()), ContainsSubstring("__shfl_sync reads lane 20"));
    CHECK_THAT(message_of(lane_beyond_block, {1, 24}, out.data()), ContainsSubstring("__shfl_xor_sync reads lane 24"));
  });
}

__global__ void not_in_own_mask() { __syncwarp(0xfffffffeu); }

TEST_CASE("detected: a caller that its mask does not name", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(
        message_of(not_in_own_mask, {1, 32}),
        ContainsSubstring("the caller is not in its own mask 0xfffffffe") && ContainsSubstring("thread (0,0,0)"));
  });
}

__global__ void overlapping_masks() {
  __syncwarp(threadIdx.x < 16 ? 0x0001ffffu : 0xffff0000u);
  __syncthreads();
}

TEST_CASE("detected: masks that overlap so that a lane is missed in one of them", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(message_of(overlapping_masks, {1, 32}),
               ContainsSubstring("deadlock") && ContainsSubstring("16 wait in __syncwarp at detections.cpp:") &&
                   ContainsSubstring("16 wait in a barrier at"));
  });
}

__global__ void nested_masks(int* out) {
  // Lanes 0 and 1 synchronize with each other while other lanes wait for them already.
  if (threadIdx.x < 2) out[threadIdx.x] = __shfl_xor_sync(3, int(threadIdx.x), 1);
  __syncwarp();
}

TEST_CASE("lanes may meet while others wait for them", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(2);
    launch(nested_masks, {1, 32}, out.data());
    CHECK(out.values() == std::vector<int>{1, 0});
  });
}

__global__ void different_collectives(int* out) {
  if (threadIdx.x % 2)
    out[0] = __shfl_sync(full, 1, 0);
  else
    out[1] = int(__ballot_sync(full, 1));
}

TEST_CASE("detected: lanes of one mask meet in different collectives", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(2);
    CHECK_THAT(message_of(different_collectives, {1, 32}, out.data()), ContainsSubstring("different collectives") &&
                                                                           ContainsSubstring("__shfl_sync") &&
                                                                           ContainsSubstring("a vote"));
  });
}

__global__ void bad_width() { __shfl_sync(full, 1, 0, 12); }

TEST_CASE("detected: a width that is no power of two", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(message_of(bad_width, {1, 32}),
               ContainsSubstring("__shfl_sync: the width must be a power of two up to 32, got 12"));
  });
}

// ---- shared memory

#if !CAIRN_HOST_CUDA_ASAN  // it finds these mistakes first

constexpr int line_of_overrun = __LINE__ + 4;
__global__ void overrun(int at) {
  int* const kept = gpu::dynamic_shared<int>();
  if (threadIdx.x == 21) kept[at] = 5;
  __syncwarp();
  __syncthreads();
}
__global__ void overrun_at_the_end(int at) {
  __syncthreads();
  if (threadIdx.x == 40) gpu::dynamic_shared<int>()[at] = 5;
}

TEST_CASE("detected: dynamic shared memory is written out of bounds", "[gpu][host]") {
  in_every_order([] {
    for (const int at : {9, 72, -1, -64}) {
      const int line = __LINE__ + 1;
      const auto message = message_of(overrun, {{3, 2}, 64, 36}, at);
      CHECK_THAT(message, StartsWith(in_file(line_of_overrun)) &&
                              ContainsSubstring("dynamic shared memory written out of bounds: byte " +
                                                std::to_string(4 * at) + " of 36") &&
                              ContainsSubstring("before __syncwarp, in block (") &&
                              ContainsSubstring("thread (21,0,0)") &&
                              ContainsSubstring("launched at detections.cpp:" + std::to_string(line)));
    }
    CHECK_THAT(message_of(overrun_at_the_end, {1, 64, 36}, 9), ContainsSubstring("byte 36 of 36") &&
                                                                   ContainsSubstring("before its end") &&
                                                                   ContainsSubstring("thread (40,0,0)"));
    CHECK_THAT(message_of(overrun, {1, 64}, 0), ContainsSubstring("byte 0 of 0"));
    CHECK(message_of(overrun, {1, 64, 36}, 8).empty());
  });
}

#endif

// ---- mistakes that show in the numbers

__global__ void missing_barrier(int* out) {
  __shared__ int kept[64];
  kept[threadIdx.x] = int(threadIdx.x);
  out[threadIdx.x] = kept[63 - threadIdx.x];
}

TEST_CASE("visible: a missing barrier gives wrong numbers in every order", "[gpu][host][race]") {
  in_every_order([] {
    OnDevice<int> out(64);
    launch(missing_barrier, {1, 64}, out.data());
    int wrong = 0;
    const auto values = out.values();
    for (int i = 0; i < 64; ++i) wrong += values[size_t(i)] != 63 - i;
    CHECK(wrong > 0);
  });
}

struct Summand {
  float value;
  unsigned char tag[3];
};
template <class T>
__device__ Summand& kept_for(int i) {
  __shared__ Summand of_template[2][8];
  __shared__ __align__(32) unsigned char raw[8 * sizeof(Summand)];
  return i < 16 ? of_template[i / 8][i % 8] : reinterpret_cast<Summand*>(raw)[i - 16];
}
template <class T>
__global__ void half_written(Summand* out) {
  __shared__ Summand kept[8];
  const int me = int(threadIdx.x);
  Summand& mine = me < 8 ? kept[me] : kept_for<T>(me - 8);
  if (me % 2 == 0) mine = {float(me), {1, 2, 3}};  // the others read their own unwritten memory
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = mine;
}

TEST_CASE("visible: static shared memory does not keep what the last block wrote", "[gpu][host]") {
  in_every_order([] {
    for (int launches = 0; launches < 2; ++launches) {
      OnDevice<Summand> out(5 * 32);
      launch(launches ? half_written<int> : half_written<float>, {5, 32}, out.data());
      const auto values = out.values();
      for (size_t i = 0; i < values.size(); ++i) {
        if (i % 2 == 0) {
          CHECK(values[i].value == float(i % 32));
          CHECK(values[i].tag[2] == 3);
        } else {
          CHECK(std::isnan(values[i].value));
          CHECK(values[i].tag[2] == 255);
        }
      }
    }
  });
}

// ---- block clusters

TEST_CASE("visible: a missing barrier of a block cluster", "[gpu][host][race]") {
  in_every_order([] {
    int wrong = 0;
    each_sum_of_block_cluster(false, [&](int block, int sum) { wrong += sum != 4 * (block / 4 * 4) + 6; });
    CHECK(wrong > 0);
  });
}

#if !CAIRN_HOST_CUDA_ASAN  // it finds this mistake first
TEST_CASE("detected: another block's shared memory is written out of bounds", "[gpu][host]") {
  in_every_order([] {
    CHECK_THAT(message_of(write_another_block, {.grid = 2, .block = 8, .shared = 32, .block_cluster = 2}, 8),
               ContainsSubstring("dynamic shared memory of block (0,0,0) written out of bounds: byte 32 of 32") &&
                   ContainsSubstring("in block (1,0,0) thread (5,0,0)"));
  });
}
#endif

__global__ void no_such_block() { gpu::in_block<2>(2, gpu::dynamic_shared<int>()); }
__global__ void not_shared() {
  int local = 0;
  gpu::in_block<2>(1, &local);
}
__global__ void ended_block() {
  if (blockIdx.x == 0) return;
  for (int i = 0; i < 3; ++i) __syncthreads();
  gpu::in_block<2>(0, gpu::dynamic_shared<int>());
}
__global__ void static_in_block_cluster(int* out) {
  __shared__ int kept[8];
  kept[threadIdx.x] = 1;
  out[threadIdx.x] = kept[threadIdx.x];
}
__global__ void waits_for_the_other_block() {
  if (blockIdx.x == 0 || threadIdx.x == 0)
    gpu::block_cluster_barrier<2>();
  else
    __syncthreads();
}

TEST_CASE("detected: mistakes in a block cluster", "[gpu][host]") {
  const gpu::Launch two{.grid = 2, .block = 8, .shared = 32, .block_cluster = 2};
  in_every_order([&] {
    CHECK_THAT(message_of(no_such_block, two), ContainsSubstring("there is no block 2 in a block cluster of 2"));
    CHECK_THAT(message_of(not_shared, two), ContainsSubstring("the address is not in dynamic shared memory"));
    CHECK_THAT(message_of(waits_for_the_other_block, two),
               ContainsSubstring("deadlock in block (0,0,0) and its block cluster") &&
                   ContainsSubstring("0 of 16 threads have ended") && ContainsSubstring("16 wait in a barrier"));
    OnDevice<int> out(8);
    CHECK_THAT(message_of(static_in_block_cluster, two, out.data()),
               ContainsSubstring("a kernel in block clusters can use dynamic shared memory only"));
  });
  with_options({1, host_cuda::Order::forward, 1},
               [&] { CHECK_THAT(message_of(ended_block, two), ContainsSubstring("block (0,0,0) has ended")); });
}

TEST_CASE("detected: a launch with block clusters that no GPU accepts", "[gpu][host]") {
  const auto refused = [](int grid, int blocks) {
    CHECK_THROWS_WITH(launch(add_up_block_cluster<4>, {.grid = grid, .block = 8, .shared = 16, .block_cluster = blocks},
                             true, nullptr),
                      ContainsSubstring("cudaErrorInvalidConfiguration"));
  };
  refused(6, 4);
  refused(16, 16);
  const int before = host_cuda::claim_architecture(80);
  CHECK(!gpu::has_block_clusters());
  refused(4, 4);
  host_cuda::claim_architecture(before);
  CHECK(gpu::has_block_clusters());
}

// ---- errors of other kinds

__global__ void throws() {
  __syncthreads();
  if (threadIdx.x == 7) throw std::runtime_error("seven");
  __syncthreads();
}

TEST_CASE("what a kernel throws comes out of the launch", "[gpu][host]") {
  in_every_order([] {
    CHECK_THROWS_WITH(launch(throws, {5, 32}), "seven");
    check_usable();
  });
}

TEST_CASE("detected: a barrier outside of a kernel", "[gpu][host]") {
  CHECK_THROWS_WITH(__syncthreads(), ContainsSubstring("outside of a kernel"));
}

}  // namespace
