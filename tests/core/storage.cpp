#include "core/storage.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/workspace.h"
#include "tests/ops/ops_test.h"

#if !CAIRN_CUDA_HOST  // (the emulator sets this option too)
// By default, the address sanitizer ends the program when an allocation is too large.
extern "C" const char* __asan_default_options();  // NOLINT: its name
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif

TEST_CASE("storage counts live and peak bytes", "[storage]") {
  const int64_t before = memory(Device::cpu).live;
  reset_peak_memory(Device::cpu);
  CHECK(memory(Device::cpu).peak == before);
  {
    const Storage a(1000, Device::cpu);
    CHECK(memory(Device::cpu).live == before + 1000);
    { const Storage b(24, Device::cpu); }
    CHECK(memory(Device::cpu).live == before + 1000);
    CHECK(memory(Device::cpu).peak == before + 1024);
  }
  CHECK(memory(Device::cpu).live == before);
  CHECK(memory(Device::cpu).peak == before + 1024);
  reset_peak_memory(Device::cpu);
  CHECK(memory(Device::cpu).peak == before);
}

TEST_CASE("scratch counts in live and peak bytes until its thread ends", "[storage]") {
  const MemoryCount before = memory(Device::cpu);
  reset_peak_memory(Device::cpu);
  std::vector<int64_t> live, scratch;
  std::thread([&] {
    const auto note = [&] {
      live.push_back(memory(Device::cpu).live - before.live);
      scratch.push_back(memory(Device::cpu).scratch - before.scratch);
    };
    thread_local Scratch<float> memory_of_thread;
    for (const int64_t n : {0, 100, 50, 1000}) {
      memory_of_thread.take(n);
      note();
    }
  }).join();
  CHECK(live == std::vector<int64_t>{0, 400, 400, 4000});
  CHECK(scratch == live);
  CHECK(memory(Device::cpu).peak == before.live + 4000);
  CHECK(memory(Device::cpu).live == before.live);
  CHECK(memory(Device::cpu).scratch == before.scratch);
}

TEST_CASE("freed blocks are kept up to the peak of live memory, or 64 MB", "[storage]") {
  release_cached_memory(Device::cpu);
  reset_peak_memory(Device::cpu);
  const auto maximum = [] { return std::max<int64_t>(64 << 20, memory(Device::cpu).peak); };
  const auto bytes_of = [](int64_t length) { return size_t(length) * 256; };
  int64_t all = 0, cached = 0;
  for (int64_t length = 16; length <= 4000; ++length) {  // 2 GB of blocks of different sizes, one after another
    all += int64_t(bytes_of(length));
    const Storage block(bytes_of(length), Device::cpu);
    cached = std::max(cached, memory(Device::cpu).cached);
    REQUIRE(memory(Device::cpu).cached <= maximum());
  }
  CHECK(all > 2'000'000'000);
#if !CAIRN_SANITIZED  // with the address sanitizer no block is kept
  CHECK(cached > 60'000'000);
  // The blocks freed last are kept.
  const int64_t before = memory(Device::cpu).cached;
  { const Storage again(bytes_of(3999), Device::cpu); }
  CHECK(memory(Device::cpu).cached == before);
  const Storage last(bytes_of(3999), Device::cpu);
  CHECK(memory(Device::cpu).cached == before - int64_t(bytes_of(3999)));
  {
    // More is kept after more was in use.
    const Storage large(100 << 20, Device::cpu), other(100 << 20, Device::cpu);
  }
  CHECK(memory(Device::cpu).cached >= 200 << 20);  // more if other threads keep scratch
  CHECK(memory(Device::cpu).cached <= maximum());
  reset_peak_memory(Device::cpu);
  CHECK(memory(Device::cpu).cached <= maximum());
#endif
  release_cached_memory(Device::cpu);
  CHECK(memory(Device::cpu).cached == 0);
  CHECK(memory(Device::cuda).cached == 0);
}

// CTest runs it once with CAIRN_FILL_NAN=1.
TEST_CASE("new and reused memory is NaN where the environment says so", "[storage]") {
  if (!std::getenv("CAIRN_FILL_NAN")) return;
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (device == Device::cuda && backends() == "cpu") continue;
    for (int use = 0; use < 2; ++use) {  // the second one may get the first one's block
      Tensor x({1000}, DType::float32, device);
      for (const float value : x.to_vector<float>()) REQUIRE(std::isnan(value));
      x.copy_from(Tensor::zeros({1000}));
    }
  }
}

TEST_CASE("storage is aligned to 64 bytes and can be written to its end", "[storage]") {
  for (size_t bytes : {0, 1, 63, 64, 65, 1000, 1 << 20}) {
    const Storage block(bytes, Device::cpu);
    CHECK(block.data() != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(block.data()) % 64 == 0);
    CHECK(block.bytes() == bytes);
    std::memset(block.data(), 0xff, bytes);
  }
}

TEST_CASE("an out-of-memory error names the bytes requested and in use, and counts nothing", "[storage]") {
  const Storage block(100, Device::cpu);
  const MemoryCount before = memory(Device::cpu);
  const auto ask = [](size_t bytes) { return Storage(bytes, Device::cpu).bytes(); };
  CHECK_THROWS_AS(ask(size_t{1} << 60), DeviceError);
  CHECK_ERROR(ask(size_t{1} << 60),
              concat("out of memory on cpu: 1152921504606846976 bytes requested, ", before.live, " in use by tensors"));
  CHECK_ERROR(ask(~size_t{0}), "out of memory on cpu: 18446744073709551615 bytes requested");
  CHECK(memory(Device::cpu).live == before.live);
  CHECK(memory(Device::cpu).peak == before.peak);
}

TEST_CASE("a workspace counts until it ends", "[storage]") {
  const int64_t before = memory(Device::cpu).live;
  {
    Workspace workspace(Device::cpu);
    double* x = workspace.take<double>(10);
    int32_t* y = workspace.take<int32_t>(3);
    x[9] = 1, y[2] = 2;
    workspace.take<float>(0);
    CHECK(memory(Device::cpu).live == before + 92);
  }
  CHECK(memory(Device::cpu).live == before);
}
