// Streams, events, and what is captured into graphs: CUDA's rules, as the emulator has them.
#include <chrono>
#include <thread>

#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::launch;

namespace {

using Ints = std::vector<int>;

__global__ void add(int* x, int value) { atomicAdd(&x[threadIdx.x], value); }
__global__ void twice(int* x) { x[threadIdx.x] *= 2; }
__global__ void divergent() {
  if (threadIdx.x == 0) __syncthreads();
  __syncwarp();
}

struct TestStream {
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) { cudaStreamCreateWithFlags(&handle, flags); }
  ~TestStream() { cudaStreamDestroy(handle); }
  operator Stream() const { return {handle}; }
  operator cudaStream_t() const { return handle; }
  cudaStream_t handle = nullptr;
};

// Begins a capture; ended by the test, or, broken, by the destructor.
struct Capturing {
  explicit Capturing(cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) : stream(s) {
    CHECK(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
  }
  ~Capturing() {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  cudaStreamCaptureStatus status() const {
    cudaStreamCaptureStatus now;
    CHECK(cudaStreamIsCapturing(stream, &now) == cudaSuccess);
    return now;
  }
  // The capture's end, which gives its graph, to be launched.
  cudaGraphExec_t graph(unsigned long long flags = 0) {
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t executable = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &captured) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&executable, captured, flags) == cudaSuccess);
    CHECK(cudaGraphDestroy(captured) == cudaSuccess);  // the executable stays
    return executable;
  }
  cudaStream_t stream;
};

// What a forbidden call gives, and does to the capture.
#define CHECK_BREAKS(capturing, call, error)                           \
  do {                                                                 \
    CHECK((call) == (error));                                          \
    CHECK(cudaGetLastError() == (error));                              \
    CHECK((capturing).status() == cudaStreamCaptureStatusInvalidated); \
  } while (false)

