#include "tests/cuda/mma_kernels.h"

#include "cuda/mma.cuh"

namespace cairn::test {
namespace {

using namespace gpu;

// The fragments as cuda/mma.cuh describes them, element by element.
struct Lane {
  int g = int(threadIdx.x / 4), t = int(threadIdx.x % 4);
};

template <class T>
__device__ void load_sums(const T* from, T (&c)[4]) {
  const Lane me;
  for (int i = 0; i < 4; ++i) c[i] = from[(me.g + 8 * (i / 2)) * 8 + 2 * me.t + i % 2];
}
template <class T>
__device__ void store_sums(const T (&c)[4], T* to) {
  const Lane me;
  for (int i = 0; i < 4; ++i) to[(me.g + 8 * (i / 2)) * 8 + 2 * me.t + i % 2] = c[i];
}

__global__ void bf16_product(const float* a, const float* b, float* c) {
  const Lane me;
  uint32_t fragment_a[4], fragment_b[2];
  for (int i = 0; i < 4; ++i) {
    const float* const two = a + (me.g + 8 * (i % 2)) * 16 + 2 * me.t + 8 * (i / 2);
    fragment_a[i] = pack_bfloat16(two[0], two[1]);
  }
  for (int i = 0; i < 2; ++i)
    fragment_b[i] = pack_bfloat16(b[(2 * me.t + 8 * i) * 8 + me.g], b[(2 * me.t + 1 + 8 * i) * 8 + me.g]);
  float sums[4];
  load_sums(c, sums);
  mma_bf16(sums, fragment_a, fragment_b[0], fragment_b[1]);
  store_sums(sums, c);
}

__global__ void tf32_product(bool rounded, const float* a, const float* b, float* c) {
  const Lane me;
  const auto word = [=](float x) { return __float_as_uint(rounded ? round_tf32(x) : x); };
  uint32_t fragment_a[1][4], fragment_b[1][2];
  for (int i = 0; i < 4; ++i) fragment_a[0][i] = word(a[(me.g + 8 * (i % 2)) * 8 + me.t + 4 * (i / 2)]);
  for (int i = 0; i < 2; ++i) fragment_b[0][i] = word(b[(me.t + 4 * i) * 8 + me.g]);
  float sums[4];
  load_sums(c, sums);
  mma_tf32(sums, fragment_a, fragment_b);
  store_sums(sums, c);
}

__global__ void s8_product(const int8_t* a, const int8_t* b, int* c) {
  const Lane me;
  uint32_t fragment_a[4] = {}, fragment_b[2] = {};
  for (int byte = 0; byte < 4; ++byte) {
    for (int i = 0; i < 4; ++i) {
      const int8_t element = a[(me.g + 8 * (i % 2)) * 32 + 4 * me.t + 16 * (i / 2) + byte];
      fragment_a[i] |= uint32_t(uint8_t(element)) << 8 * byte;
    }
    for (int i = 0; i < 2; ++i)
      fragment_b[i] |= uint32_t(uint8_t(b[(4 * me.t + 16 * i + byte) * 8 + me.g])) << 8 * byte;
  }
  int sums[4];
  load_sums(c, sums);
  mma_s8(sums, fragment_a, fragment_b[0], fragment_b[1]);
  store_sums(sums, c);
}

__global__ void load(bool transposed, const uint8_t* matrices, uint32_t* registers) {
  uint8_t* const shared = dynamic_shared<uint8_t>();
  for (int i = int(threadIdx.x); i < 512; i += 32) shared[i] = matrices[i];
  __syncthreads();
  uint32_t r[4];
  if (transposed)
    load_matrices_transposed(r, shared + 16 * threadIdx.x);
  else
    load_matrices(r, shared + 16 * threadIdx.x);
  for (int i = 0; i < 4; ++i) registers[4 * threadIdx.x + unsigned(i)] = r[i];
}

__global__ void round_all(const float* from, float* to, uint32_t* pairs) {
  to[threadIdx.x] = round_tf32(from[threadIdx.x]);
  pairs[threadIdx.x] = pack_bfloat16(from[threadIdx.x], from[31 - threadIdx.x]);
}

template <int bytes>
__global__ void copy(int end, const uint8_t* from, uint8_t* to) {
  uint8_t* const shared = dynamic_shared<uint8_t>();
  copy_async<bytes>(shared + bytes * threadIdx.x, from + bytes * threadIdx.x, int(threadIdx.x) < end);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();
  for (int i = int(threadIdx.x); i < 32 * bytes; i += 32) to[i] = shared[i];
}

// A thread waits for its own copies, so this needs no barrier.
__global__ void copy_groups(const int* from, int* to) {
  int* const shared = dynamic_shared<int>() + threadIdx.x;
  for (int group = 0; group < 3; ++group) {
    shared[32 * group] = -1;
    copy_async<4>(shared + 32 * group, from + 32 * group + threadIdx.x, true);
    commit_copies();
  }
  const auto look = [&](int time) {
    for (int group = 0; group < 3; ++group) to[96 * time + 32 * group + int(threadIdx.x)] = shared[32 * group];
  };
  wait_for_copies<2>();
  look(0);
  wait_for_copies<1>();
  look(1);
  wait_for_copies<0>();
  look(2);
}

}  // namespace

bool device_has_mma() { return has_mma(); }
void multiply_bf16(const float* a, const float* b, float* c) { launch(bf16_product, {1, 32}, a, b, c); }
void multiply_tf32(const float* a, const float* b, float* c) { launch(tf32_product, {1, 32}, true, a, b, c); }
void multiply_unrounded(const float* a, const float* b, float* c) { launch(tf32_product, {1, 32}, false, a, b, c); }
void multiply_s8(const int8_t* a, const int8_t* b, int* c) { launch(s8_product, {1, 32}, a, b, c); }
void load_bytes(bool transposed, const uint8_t* matrices, uint32_t* registers) {
  launch(load, {1, 32, 512}, transposed, matrices, registers);
}
void round_numbers(const float* from, float* to, uint32_t* pairs) { launch(round_all, {1, 32}, from, to, pairs); }
void copy_through_shared(int bytes, int end, const uint8_t* from, uint8_t* to) {
  launch(bytes == 4 ? copy<4> : bytes == 8 ? copy<8> : copy<16>, {1, 32, size_t(32 * bytes)}, end, from, to);
}
void copy_in_groups(const int* from, int* to) { launch(copy_groups, {1, 32, 96 * sizeof(int)}, from, to); }

}  // namespace cairn::test
