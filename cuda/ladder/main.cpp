// cairn-ladder: prints how long every step of every staircase takes. (tests/cuda/ladder.cpp holds their results to the
// CPU.)
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/attention_ops.h"
#include "core/error.h"
#include "core/kernels/memory.h"
#include "core/ops.h"
#include "core/timing.h"
#include "cuda/ladder/ladder.h"

using namespace cairn;
using ladder::Heads;

namespace {

const bool emulated = backends().find("cuda-host") != std::string_view::npos;

// Seconds of one run, on average over about a quarter of a second; on the emulator, of a single one.
double seconds(const std::function<void()>& run) {
  const auto timed = [&](int count) {
    const auto repeat = [&] {
      for (int i = 0; i < count; ++i) run();
    };
    return seconds_of(Device::cuda, repeat) / count;
  };
  const double once = timed(1);
  return emulated ? once : timed(int(std::clamp(0.25 / timed(3), 1.0, 1000.0)));
}

struct Row {
  std::string name;
  std::function<void()> run;
};

// The last row is the library's. `work` of a run is in `unit` a second.
void print(const std::string& title, double work, const char* unit, const std::vector<Row>& rows) {
  std::vector<double> times;
  for (const Row& row : rows) times.push_back(seconds(row.run));
  std::printf("\n%s\n  %-34s %12s %12s %10s %12s\n", title.c_str(), "step", "time", unit, "vs first", "vs library");
  for (size_t i = 0; i < rows.size(); ++i)
    std::printf("  %-34s %9.3f ms %12.1f %9.2fx %11.2fx\n", rows[i].name.c_str(), 1e3 * times[i], work / times[i],
                times[0] / times[i], times.back() / times[i]);
}

void softmax_stairs() {
  const Rows size = emulated ? Rows{100, 1000} : Rows{16384, 1024};
  const Shape shape{size.rows, size.cols};
  RandomStream sequence(1, 0, Purpose{});
  const Tensor x = random_normal(shape, sequence).to(Device::cuda);
  Tensor y(shape, DType::float32, Device::cuda);
  std::vector<Row> rows;
  for (const auto& step : ladder::softmax_steps())
    rows.push_back({step.name, [&, run = step.run] { run({}, size, x.data<float>(), y.mutable_data<float>()); }});
  rows.push_back({"the library's", [&] { softmax(x); }});
  print(concat("Softmax of ", size.rows, " rows of ", size.cols), 8e-9 * double(shape.elements()), "GB/s", rows);
}

void attention_stairs() {
  const Heads size = emulated ? Heads{2, 192} : Heads{16, 4096};
  const Shape shape{size.heads, size.N, 1, ladder::head_size};  // to the library, a head is an element of the batch
  RandomStream sequence(3, 0, Purpose{});
  const auto operand = [&] { return random_normal(shape, sequence).cast(DType::bfloat16).to(Device::cuda); };
  const Tensor q = operand(), k = operand(), v = operand();
  Tensor out(shape, DType::float32, Device::cuda);
  std::vector<Row> rows;
  for (const auto& step : ladder::attention_steps())
    rows.push_back({step.name, [&, run = step.run] {
                      run({}, size, q.data<bfloat16>(), k.data<bfloat16>(), v.data<bfloat16>(),
                          out.mutable_data<float>());
                    }});
  rows.push_back({"the library's", [&] { attention(q, k, v); }});
  print(concat("Attention, ", size.heads, " heads of ", size.N, " queries and keys"),
        4e-12 * size.heads * size.N * size.N * ladder::head_size, "Tflop/s", rows);
}

}  // namespace

int main() try {
  if (const std::string problem = gpu::device_problem(); !problem.empty()) throw DeviceError(problem);
  if (emulated) std::printf("The kernels are executed on the CPU: the times mean nothing.\n");
  softmax_stairs();
  attention_stairs();
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "cairn-ladder: error: %s\n", error.what());
  return dynamic_cast<const DeviceError*>(&error) ? 4 : 1;
}
