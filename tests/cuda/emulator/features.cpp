// Every feature that a kernel may use, in every order of execution.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::launch;

namespace {

using Ints = std::vector<int>;
constexpr unsigned full = 0xffffffffu;

// ---- built-in variables

__global__ void write_indices(int* out) {
  const int thread = int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const int block = int(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  out[block * int(blockDim.x * blockDim.y * blockDim.z) + thread] +=
      int(threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z) +
      1000 * int(blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
}

TEST_CASE("every thread of a three-dimensional grid runs once and knows its indices", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(Ints(4 * 3 * 2 * 5 * 2 * 3, 0));
    launch(write_indices, {{4, 3, 2}, dim3(5, 2, 3)}, out.data());
    Ints expected;
    for (int bz = 0; bz < 2; ++bz)
      for (int by = 0; by < 3; ++by)
        for (int bx = 0; bx < 4; ++bx)
          for (int z = 0; z < 3; ++z)
            for (int y = 0; y < 2; ++y)
              for (int x = 0; x < 5; ++x) expected.push_back(x + 10 * y + 100 * z + 1000 * (bx + 10 * by + 100 * bz));
    CHECK(out.values() == expected);
  });
}

// ---- block clusters

TEST_CASE("blocks of a block cluster wait for one another and write to each other's memory", "[gpu][host]") {
  in_every_order([] {
    each_sum_of_block_cluster(true, [](int block, int sum) {
      const int first = block / 4 * 4;
      REQUIRE(sum == 4 * first + 6);
    });
    OnDevice<int> sums(3 * 48);  // a block alone needs no block cluster
    launch(add_up_block_cluster<1>, {3, 48, 4}, true, sums.data());
    const auto values = sums.values();
    for (size_t i = 0; i < values.size(); ++i) CHECK(values[i] == int(i / 48));
  });
}

__global__ void end_in_turn(int* ended) {
  if (threadIdx.x == 3 || blockIdx.x % 4 == 2) return;  // they do not hold up the others
  gpu::block_cluster_barrier<4>();
  __syncthreads();
  gpu::block_cluster_barrier<4>();
  atomicAdd(ended, 1);
}

TEST_CASE("a barrier of a block cluster does not wait for threads that have ended", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> ended(Ints{0});
    launch(end_in_turn, {.grid = 8, .block = 40, .block_cluster = 4}, ended.data());
    CHECK(ended.values()[0] == 6 * 39);
  });
}

// ---- shared memory and barriers

__global__ void reverse(int* numbers) {
  __shared__ int kept[1024];
  const unsigned me = threadIdx.x, n = blockDim.x;
  int* const mine = numbers + blockIdx.x * n;
  for (int round = 0; round < 3; ++round) {
    kept[me] = mine[me];
    __syncthreads();
    mine[me] = kept[n - 1 - me] + 1;
    __syncthreads();
  }
}

TEST_CASE("barriers order what threads write to shared memory", "[gpu][host]") {
  in_every_order([] {
    for (const int threads : {1, 7, 32, 33, 256, 1024}) {
      Ints numbers(size_t(3 * threads));
      std::iota(numbers.begin(), numbers.end(), 0);
      OnDevice<int> out(numbers);
      launch(reverse, {3, unsigned(threads)}, out.data());
      for (int block = 0; block < 3; ++block) {
        const auto begin = numbers.begin() + block * threads;
        std::reverse(begin, begin + threads);
      }
      for (int& number : numbers) number += 3;
      CHECK(out.values() == numbers);
    }
  });
}

__global__ void vote_in_block(const int* votes, int* out) {
  const int mine = votes[threadIdx.x];
  if (threadIdx.x >= 50) return;  // ended threads have no vote
  out[3 * threadIdx.x] = __syncthreads_count(mine);
  out[3 * threadIdx.x + 1] = __syncthreads_and(mine);
  out[3 * threadIdx.x + 2] = __syncthreads_or(mine);
}

TEST_CASE("barriers count and combine predicates of the threads that have not ended", "[gpu][host]") {
  in_every_order([] {
    for (const int yes : {0, 1, 49, 50}) {
      Ints votes(64, 0), expected;
      for (int i = 0; i < yes; ++i) votes[size_t(i)] = 1 << i % 5;
      for (int i = 50; i < 64; ++i) votes[size_t(i)] = 1;
      for (int i = 0; i < 50; ++i) expected.insert(expected.end(), {yes, yes == 50, yes > 0});
      OnDevice<int> in(votes), out(Ints(150, -1));
      launch(vote_in_block, {1, 64}, in.data(), out.data());
      CHECK(out.values() == expected);
    }
  });
}

