// The emulator's version of CUDA's runtime interface.
#include <algorithm>

#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::launch;

namespace {

__global__ void nothing() {}

TEST_CASE("device memory is aligned and poisoned and freed once", "[gpu][host]") {
  size_t before = 0, after = 0, total = 0;
  uint32_t* block = nullptr;
  CHECK(cudaMemGetInfo(&before, &total) == cudaSuccess);
  REQUIRE(cudaMalloc(&block, 1000) == cudaSuccess);
  CHECK(cudaMemGetInfo(&after, &total) == cudaSuccess);
  CHECK(after == before - 1000);
  CHECK(total >= before);
  CHECK(reinterpret_cast<uintptr_t>(block) % 256 == 0);
  for (int i = 0; i < 250; ++i) CHECK(block[i] == 0xffffffffu);
  CHECK(cudaMemset(block, 7, 500) == cudaSuccess);
  CHECK(block[124] == 0x07070707u);
  CHECK(block[125] == 0xffffffffu);
  CHECK(cudaFree(block) == cudaSuccess);
  CHECK(cudaFree(block) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaMalloc(&block, 0) == cudaSuccess);
  CHECK(block == nullptr);
  cudaGetLastError();
}

TEST_CASE("copies go the way they say", "[gpu][host]") {
  int host[4] = {1, 2, 3, 4}, back[4] = {};
  int* device = nullptr;
  REQUIRE(cudaMalloc(&device, sizeof(host)) == cudaSuccess);
  CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemcpyAsync(back, device, sizeof(host), cudaMemcpyDeviceToHost, nullptr) == cudaSuccess);
  CHECK(std::equal(host, host + 4, back));
  CHECK(cudaMemcpy(device + 1, device + 2, 8, cudaMemcpyDeviceToDevice) == cudaSuccess);
  CHECK(device[1] == 3);

  CHECK(cudaMemcpy(device, host, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(back, host, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(device, host, 4, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemset(host, 0, 4) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("the n-th allocation fails if a test asks for it", "[gpu][host]") {
  const auto before = host_cuda::live_blocks();
  {
    OnDevice<int> first(1);
    host_cuda::fail_allocation(3);
    OnDevice<int> second(1), third(1);
    CHECK_THROWS_AS(OnDevice<int>(1), DeviceError);
    OnDevice<int> fourth(1);
    CHECK(host_cuda::live_blocks() == before + 4);
    host_cuda::fail_allocation(1);
    host_cuda::fail_allocation(0);
    OnDevice<int> fifth(1);
  }
  CHECK(host_cuda::live_blocks() == before);
}

TEST_CASE("errors have names and are remembered until asked for", "[gpu][host]") {
  void* block = &block;
  CHECK(cudaMalloc(&block, size_t{1} << 60) == cudaErrorMemoryAllocation);
  CHECK(block == nullptr);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(std::string(cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
  CHECK(std::string(cudaGetErrorName(cudaErrorMemoryAllocation)) == "cudaErrorMemoryAllocation");
  CHECK(std::string(cudaGetErrorString(cudaError_t(12345))) == "unrecognized error code");
}

TEST_CASE("launches of shapes that no GPU takes are refused", "[gpu][host]") {
  const dim3 empty[] = {dim3(0), dim3(1, 0), dim3(1, 1, 0)};
  for (const dim3 none : empty) {
    CHECK_THROWS_AS(launch(nothing, {{none.x, none.y, none.z}, 1}), DeviceError);
    CHECK_THROWS_AS(launch(nothing, {1, none}), DeviceError);
  }
  CHECK_THROWS_WITH(launch(nothing, {1, dim3(32, 33)}), ContainsSubstring("invalid configuration argument"));
  CHECK_THROWS_AS(launch(nothing, {1, dim3(1, 1, 65)}), DeviceError);
  CHECK_THROWS_WITH(launch(nothing, {1, 1, 99 * 1024 + 1}), ContainsSubstring("at most 101376, at runtime.cpp:"));
  launch(nothing, {1, 1024, 99 * 1024});
  launch(nothing, {{3, 65535}, 1});
  CHECK(cudaGetLastError() == cudaSuccess);
}

__global__ void large_shared() { gpu::dynamic_shared<char>()[threadIdx.x] = 1; }

TEST_CASE("more than 48 KB of shared memory must be asked for", "[gpu][host]") {
  const auto address = reinterpret_cast<const void*>(large_shared);
  const auto run = [&](size_t bytes) { return host_cuda::launch(address, 1, 1, bytes, [] { large_shared(); }); };
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, large_shared, 64, 64 * 1024) == cudaSuccess);
  CHECK(blocks == 0);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, large_shared, 0, 0) == cudaErrorInvalidValue);
  CHECK(run(48 * 1024) == cudaSuccess);
  CHECK(run(48 * 1024 + 1) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024) == cudaSuccess);
  const std::pair<int, size_t> shapes[] = {{64, 64 * 1024}, {64, 0}, {33, 1024}, {512, 0}, {1000, 100}};
  const int expected[] = {3, 32, 32, 4, 2};
  for (int i = 0; i < 5; ++i) {
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, large_shared, shapes[i].first, shapes[i].second) ==
          cudaSuccess);
    CHECK(blocks == expected[i]);
  }
  CHECK(run(64 * 1024) == cudaSuccess);
  CHECK(run(64 * 1024 + 1) == cudaErrorInvalidValue);
  const auto ask = [&](int kb) {
    return cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, kb * 1024);
  };
  for (const auto& [architecture, most] :
       {std::pair{75, 64}, {80, 163}, {86, 99}, {87, 163}, {89, 99}, {90, 227}, {100, 227}, {120, 99}}) {
    const int before = host_cuda::claim_architecture(architecture);
    CHECK(ask(most) == cudaSuccess);
    CHECK(run(size_t(most) * 1024) == cudaSuccess);
    CHECK(ask(most + 1) == cudaErrorInvalidValue);
    host_cuda::claim_architecture(before);
  }
  CHECK(ask(227) == cudaSuccess);
  const int before = host_cuda::claim_architecture(86);
  CHECK(run(100 * 1024) == cudaErrorInvalidValue);  // whatever another architecture has granted
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, large_shared, 128, 33 * 1024) == cudaSuccess);
  CHECK(blocks == 2);
  host_cuda::claim_architecture(before);
  cudaGetLastError();
}

}  // namespace