TEST_CASE("a captured stream works when its graph is launched, and as often", "[gpu][host]") {
  in_every_order([] {
    TestStream stream;
    OnDevice<int> x(Ints(3, 1)), y(Ints(3, 0));
    Ints source = {10, 20, 30}, result(3);
    int host_calls = 0;
    Capturing capturing(stream);
    CHECK(capturing.status() == cudaStreamCaptureStatusActive);
    {
      int value = 5;  // parameters are those of the time of the capture
      launch(add, {1, 3, 0, stream}, x.data(), value);
      value = 1000;
    }
    launch(twice, {1, 3, 0, stream}, x.data());
    CHECK(cudaMemcpyAsync(y.data(), source.data(), 12, cudaMemcpyHostToDevice, stream) == cudaSuccess);
    launch(twice, {1, 3, 0, stream}, y.data());
    CHECK(cudaMemcpyAsync(result.data(), y.data(), 12, cudaMemcpyDefault, stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(y.data(), 0, 12, stream) == cudaSuccess);
    CHECK(host_cuda::enqueue(stream, [&] { ++host_calls; }) == cudaSuccess);
    CHECK(x.values() == Ints(3, 1));  // (a capture of a non-blocking stream does not mind the legacy stream)
    CHECK(host_calls == 0);
    CHECK(capturing.status() == cudaStreamCaptureStatusActive);

    cudaGraphExec_t graph = capturing.graph();
    CHECK(capturing.status() == cudaStreamCaptureStatusNone);
    CHECK(x.values() == Ints(3, 1));
    for (int run = 1; run <= 3; ++run) {
      source[0] = run;  // what pointers lead to is read when it runs
      CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
      CHECK(x.values() == Ints(3, run == 1 ? 12 : run == 2 ? 34 : 78));
      CHECK(result == Ints{2 * run, 40, 60});
      CHECK(y.values() == Ints(3, 0));
      CHECK(host_calls == run);
    }
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    launch(twice, {1, 3, 0, stream}, x.data());  // the stream works at once again
    CHECK(x.values() == Ints(3, 156));
    CHECK(cudaGetLastError() == cudaSuccess);
  });
}

TEST_CASE("a graph can be launched within a capture, and from a stream of another kind", "[gpu][host]") {
  TestStream stream;
  OnDevice<int> x(Ints(2, 1));
  Capturing inner(stream);
  launch(twice, {1, 2, 0, stream}, x.data());
  cudaGraphExec_t doubling = inner.graph();
  Capturing outer(stream);
  CHECK(cudaGraphLaunch(doubling, stream) == cudaSuccess);
  launch(add, {1, 2, 0, stream}, x.data(), 1);
  CHECK(cudaGraphLaunch(doubling, stream) == cudaSuccess);
  cudaGraphExec_t both = outer.graph();
  CHECK(cudaGraphExecDestroy(doubling) == cudaSuccess);
  CHECK(x.values() == Ints(2, 1));
  for (cudaStream_t other : {cudaStream_t(nullptr), cudaStreamLegacy, cudaStreamPerThread})
    CHECK(cudaGraphLaunch(both, other) == cudaSuccess);
  CHECK(x.values() == Ints(2, 106));
  CHECK(cudaGraphExecDestroy(both) == cudaSuccess);
}

TEST_CASE("what goes wrong in a captured kernel is said when the graph is launched", "[gpu][host]") {
  in_every_order([] {
    TestStream stream;
    OnDevice<int> x(Ints(2, 1));
    Capturing capturing(stream);
    launch(twice, {1, 2, 0, stream}, x.data());
    const int line = __LINE__ + 1;
    launch(divergent, {1, 32, 0, stream});
    CHECK_THROWS_AS(launch(twice, {0, 2, 0, stream}, x.data()), DeviceError);  // at once, and is not captured
    host_cuda::fail_launch(1);
    CHECK_THROWS_AS(launch(twice, {1, 2, 0, stream}, x.data()), DeviceError);
    cudaGraphExec_t graph = capturing.graph();
    CHECK_THROWS_WITH(cudaGraphLaunch(graph, stream),
                      ContainsSubstring("deadlock in block (0,0,0)") &&
                          ContainsSubstring("launched at streams.cpp:" + std::to_string(line)));
    CHECK(x.values() == Ints(2, 2));
    host_cuda::fail_launch(1);
    CHECK(cudaGraphLaunch(graph, stream) == cudaErrorLaunchOutOfResources);
    CHECK(x.values() == Ints(2, 2));
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    cudaGetLastError();
  });
}

// ---- what a capture does not allow

TEST_CASE("a capture forbids waiting for it, and breaks", "[gpu][host]") {
  TestStream stream, other;
  OnDevice<int> x(Ints(2, 1));
  {
    Capturing capturing(stream);
    CHECK_BREAKS(capturing, cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    // From here on nothing works until the capture has ended.
    CHECK_THROWS_WITH(launch(twice, {1, 2, 0, stream}, x.data()),
                      ContainsSubstring("operation failed due to a previous error during capture"));
    CHECK(cudaMemsetAsync(x.data(), 0, 8, stream) == cudaErrorStreamCaptureInvalidated);
    CHECK(host_cuda::enqueue(stream, [] {}) == cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(capturing.status() == cudaStreamCaptureStatusNone);
    launch(twice, {1, 2, 0, stream}, x.data());
    CHECK(x.values() == Ints(2, 2));
  }
  {
    Capturing capturing(stream);
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK_BREAKS(capturing, cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
  }
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("a strict capture forbids calls that it does not see", "[gpu][host]") {
  TestStream stream;
  OnDevice<int> x(Ints(2, 1));
  int back = 0;
  void *block = nullptr, *before = nullptr, *pinned = nullptr;
  REQUIRE(cudaMalloc(&before, 8) == cudaSuccess);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    const auto forbidden = [&](auto call) {
      Capturing capturing(stream, mode);
      CHECK_BREAKS(capturing, call(), cudaErrorStreamCaptureUnsupported);
    };
    forbidden([&] { return cudaMalloc(&block, 8); });
    forbidden([&] { return cudaFree(before); });
    forbidden([&] { return cudaMallocHost(&pinned, 8); });
    forbidden([&] { return cudaMemcpy(&back, x.data(), 4, cudaMemcpyDeviceToHost); });
    forbidden([&] { return cudaMemset(x.data(), 0, 4); });
  }
  CHECK(block == nullptr);
  CHECK(pinned == nullptr);
  {
    Capturing capturing(stream, cudaStreamCaptureModeRelaxed);
    CHECK(cudaMalloc(&block, 8) == cudaSuccess);
    CHECK(cudaFree(block) == cudaSuccess);
    CHECK(cudaMemcpy(&back, x.data(), 4, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(capturing.status() == cudaStreamCaptureStatusActive);
  }
  {
    Capturing capturing(stream);
    auto mode = cudaStreamCaptureModeRelaxed;  // of this thread, for a while
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK(mode == cudaStreamCaptureModeGlobal);
    CHECK(cudaFree(before) == cudaSuccess);
    CHECK(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    CHECK(capturing.status() == cudaStreamCaptureStatusActive);
    CHECK_BREAKS(capturing, cudaMalloc(&block, 8), cudaErrorStreamCaptureUnsupported);
  }
}

TEST_CASE("a strict capture minds other threads as its mode says", "[gpu][host]") {
  for (const auto mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    TestStream stream;
    Capturing capturing(stream, mode);
    cudaError_t allocated{}, relaxed{}, ended{};
    std::thread([&] {
      void* block = nullptr;
      auto own = cudaStreamCaptureModeThreadLocal;
      cudaThreadExchangeStreamCaptureMode(&own);
      relaxed = cudaMalloc(&block, 8);
      cudaFree(block);
      cudaThreadExchangeStreamCaptureMode(&own);
      allocated = cudaMalloc(&block, 8);
      if (block) cudaFree(block);
      cudaGraph_t graph = nullptr;
      ended = cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
    }).join();
    const bool global = mode == cudaStreamCaptureModeGlobal, free = mode == cudaStreamCaptureModeRelaxed;
    CHECK(relaxed == cudaSuccess);
    CHECK(allocated == (global ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
    CHECK(ended == (free ? cudaSuccess : cudaErrorStreamCaptureWrongThread));
  }
}

TEST_CASE("the legacy stream must be left alone while a blocking stream is captured", "[gpu][host]") {
  TestStream stream(cudaStreamDefault);
  OnDevice<int> x(Ints(2, 1));
  int back = 0;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  for (cudaStream_t captured : {stream.handle, cudaStreamPerThread}) {
    const auto forbidden = [&](auto call) {
      Capturing capturing(captured, cudaStreamCaptureModeRelaxed);
      CHECK_BREAKS(capturing, call(), cudaErrorStreamCaptureImplicit);
    };
    forbidden([&] { return host_cuda::enqueue(nullptr, [] {}); });
    forbidden([&] { return cudaMemsetAsync(x.data(), 0, 4, cudaStreamLegacy); });
    forbidden([&] { return cudaMemcpy(&back, x.data(), 4, cudaMemcpyDeviceToHost); });
    forbidden([&] { return cudaStreamSynchronize(nullptr); });
    forbidden([&] { return cudaEventRecord(event); });
    Capturing capturing(captured);
    CHECK_THROWS_WITH(launch(twice, {1, 2}, x.data()), ContainsSubstring("cudaErrorStreamCaptureImplicit"));
  }
  CHECK(x.values() == Ints(2, 1));
  CHECK(cudaEventDestroy(event) == cudaSuccess);
}

TEST_CASE("captures begin and end in order", "[gpu][host]") {
  TestStream stream, other;
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureMode(7)) == cudaErrorInvalidValue);
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
  {
    Capturing capturing(stream);
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaErrorIllegalState);
    CHECK(capturing.status() == cudaStreamCaptureStatusActive);
    cudaGraphExec_t empty = capturing.graph();
    CHECK(cudaGraphLaunch(empty, stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(empty) == cudaSuccess);
  }
  cudaGraphExec_t executable = nullptr;
  CHECK(cudaGraphInstantiate(&executable, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGraphLaunch(nullptr, stream) == cudaErrorInvalidValue);
  CHECK(cudaGraphDestroy(nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGraphExecDestroy(nullptr) == cudaErrorInvalidValue);
  cudaStream_t gone = nullptr;
  CHECK(cudaStreamCreate(&gone) == cudaSuccess);
  CHECK(cudaStreamBeginCapture(gone, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(cudaStreamDestroy(gone) == cudaSuccess);
  CHECK(cudaStreamSynchronize(gone) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(gone) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
  CHECK_THROWS_AS(launch(divergent, {1, 1, 0, {gone}}), DeviceError);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);  // its capture ended with it
  cudaGetLastError();
}

// ---- events

TEST_CASE("events take the time between them", "[gpu][host]") {
  TestStream stream;
  cudaEvent_t start = nullptr, stop = nullptr, untimed = nullptr;
  REQUIRE(cudaEventCreate(&start) == cudaSuccess);
  REQUIRE(cudaEventCreate(&stop) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  float elapsed = -1;
  CHECK(cudaEventRecord(start, stream) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&elapsed, start, stop) == cudaErrorInvalidResourceHandle);  // never recorded
  CHECK(host_cuda::enqueue(stream, [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }) == cudaSuccess);
  CHECK(cudaEventRecord(stop, stream) == cudaSuccess);
  CHECK(cudaEventSynchronize(stop) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&elapsed, start, stop) == cudaSuccess);
  CHECK(elapsed >= 3);
  CHECK(elapsed < 3000);
  CHECK(cudaStreamWaitEvent(nullptr, stop) == cudaSuccess);
  CHECK(cudaEventRecord(untimed, stream) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&elapsed, start, untimed) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(nullptr, stream) == cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {start, stop, untimed}) CHECK(cudaEventDestroy(event) == cudaSuccess);
  cudaGetLastError();
}

TEST_CASE("a capture spreads to streams that wait for its events, and must be joined", "[gpu][host]") {
  TestStream stream, side, far;
  OnDevice<int> x(Ints(2, 1)), y(Ints(2, 1));
  cudaEvent_t fork = nullptr, joined = nullptr;
  REQUIRE(cudaEventCreate(&fork) == cudaSuccess);
  REQUIRE(cudaEventCreate(&joined) == cudaSuccess);
  const auto run = [&](bool join, bool work_after_join) {
    Capturing capturing(stream);
    launch(twice, {1, 2, 0, stream}, x.data());
    CHECK(cudaEventRecord(fork, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
    launch(add, {1, 2, 0, side}, y.data(), 10);
    CHECK(cudaEventRecord(joined, side) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(far, joined) == cudaSuccess);  // through a third one
    if (work_after_join) launch(twice, {1, 2, 0, side}, y.data());
    CHECK(cudaEventRecord(joined, far) == cudaSuccess);
    if (join) CHECK(cudaStreamWaitEvent(stream, joined) == cudaSuccess);
    CHECK(y.values() == Ints(2, 1));
    cudaGraph_t graph = nullptr;
    const auto result = cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaStreamCaptureStatus status;
    CHECK(cudaStreamIsCapturing(side, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    return result;
  };
  CHECK(run(true, false) == cudaSuccess);
  CHECK(run(false, false) == cudaErrorStreamCaptureUnjoined);
  CHECK(run(true, true) == cudaErrorStreamCaptureUnjoined);
  CHECK(cudaEventSynchronize(fork) == cudaErrorCapturedEvent);

  {  // an event from outside
    CHECK(cudaEventRecord(fork, side) == cudaSuccess);
    Capturing capturing(stream);
    CHECK_BREAKS(capturing, cudaStreamWaitEvent(stream, fork), cudaErrorStreamCaptureIsolation);
  }
  {  // an event from another capture
    Capturing capturing(stream), another(side);
    CHECK(cudaEventRecord(fork, side) == cudaSuccess);
    CHECK_BREAKS(capturing, cudaStreamWaitEvent(stream, fork), cudaErrorStreamCaptureMerge);
    CHECK(another.status() == cudaStreamCaptureStatusInvalidated);
  }
  {  // a captured event cannot be waited for by the host, nor the capture ended elsewhere
    Capturing capturing(stream);
    CHECK(cudaEventRecord(fork, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(side, fork) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    CHECK_BREAKS(capturing, cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
  }
  {
    Capturing capturing(stream);
    CHECK(cudaEventRecord(fork, stream) == cudaSuccess);
    CHECK_BREAKS(capturing, cudaEventSynchronize(fork), cudaErrorCapturedEvent);
  }
  CHECK(cudaEventDestroy(fork) == cudaSuccess);
  CHECK(cudaEventDestroy(joined) == cudaSuccess);
  cudaGetLastError();
}

// ---- memory of graphs

TEST_CASE("a capture's allocations belong to its graph", "[gpu][host]") {
  TestStream stream;
  OnDevice<int> out(Ints(4, 0));
  size_t free_before = 0, free_after = 0, total = 0;
  CHECK(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
  {
    Capturing capturing(stream);
    int* temporary = nullptr;
    REQUIRE(cudaMallocAsync(&temporary, 16, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(out.data(), temporary, 16, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(temporary, 0, 16, stream) == cudaSuccess);
    CHECK(cudaFreeAsync(temporary, stream) == cudaSuccess);
    cudaGraphExec_t graph = capturing.graph();
    CHECK(cudaFree(temporary) == cudaErrorInvalidValue);  // it is not alive
    for (int i = 0; i < 2; ++i) {
      CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
      CHECK(out.values() == Ints(4, -1));  // uninitialized in each launch
      CHECK(temporary[0] == -1);
    }
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
  }
  CHECK(cudaMemGetInfo(&free_after, &total) == cudaSuccess);
  CHECK(free_after == free_before);
  cudaGetLastError();
}

TEST_CASE("what a graph allocates and leaves must be freed before its next launch", "[gpu][host]") {
  TestStream stream;
  for (const bool automatic : {false, true}) {
    int* kept = nullptr;
    Capturing capturing(stream);
    REQUIRE(cudaMallocAsync(&kept, 16, stream) == cudaSuccess);
    CHECK(cudaMemsetAsync(kept, 0, 16, stream) == cudaSuccess);
    cudaGraphExec_t graph = capturing.graph(automatic * cudaGraphInstantiateFlagAutoFreeOnLaunch);
    CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
    CHECK(kept[3] == 0);
    CHECK(cudaGraphLaunch(graph, stream) == (automatic ? cudaSuccess : cudaErrorInvalidValue));
    CHECK(cudaFreeAsync(kept, nullptr) == cudaSuccess);
    CHECK(cudaFreeAsync(kept, nullptr) == cudaErrorInvalidValue);
    CHECK(cudaGraphLaunch(graph, stream) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    CHECK(kept[3] == 0);  // it outlives the graph
    CHECK(cudaFree(kept) == cudaSuccess);
    CHECK(cudaFree(kept) == cudaErrorInvalidValue);
  }
  void* outside = nullptr;
  REQUIRE(cudaMallocAsync(&outside, 16, stream) == cudaSuccess);
  {
    Capturing capturing(stream);
    CHECK_BREAKS(capturing, cudaFreeAsync(outside, stream), cudaErrorInvalidValue);
  }
  CHECK(cudaFreeAsync(outside, stream) == cudaSuccess);
  cudaGetLastError();
}

}  // namespace
