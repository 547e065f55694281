// Training steps of ever other lengths, with a save and a restore now and then: what the process holds stays bounded.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "nn/io/checkpoint.h"
#include "nn/optim/r_adam.h"
#include "nn/transformer.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

namespace {

// Bytes of this process that are in memory.
int64_t resident() {
  int64_t pages_in_all = 0, pages = 0;
  std::ifstream("/proc/self/statm") >> pages_in_all >> pages;
  return pages * sysconf(_SC_PAGE_SIZE);
}

int64_t descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("steps of ever other lengths keep memory and descriptors bounded", "[soak]") {
  TransformerOptions options;
  options.layers = 1, options.heads = 2, options.head_size = 32, options.feed_forward = 128;
  options.attention = "i-clustered-5:topk=8";
  Generator generator(1);
  Encoder encoder(options, generator);
  RAdam optimizer(parameters(encoder), 1e-3);
  const TemporaryFolder run;
  release_cached_memory();
  reset_peak_memory(Device::cpu);
  const int64_t live = memory(Device::cpu).live;
  [[maybe_unused]] int64_t resident_before = 0;
  int64_t descriptors_before = 0;
#if CAIRN_SANITIZED
  constexpr int64_t steps = 20;
#else
  constexpr int64_t steps = 160;
#endif
  for (int64_t step = 0; step < steps; ++step) {
    generator.set_step(uint64_t(step));
    const int64_t length = 1500 + step * 7 % 160 * 3;
    const Variable x(random_tensor({1, length, 64}, DType::float32, uint64_t(step)));
    backward(sum(square(encoder(x, {}, {true, &generator}))));
    optimizer.step();
    optimizer.clear_gradients();
    if (step % 10 == 0) {
      save_checkpoint(run.path(), encoder, optimizer, nlohmann::ordered_json::object());
      restore(*find_checkpoint(run.path()), encoder, &optimizer);
    }
    if (step == 10) resident_before = resident(), descriptors_before = descriptors();  // threads have their buffers
  }
  CHECK(descriptors() == descriptors_before);
  CHECK(memory(Device::cpu).live <= live + (1 << 20));
#if !CAIRN_SANITIZED  // the address sanitizer keeps what was freed for a while
  const int64_t peak = memory(Device::cpu).peak;
  INFO("resident " << resident_before << " then " << resident() << ", peak " << peak);
  CHECK(resident() - resident_before <= std::max<int64_t>(64 << 20, peak) + (32 << 20));
#endif
}
