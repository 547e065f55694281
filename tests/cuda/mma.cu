// The wrappers of cuda/mma.cuh against plain arithmetic. On the emulator this tests its model of the instructions, on a
// GPU the instructions. All matrices are row-major. Each kernel runs in one warp.
#include "cuda/mma.cuh"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/dtype.h"
#include "cuda/mma_tiles.cuh"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

namespace cairn::test {
namespace {

using namespace gpu;

// ---- the kernels

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

// c [16, 8] += a b, rounded to bf16, for a [16, 16] and b [16, 8].
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

// The same for a [16, 8] and b [8, 8] in TF32, rounded first or not.
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

// c [16, 8] += a [16, 32] b [32, 8].
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

// The words that the lanes get, [32, 4], of four matrices [4, 8, 16] of bytes.
__global__ void load(bool transposed, const uint8_t* matrices, uint32_t* registers) {
  uint8_t* const shared = dynamic_shared<uint8_t>();
  for (int i = int(threadIdx.x); i < 512; i += 32) shared[i] = matrices[i];
  __syncthreads();
  uint32_t r[4];
  if (transposed)
    load_matrices<true>(r, shared + 16 * threadIdx.x);
  else
    load_matrices<false>(r, shared + 16 * threadIdx.x);
  for (int i = 0; i < 4; ++i) registers[4 * threadIdx.x + unsigned(i)] = r[i];
}

__global__ void round_all(const float* from, float* to, uint32_t* pairs) {
  to[threadIdx.x] = round_tf32(from[threadIdx.x]);
  pairs[threadIdx.x] = pack_bfloat16(from[threadIdx.x], from[31 - threadIdx.x]);
}

// Copies 32 x `bytes` bytes through shared memory; the bytes of lanes from `end` on become 0.
template <int bytes>
__global__ void copy(int end, const uint8_t* from, uint8_t* to) {
  uint8_t* const shared = dynamic_shared<uint8_t>();
  copy_async<bytes>(shared + bytes * threadIdx.x, from + bytes * threadIdx.x, int(threadIdx.x) < end);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();
  for (int i = int(threadIdx.x); i < 32 * bytes; i += 32) to[i] = shared[i];
}

// Copies three groups of 32 numbers to shared memory, which is -1 before. Writes its contents after waiting for all but
// the last 2, 1 and 0 groups, to [3, 3, 32]. A thread waits for its own copies, so this needs no barrier.
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

// c = a b^T for tiles of 32 x 32, through shared memory: two strips of 16 rows, stored as they come.
template <class T>
__global__ void tile_product(const float* a, const float* b, float* c) {
  const MmaTile<T, 32> of_a{dynamic_shared<T>()}, of_b = of_a.row(32), of_c = of_b.row(32);
  const auto at = [](const MmaTile<T, 32>& tile, int i) -> T& {
    return tile.chunk(i / 32, i % 32 / tile.in_chunk)[i % tile.in_chunk];
  };
  for (int i = int(threadIdx.x); i < 1024; i += 32) at(of_a, i) = T(a[i]), at(of_b, i) = T(b[i]);
  __syncwarp();
  float sums[2][4][4];
  mma_row_products(of_a, of_b, sums);
  for (int strip = 0; strip < 2; ++strip) of_c.row(16 * strip).store_sums(sums[strip]);
  __syncwarp();
  for (int i = int(threadIdx.x); i < 1024; i += 32) c[i] = float(at(of_c, i));
}

// ---- the tests

using Floats = std::vector<float>;

Floats normals(size_t n, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  Floats x(n);
  for (float& value : x) value = sequence.normal();
  return x;
}

float bf16(float x) { return float(bfloat16(x)); }
// The defined bits of a number in TF32. The 13 lowest bits are undefined and cannot be compared.
uint32_t defined_bits(float x) { return std::bit_cast<uint32_t>(x) & ~0x1fffu; }
float defined_part(float x) { return std::bit_cast<float>(defined_bits(x)); }
// x rounded to 10 bits of mantissa, to nearest, ties away from 0.
float tf32(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const float unit = std::ldexp(1.0f, std::max(std::ilogb(x), -126) - 10);
  return std::round(x / unit) * unit;
}

// c += a b with rounded operands, in double.
template <class Round>
std::vector<double> product(size_t depth, Floats a, Floats b, const Floats& c, Round round) {
  std::vector<double> result(c.begin(), c.end());
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 8; ++j)
      for (size_t k = 0; k < depth; ++k)
        result[i * 8 + j] += double(round(a[i * depth + k])) * double(round(b[k * 8 + j]));
  return result;
}

// GPUs before Ampere do not have these instructions.
bool skipped() {
  if (!has_mma()) WARN("skipped: the device has no tensor cores for bf16");
  return !has_mma();
}

TEST_CASE("tensor cores multiply the fragments of bf16 and TF32", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    const Floats c = normals(128, 3);
    {
      const Floats a = normals(256, 1), b = normals(128, 2);
      OnDevice<float> device_a(a), device_b(b), device_c(c);
      launch(bf16_product, {1, 32}, device_a.data(), device_b.data(), device_c.data());
      CHECK(difference(device_c.values(), product(16, a, b, c, bf16)) <= 1e-6);
    }
    const Floats a = normals(128, 1), b = normals(64, 2);
    OnDevice<float> device_a(a), device_b(b), device_c(c), unrounded(c);
    launch(tf32_product, {1, 32}, true, device_a.data(), device_b.data(), device_c.data());
    CHECK(difference(device_c.values(), product(8, a, b, c, tf32)) <= 1e-6);
#if CAIRN_CUDA_HOST
    // The emulator cuts off the lower bits, so that a forgotten rounding shows. PTX leaves them undefined.
    launch(tf32_product, {1, 32}, false, device_a.data(), device_b.data(), unrounded.data());
    CHECK(difference(unrounded.values(), product(8, a, b, c, defined_part)) <= 1e-6);
    CHECK(difference(unrounded.values(), product(8, a, b, c, tf32)) > 1e-5);
#endif
  });
}

