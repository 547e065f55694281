#include "core/kernels/memory.h"

#include <numeric>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"

using namespace cairn;
using namespace cairn::test;

TEST_CASE("memory goes to the device and within it and back", "[gpu]") {
  std::vector<int> numbers(1001), back(1001);
  std::iota(numbers.begin(), numbers.end(), -7);
  const size_t bytes = numbers.size() * sizeof(int);
  void *a = gpu::allocate({}, bytes), *b = gpu::allocate({}, bytes);
  REQUIRE(a != nullptr);
  REQUIRE(b != nullptr);
  gpu::copy({}, a, Device::cuda, numbers.data(), Device::cpu, bytes);
  gpu::copy({}, b, Device::cuda, a, Device::cuda, bytes);
  gpu::synchronize({});
  gpu::copy({}, back.data(), Device::cpu, b, Device::cuda, bytes);
  CHECK(back == numbers);
  gpu::deallocate({}, a);
  gpu::deallocate({}, b);
}

TEST_CASE("more memory than the device has gives null and the device goes on", "[gpu]") {
  CHECK(gpu::allocate({}, size_t{1} << 50) == nullptr);
  CHECK_THROWS_AS(Storage(size_t{1} << 50, Device::cuda), DeviceError);
  CHECK(OnDevice<int>(std::vector<int>{1, 2, 3}).values() == std::vector<int>{1, 2, 3});
}
