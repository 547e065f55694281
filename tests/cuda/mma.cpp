// The wrappers of cuda/mma.cuh against plain arithmetic. On the emulator this tests its model of the instructions, on a
// GPU the instructions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/dtype.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/cuda/mma_kernels.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;

namespace {

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
  if (!device_has_mma()) WARN("skipped: the device has no tensor cores for bf16");
  return !device_has_mma();
}

}  // namespace

TEST_CASE("tensor cores multiply the fragments of bf16 and TF32", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    const Floats c = normals(128, 3);
    {
      const Floats a = normals(256, 1), b = normals(128, 2);
      OnDevice<float> device_a(a), device_b(b), device_c(c);
      multiply_bf16(device_a.data(), device_b.data(), device_c.data());
      CHECK(difference(device_c.values(), product(16, a, b, c, bf16)) <= 1e-6);
    }
    const Floats a = normals(128, 1), b = normals(64, 2);
    OnDevice<float> device_a(a), device_b(b), device_c(c), unrounded(c);
    multiply_tf32(device_a.data(), device_b.data(), device_c.data());
    CHECK(difference(device_c.values(), product(8, a, b, c, tf32)) <= 1e-6);
#if CAIRN_CUDA_HOST
    // The emulator cuts off the lower bits, so that a forgotten rounding shows. PTX leaves them undefined.
    multiply_unrounded(device_a.data(), device_b.data(), unrounded.data());
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
    multiply_s8(device_a.data(), device_b.data(), device_c.data());
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < 8; ++j)
        for (size_t k = 0; k < 32; ++k) c[i * 8 + j] += a[i * 32 + k] * b[k * 8 + j];
    CHECK(device_c.values() == c);
  });
}

TEST_CASE("a warp loads matrices out of shared memory, as they are and transposed", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    std::vector<uint8_t> bytes(512);
    for (size_t i = 0; i < 512; ++i) bytes[i] = uint8_t(i * 37 + i / 256);
    const auto byte = [&](size_t matrix, size_t row, size_t i) { return uint32_t(bytes[matrix * 128 + row * 16 + i]); };
    for (const bool transposed : {false, true}) {
      OnDevice<uint8_t> matrices(bytes);
      OnDevice<uint32_t> registers(128);
      load_bytes(transposed, matrices.data(), registers.data());
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
  round_numbers(from.data(), to.data(), pairs.data());
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

TEST_CASE("asynchronous copies are there after the wait, group by group", "[gpu]") {
  if (skipped()) return;
  in_every_order([] {
    for (const int bytes : {4, 8, 16})
      for (const int end : {0, 7, 32}) {
        std::vector<uint8_t> x(size_t(32 * bytes));
        std::iota(x.begin(), x.end(), uint8_t(1));
        OnDevice<uint8_t> from(x), to(x.size());
        copy_through_shared(bytes, end, from.data(), to.data());
        std::fill(x.begin() + end * bytes, x.end(), uint8_t(0));
        CHECK(to.values() == x);
      }
    std::vector<int> x(96);
    std::iota(x.begin(), x.end(), 0);
    OnDevice<int> from(x), to(288);
    copy_in_groups(from.data(), to.data());
    const auto seen = to.values();
    for (int time = 0; time < 3; ++time)
      for (int i = 0; i < 96; ++i) {
        const int value = seen[size_t(96 * time + i)];
        const bool waited_for = i / 32 <= time;
        CHECK((value == i || (value == -1 && !waited_for)));
      }
  });
}