TEST_CASE("tensor cores multiply the fragments of signed bytes", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    std::vector<int8_t> a(16 * 32), b(32 * 8);
    for (size_t i = 0; i < a.size(); ++i) a[i] = int8_t(i * 37 + i / 7);
    for (size_t i = 0; i < b.size(); ++i) b[i] = int8_t(i * 101 + i / 5);
    a[0] = a[1] = b[0] = b[8] = -128;
    std::vector<int> c(16 * 8);
    std::iota(c.begin(), c.end(), -1'000'000);
    OnDevice<int8_t> device_a(a), device_b(b);
    OnDevice<int> device_c(c);
    launch(s8_product, {1, 32}, device_a.data(), device_b.data(), device_c.data());
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < 8; ++j)
        for (size_t k = 0; k < 32; ++k) c[i * 8 + j] += a[i * 32 + k] * b[k * 8 + j];
    CHECK(device_c.values() == c);
  });
}

TEST_CASE("a warp multiplies tiles and stores the sums", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    const Floats a = normals(1024, 5), b = normals(1024, 6);
    OnDevice<float> device_a(a), device_b(b), device_c(1024);
    for (const bool in_bf16 : {true, false}) {
      launch(in_bf16 ? tile_product<bfloat16> : tile_product<float>, {1, 32, size_t(in_bf16 ? 6144 : 12288)},
             device_a.data(), device_b.data(), device_c.data());
      const Floats c = device_c.values();
      std::vector<double> expected(1024);
      for (size_t i = 0; i < 1024; ++i)
        for (size_t k = 0; k < 32; ++k) {
          const float x = a[i / 32 * 32 + k], y = b[i % 32 * 32 + k];
          expected[i] += in_bf16 ? double(bf16(x)) * double(bf16(y)) : double(x) * double(y);
        }
      const auto near = [&](size_t i, size_t j) {
        return std::abs(c[i] - expected[j]) <=
               (in_bf16 ? tolerance::bfloat16 : tolerance::float32) * std::max(1.0, std::abs(expected[j]));
      };
      for (size_t i = 0; i < 1024; ++i) {
        size_t j = 0;
        while (j < 1024 && !near(i, j)) ++j;
        const auto place = [](size_t of) { return concat("row ", of / 32, ", column ", of % 32); };
        INFO((in_bf16 ? "bfloat16, " : "float, ") << place(i) << ": is " << c[i] << ", expected " << expected[i]
                                                  << (j < 1024 ? ", is the sum for " + place(j) : ""));
        CHECK(near(i, i));
      }
    }
  });
}

