// cairn-ladder: prints how long every step of the ladder takes. (tests/cuda/ladder.cpp compares their results with the
// CPU's.)
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/kernels/attention.h"
#include "core/ops/attention_checks.h"
#include "core/random.h"
#include "core/timing.h"
#include "cuda/ladder/ladder.h"

using namespace cairn;
using ladder::Heads;

namespace {

const bool emulated = backends().find("cuda-host") != std::string_view::npos;

// Seconds of one call, the mean of 100; on the emulator, of a single call.
double seconds(const std::function<void()>& run) {
  const int count = emulated ? 1 : 100;
  run();  // warms up the device
  const auto repeat = [&] {
    for (int i = 0; i < count; ++i) run();
  };
  return seconds_of(Device::cuda, repeat) / count;
}

// Prints how long each step takes, and last the library. `work` / seconds is the rate in `unit`; run(step.run) runs a
// step.
template <class Steps, class Run>
void print(const std::string& title, double work, const char* unit, const Steps& steps, Run run,
           const std::function<void()>& library) {
  std::vector<std::pair<const char*, double>> times;
  for (const auto& step : steps) times.emplace_back(step.name, seconds([&] { run(step.run); }));
  times.emplace_back("the library's", seconds(library));
  std::printf("\n%s\n  %-34s %12s %12s %10s %12s\n", title.c_str(), "step", "time", unit, "vs first", "vs library");
  for (const auto& [name, time] : times)
    std::printf("  %-34s %9.3f ms %12.1f %9.2fx %11.2fx\n", name, 1e3 * time, work / time, times.front().second / time,
                times.back().second / time);
}

void time_softmax() {
  const Rows size = emulated ? Rows{100, 1000} : Rows{16384, 1024};
  const Shape shape{size.rows, size.cols};
  RandomStream sequence(1, 0, Purpose{});
  const Tensor x = random_normal(shape, sequence).to(Device::cuda);
  Tensor y(shape, DType::float32, Device::cuda);
  print(
      concat("Softmax of ", size.rows, " rows of ", size.cols), 8e-9 * double(shape.elements()), "GB/s",
      ladder::softmax_steps(), [&](auto* step) { step({}, size, x.data<float>(), y.mutable_data<float>()); },
      [&] { gpu::softmax_forward<float>({}, size, x.data<float>(), y.mutable_data<float>()); });
}

void time_attention() {
  const Heads size = emulated ? Heads{2, 192} : Heads{16, 4096};
  const Shape shape{size.heads, size.N, 1, ladder::head_size};  // for the library, a head is a batch element
  RandomStream sequence(3, 0, Purpose{});
  const auto operand = [&] { return random_normal(shape, sequence).cast(DType::bfloat16).to(Device::cuda); };
  const Tensor q = operand(), k = operand(), v = operand();
  Tensor out(shape, DType::float32, Device::cuda), of_library(shape, DType::bfloat16, Device::cuda);
  Tensor logsumexp({size.heads, 1, size.N}, DType::float32, Device::cuda);
  const AttentionSize all{size.heads, 1, size.N, size.N, ladder::head_size, ladder::head_size, 0.125};
  const auto in = operands<bfloat16>(all, q, k, v, {});
  const auto run = [&](auto* step) {
    step({}, size, q.data<bfloat16>(), k.data<bfloat16>(), v.data<bfloat16>(), out.mutable_data<float>());
  };
  print(concat("Attention, ", size.heads, " heads of ", size.N, " queries and keys"),
        4e-12 * size.heads * size.N * size.N * ladder::head_size, "Tflop/s", ladder::attention_steps(), run, [&] {
          gpu::attention_forward<bfloat16>({}, in, head_view<bfloat16>(of_library), logsumexp.mutable_data<float>());
        });
}

}  // namespace

int main() try {
  if (emulated) std::printf("The emulator runs the kernels on the CPU: the times mean nothing.\n");
  time_softmax();
  time_attention();
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "cairn-ladder: error: %s\n", error.what());
  return dynamic_cast<const DeviceError*>(&error) ? 4 : 1;
}
