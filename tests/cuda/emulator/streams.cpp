// Streams and events, as the emulator has them.
#include <chrono>
#include <thread>

#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;

TEST_CASE("what is queued on a stream is done when the call returns", "[gpu][host]") {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  const int number = 5;
  int *device = nullptr, back = 0;
  REQUIRE(cudaMallocAsync(&device, sizeof(int), stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(device, &number, sizeof(int), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(&back, device, sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(back == 5);
  CHECK(cudaFreeAsync(device, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("events take the time between them", "[gpu][host]") {
  cudaEvent_t start = nullptr, stop = nullptr;
  REQUIRE(cudaEventCreate(&start) == cudaSuccess);
  REQUIRE(cudaEventCreate(&stop) == cudaSuccess);
  float elapsed = -1;
  CHECK(cudaEventRecord(start) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&elapsed, start, stop) == cudaErrorInvalidResourceHandle);  // never recorded
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  CHECK(cudaEventRecord(stop) == cudaSuccess);
  CHECK(cudaEventSynchronize(stop) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&elapsed, start, stop) == cudaSuccess);
  CHECK(elapsed >= 3);
  CHECK(cudaEventRecord(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventSynchronize(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {start, stop}) CHECK(cudaEventDestroy(event) == cudaSuccess);
  cudaGetLastError();
}