__global__ void read_dynamic(uint32_t* out) {
  out[blockIdx.x * 32 + threadIdx.x] = gpu::dynamic_shared<uint32_t>()[threadIdx.x];
}
__global__ void fill_dynamic() { gpu::dynamic_shared<uint32_t>()[threadIdx.x] = 5; }

TEST_CASE("dynamic shared memory is aligned and uninitialized in every block", "[gpu][host]") {
  in_every_order([] {
    launch(fill_dynamic, {4, 32, 128});
    OnDevice<uint32_t> out(4 * 32);
    launch(read_dynamic, {4, 32, 128}, out.data());
    CHECK(out.values() == std::vector<uint32_t>(4 * 32, 0xffffffffu));
  });
}

// ---- warps

struct Shuffled {
  int any, up, down, flipped;
};

template <class T>
__global__ void shuffle(Shuffled* out, int width) {
  const int me = int(threadIdx.x);
  const T value = T(100 + me);
  out[me].any = int(__shfl_sync(full, value, me * 7 + 3, width));
  out[me].up = int(__shfl_up_sync(full, value, 3, width));
  out[me].down = int(__shfl_down_sync(full, value, 3, width));
  out[me].flipped = int(__shfl_xor_sync(full, value, width / 2, width));
}

template <class T>
void check_shuffles() {
  for (const int width : {2, 8, 32}) {
    OnDevice<Shuffled> device_out(64);
    launch(shuffle<T>, {1, 64}, device_out.data(), width);
    const auto out = device_out.values();
    for (int me = 0; me < 64; ++me) {
      const int first = me / width * width, lane = me - first;
      const auto& got = out[size_t(me)];
      CHECK(got.any == 100 + first + (me * 7 + 3) % width);
      CHECK(got.up == 100 + (lane >= 3 ? me - 3 : me));
      CHECK(got.down == 100 + (lane + 3 < width ? me + 3 : me));
      CHECK(got.flipped == 100 + first + (lane ^ width / 2));
    }
  }
}

TEST_CASE("shuffles of 4 and 8 bytes in groups of a warp", "[gpu][host]") {
  in_every_order([] {
    check_shuffles<int>();
    check_shuffles<float>();
    check_shuffles<double>();
    check_shuffles<unsigned long long>();
  });
}

__global__ void vote_in_warp(unsigned* out) {
  const unsigned me = threadIdx.x;
  if (me % 4 == 3) return;  // ended lanes have no vote, even if the mask names them
  out[me * 4] = __ballot_sync(full, me % 2);
  out[me * 4 + 1] = unsigned(__any_sync(full, me == 5));
  out[me * 4 + 2] = unsigned(__all_sync(full, me < 38));
  out[me * 4 + 3] = unsigned(__all_sync(full, me != 4));
}

TEST_CASE("votes of a whole and of a partial warp", "[gpu][host]") {
  in_every_order([] {
    OnDevice<unsigned> out(std::vector<unsigned>(160, 77));
    launch(vote_in_warp, {1, 40}, out.data());
    std::vector<unsigned> expected;
    for (unsigned me = 0; me < 40; ++me) {
      const bool second = me >= 32;
      if (me % 4 == 3)
        expected.insert(expected.end(), 4, 77u);
      else
        expected.insert(expected.end(), {second ? 0x22u : 0x22222222u, !second, !second, second});
    }
    CHECK(out.values() == expected);
  });
}

__global__ void halves(int* out) {
  // The halves of a warp diverge, each with its own mask and its own number of steps.
  const int me = int(threadIdx.x), half = me / 16;
  const unsigned mask = half ? 0xffff0000u : 0x0000ffffu;
  int sum = me;
  for (int round = 0; round <= half; ++round) {
    for (int distance = 8; distance > 0; distance /= 2) sum += __shfl_xor_sync(mask, sum, distance);
    __syncwarp(mask);
  }
  __syncwarp();
  out[me] = sum;
}

TEST_CASE("disjoint groups of lanes meet on their own", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(32);
    launch(halves, {1, 32}, out.data());
    Ints expected(16, 120);
    expected.insert(expected.end(), 16, (120 + 256) * 16);
    CHECK(out.values() == expected);
  });
}

__global__ void through_shared_in_warp(int* out) {
  __shared__ int kept[64];
  const unsigned me = threadIdx.x;
  kept[me] = int(me);
  __syncwarp();
  out[me] = kept[me ^ 31];
}

