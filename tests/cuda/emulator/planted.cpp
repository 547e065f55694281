// Mistakes that the emulator or the sanitizers must find, as hidden cases that fail or end the program.
// cuda_tests.cmake runs each case and looks for the report.
#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::launch;

namespace {

// The mistake that cuda/emulator/README.md finds with the debugger. Each block reverses a row of n numbers.
__global__ void reverse_rows(float* x, int n) {
  float* const row = gpu::dynamic_shared<float>();
  float* const mine = x + blockIdx.x * unsigned(n);
  const int i = int(threadIdx.x), to = n - i;
  if (i < n) row[to] = mine[i];
  __syncthreads();
  if (i < n) mine[i] = row[i];
}

TEST_CASE("planted: rows are reversed", "[.planted]") {
  OnDevice<float> x(std::vector<float>{1, 2, 3, 4, 5, 10, 20, 30, 40, 50});
  launch(reverse_rows, {2, 32, 5 * sizeof(float)}, x.data(), 5);
  CHECK(x.values() == std::vector<float>{5, 4, 3, 2, 1, 50, 40, 30, 20, 10});
}

#if CAIRN_HOST_CUDA_ASAN

__global__ void write_at(int* out, int i) {
  __syncthreads();
  if (threadIdx.x == 17) out[i] = 1;
}
__global__ void write_dynamic(int i) {
  __syncthreads();
  gpu::dynamic_shared<int>()[i] = 1;
}
__global__ void write_static(int* out, int i) {
  __shared__ int kept[8];
  kept[threadIdx.x % 8] = 0;
  __syncthreads();
  if (threadIdx.x == 3) kept[i] = 1;
  __syncthreads();
  out[threadIdx.x] = kept[threadIdx.x % 8];
}
__global__ void write_local(int* out, int i) {
  int mine[4] = {};
  __syncthreads();
  int* volatile hidden = mine;
  hidden[i] = 1;
  out[threadIdx.x] = mine[threadIdx.x % 4];
}

TEST_CASE("planted: device memory out of bounds", "[.planted]") {
  launch(write_at, {1, 32}, OnDevice<int>(32).data(), 32);
}
TEST_CASE("planted: device memory after it was freed", "[.planted]") {
  int* const freed = OnDevice<int>(32).data();
  launch(write_at, {1, 32}, freed, 3);
}
TEST_CASE("planted: dynamic shared memory out of bounds", "[.planted]") { launch(write_dynamic, {1, 32, 36}, 9); }
TEST_CASE("planted: another block's shared memory out of bounds", "[.planted]") {
  launch(write_another_block, {.grid = 2, .block = 8, .shared = 32, .block_cluster = 2}, 8);
}
TEST_CASE("planted: static shared memory out of bounds", "[.planted]") {
  launch(write_static, {1, 32}, OnDevice<int>(32).data(), 8);
}
TEST_CASE("planted: local memory out of bounds", "[.planted]") {
  launch(write_local, {1, 32}, OnDevice<int>(32).data(), 4);
}

#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)

__global__ void race_in_block(int* out) {
  __shared__ int kept[64];
  kept[threadIdx.x] = int(threadIdx.x);
  out[threadIdx.x] = kept[63 - threadIdx.x];
}
__global__ void race_of_blocks(int* out) { out[0] += 1; }

TEST_CASE("planted: a race for shared memory", "[.planted]") {
  OnDevice<int> out(64);
  launch(race_in_block, {1, 64}, out.data());
}
TEST_CASE("planted: a race between blocks", "[.planted]") {
  host_cuda::configure({2, host_cuda::Order::forward, 1});
  OnDevice<int> out(std::vector<int>(1));
  launch(race_of_blocks, {1000, 64}, out.data());
}
TEST_CASE("planted: a race in a block cluster", "[.planted]") {
  each_sum_of_block_cluster(false, [](int, int) {});
}

#endif
#endif

}  // namespace