TEST_CASE("a warp loads matrices out of shared memory as they are and transposed", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    std::vector<uint8_t> bytes(512);
    for (size_t i = 0; i < 512; ++i) bytes[i] = uint8_t(i * 37 + i / 256);
    const auto byte = [&](size_t matrix, size_t row, size_t i) { return uint32_t(bytes[matrix * 128 + row * 16 + i]); };
    for (const bool transposed : {false, true}) {
      OnDevice<uint8_t> matrices(bytes);
      OnDevice<uint32_t> registers(128);
      launch(load, {1, 32, 512}, transposed, matrices.data(), registers.data());
      std::vector<uint32_t> expected(128);
      for (size_t lane = 0; lane < 32; ++lane)
        for (size_t i = 0; i < 4; ++i)
          for (size_t k = 0; k < 4; ++k)  // from the lowest byte up
            expected[4 * lane + i] |= (transposed ? byte(i, 2 * (lane % 4) + k / 2, 2 * (lane / 4) + k % 2)
                                                  : byte(i, lane / 4, 4 * (lane % 4) + k))
                                      << 8 * k;
      CHECK(registers.values() == expected);
    }
  });
}

TEST_CASE("numbers are rounded to TF32 and to pairs of bf16", "[gpu]") {
  if (skipped()) return;
  Floats x = normals(32, 4);
  const float special[] = {0.0f,      -0.0f,    1.0f,      1 + 0x1p-11f, 1 + 0x1.8p-10f, -1 - 0x1p-11f, 1 + 0x1.fp-12f,
                           0x1p-130f, INFINITY, -INFINITY, NAN,          3.4028235e38f,  2 - 0x1p-12f};
  std::copy(std::begin(special), std::end(special), x.begin());
  OnDevice<float> from(x), to(32);
  OnDevice<uint32_t> pairs(32);
  launch(round_all, {1, 32}, from.data(), to.data(), pairs.data());
  const auto rounded = to.values();
  for (size_t i = 0; i < 32; ++i) {
    INFO(x[i]);
    if (std::isnan(x[i]))
      CHECK(std::isnan(rounded[i]));
    else if (x[i] == 3.4028235e38f)
      CHECK(defined_part(rounded[i]) == INFINITY);
    else
      CHECK(defined_bits(rounded[i]) == defined_bits(tf32(x[i])));
    const auto half = [](uint32_t bits) { return std::bit_cast<float>(bits << 16); };
    const float low = half(pairs.values()[i] & 0xffff), high = half(pairs.values()[i] >> 16);
    CHECK(difference(Floats{low, high}, Floats{bf16(x[i]), bf16(x[31 - i])}) == 0);
  }
}

TEST_CASE("asynchronous copies are there group by group after the wait", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    for (const int bytes : {4, 8, 16})
      for (const int end : {0, 7, 32}) {
        std::vector<uint8_t> x(size_t(32 * bytes));
        std::iota(x.begin(), x.end(), uint8_t(1));
        OnDevice<uint8_t> from(x), to(x.size());
        launch(bytes == 4 ? copy<4> : bytes == 8 ? copy<8> : copy<16>, {1, 32, x.size()}, end, from.data(), to.data());
        std::fill(x.begin() + end * bytes, x.end(), uint8_t(0));
        CHECK(to.values() == x);
      }
    std::vector<int> x(96);
    std::iota(x.begin(), x.end(), 0);
    OnDevice<int> from(x), to(288);
    launch(copy_groups, {1, 32, 96 * sizeof(int)}, from.data(), to.data());
    const auto seen = to.values();
    for (int time = 0; time < 3; ++time)
      for (int i = 0; i < 96; ++i) {
        const int value = seen[size_t(96 * time + i)];
        const bool waited_for = i / 32 <= time;
        CHECK((value == i || (value == -1 && !waited_for)));
      }
  });
}

}  // namespace
}  // namespace cairn::test