TEST_CASE("__syncwarp orders what the lanes of a warp write", "[gpu][host]") {
  in_every_order([] {
    OnDevice<int> out(64);
    launch(through_shared_in_warp, {1, 64}, out.data());
    for (int me = 0; me < 64; ++me) CHECK(out.values()[size_t(me)] == (me ^ 31));
  });
}

// ---- atomics

struct Totals {
  int sum = 0;
  unsigned any = 0;
  float real = 0;
  unsigned long long wide = 0;
};

__global__ void add_up(Totals* t) {
  const int me = int(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&t->sum, me);
  atomicOr(&t->any, 1u << me % 20);
  atomicAdd(&t->real, 1);
  atomicAdd(&t->wide, 1ull << 32);
}

TEST_CASE("atomics of all blocks add up", "[gpu][host]") {
  in_every_order([] {
    OnDevice<Totals> device_totals(std::vector<Totals>(1));
    launch(add_up, {20, 100}, device_totals.data());
    const Totals t = device_totals.values()[0];
    CHECK(t.sum == 1999000);
    CHECK(t.any == 0xfffffu);
    CHECK(t.real == 2000);
    CHECK(t.wide == 2000ull << 32);
  });
}

// ---- bits

TEST_CASE("bit intrinsics", "[gpu][host]") {
  CHECK(__popc(0xf0f0u) == 8);
  CHECK(__popcll(0xf0f0f0f0f0f0f0f0ull) == 32);
  CHECK(__float_as_uint(1.0f) == 0x3f800000u);
  CHECK(__uint_as_float(0xc0000000u) == -2.0f);
}

// ---- arithmetic and memory

struct Words {
  float4 real;
  uint4 wide;
  float2 approximate;
};

__global__ void compute(const Words* in, Words* out, float x) {
  out->real = in->real;
  out->wide = in->wide;
  out->approximate = {__expf(x), rsqrtf(x)};
}

TEST_CASE("vectors move whole and arithmetic has a GPU's names", "[gpu][host]") {
  const float x = 2.5f;
  OnDevice<Words> in(std::vector<Words>{{{1, 2, 3, 4}, {5, 6, 7, 8}, {}}}), out(1);
  launch(compute, {1, 1}, in.data(), out.data(), x);
  const Words words = out.values()[0];
  CHECK((words.real.x == 1 && words.real.w == 4));
  CHECK((words.wide.x == 5 && words.wide.w == 8));
  CHECK(words.approximate.x == Approx(std::exp(x)));
  CHECK(words.approximate.y == Approx(1 / std::sqrt(x)));
}

// ---- the order of execution

__global__ void take_tickets(int* next, int* tickets) {
  const unsigned n = gridDim.x * blockDim.x, me = blockIdx.x * blockDim.x + threadIdx.x;
  tickets[me] = atomicAdd(next, 1);
  __syncthreads();
  tickets[n + me] = atomicAdd(next, 1);
  __syncwarp();
  tickets[2 * n + me] = atomicAdd(next, 1);
}

Ints tickets(host_cuda::Options options) {
  OnDevice<int> next(Ints{0}), out(3 * 128);
  with_options(options, [&] { launch(take_tickets, {2, 64}, next.data(), out.data()); });
  return out.values();
}

TEST_CASE("threads and blocks run in the order that was asked for", "[gpu][host]") {
  using host_cuda::Order;
  // Block 0 first: its threads up to the barrier, then each warp up to the next collective, and on.
  const auto forward = tickets({1, Order::forward, 1});
  for (int me = 0; me < 128; ++me) {
    const int block = me / 64, thread = me % 64, warp = thread / 32, lane = thread % 32;
    CHECK(forward[size_t(me)] == block * 192 + thread);
    CHECK(forward[size_t(128 + me)] == block * 192 + 64 + warp * 64 + lane);
    CHECK(forward[size_t(256 + me)] == block * 192 + 64 + warp * 64 + 32 + lane);
  }
  const auto shuffled = tickets({1, Order::shuffled, 1});
  CHECK(shuffled != forward);
  CHECK(shuffled == tickets({1, Order::shuffled, 1}));
  CHECK(shuffled != tickets({1, Order::shuffled, 2}));
  CHECK(std::set<int>(shuffled.begin(), shuffled.end()).size() == 3 * 128);
}

TEST_CASE("the emulator's options are checked and kept", "[gpu][host]") {
  CHECK_THROWS_AS(host_cuda::configure({-1, host_cuda::Order::forward, 1}), UsageError);
  with_options({2, host_cuda::Order::shuffled, 9}, [] {
    CHECK(host_cuda::options().threads == 2);
    CHECK(host_cuda::options().order == host_cuda::Order::shuffled);
    CHECK(host_cuda::options().seed == 9);
  });
}

}  // namespace
