// Mistakes with asynchronous copies and with instructions of a whole warp. The emulator must reveal them.
#include <algorithm>

#include "cuda/mma.cuh"
#include "tests/cuda/emulator/kernels.h"

using namespace cairn;
using namespace cairn::test;
using gpu::launch;

namespace {

template <bool wait, bool barrier>
__global__ void copy(const float* from, float* to) {
  float* const shared = gpu::dynamic_shared<float>();
  gpu::copy_async<4>(shared + threadIdx.x, from + threadIdx.x, true);
  gpu::commit_copies();
  if (wait) gpu::wait_for_copies<0>();
  if (barrier) __syncthreads();
  to[threadIdx.x] = shared[63 - threadIdx.x];
}
__global__ void forgotten_commit(const float* from, float* to) {
  float* const shared = gpu::dynamic_shared<float>();
  gpu::copy_async<4>(shared + threadIdx.x, from + threadIdx.x, true);
  gpu::wait_for_copies<0>();
  to[threadIdx.x] = shared[threadIdx.x];
}

// The copy for the next tile starts while other threads may still read this one. (There is nothing to read: zeros.)
template <bool barrier>
__global__ void copy_over_tile(const float* from, float* to) {
  float* const tile = gpu::dynamic_shared<float>();
  tile[threadIdx.x] = from[threadIdx.x];
  __syncthreads();
  const float of_this_tile = tile[63 - threadIdx.x];
  if (barrier) __syncthreads();
  gpu::copy_async<4>(tile + threadIdx.x, from, false);
  gpu::commit_copies();
  __syncthreads();
  gpu::wait_for_copies<0>();
  __syncthreads();
  to[threadIdx.x] = of_this_tile + tile[63 - threadIdx.x];
}

int count_wrong(void (*kernel)(const float*, float*)) {
  OnDevice<float> from(std::vector<float>(64, 1)), to(64);
  launch(kernel, {1, 64, 64 * sizeof(float)}, from.data(), to.data());
  const auto values = to.values();
  return int(std::count_if(values.begin(), values.end(), [](float value) { return value != 1; }));
}

TEST_CASE("visible: an asynchronous copy that nobody waits for or that starts too early", "[gpu][host][race]") {
  in_every_order([] {
    CHECK(count_wrong(copy<true, true>) == 0);
    CHECK(count_wrong(copy<true, false>) >= 32);
    CHECK(count_wrong(copy_over_tile<true>) == 0);
    CHECK(count_wrong(copy<false, true>) > 0);
    CHECK(count_wrong(forgotten_commit) > 0);
    const bool forward =
        host_cuda::options().order == host_cuda::Order::forward;  // in forward order no copy is done at once
    CHECK((count_wrong(copy_over_tile<false>) == 0) == forward);
  });
}

constexpr int line_of_misaligned = __LINE__ + 2;
__global__ void misaligned(const float* from) {
  gpu::copy_async<16>(gpu::dynamic_shared<float>() + threadIdx.x, from, true);
}
constexpr int line_of_half_warp = __LINE__ + 3;
__global__ void half_warp() {
  float c[4] = {};
  gpu::mma_bf16(c, {0, 0, 0, 0}, 0, 0);
}
constexpr int line_of_ended = __LINE__ + 4;
__global__ void ended_lane() {
  uint32_t r[4];
  if (threadIdx.x == 9) return;
  gpu::load_matrices<false>(r, gpu::dynamic_shared<float>());
}

TEST_CASE("detected: copies that are not aligned and warps of which lanes are missing", "[gpu][host]") {
  in_every_order([] {
    const auto at = [](int line) { return "ptx.cpp:" + std::to_string(line) + ": "; };
    OnDevice<float> from(8);
    CHECK_THAT(message_of(misaligned, {1, 32, 1024}, from.data()), StartsWith(at(line_of_misaligned)) &&
                                                                       ContainsSubstring("not aligned") &&
                                                                       ContainsSubstring("in block (0,0,0) thread ("));
    CHECK_THAT(
        message_of(half_warp, {1, 16}),
        StartsWith(at(line_of_half_warp)) && ContainsSubstring("mma.sync reads lane 16, which does not take part"));
    CHECK_THAT(message_of(ended_lane, {1, 32, 1024}), StartsWith(at(line_of_ended)));
  });
}

TEST_CASE("the emulator claims the architecture that it is told to", "[gpu][host]") {
  const int before = host_cuda::claim_architecture(75);
  int major = 0, minor = 0;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess);
  CHECK((major == 7 && minor == 5));
  CHECK(!gpu::has_mma());
  CHECK(host_cuda::claim_architecture(89) == 75);
  CHECK(gpu::has_mma());
  host_cuda::claim_architecture(before);
}

}  // namespace
