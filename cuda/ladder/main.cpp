// cairn-ladder: runs every step of every staircase, holds it to the library's result and prints how long it takes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "core/attention_ops.h"
#include "core/error.h"
#include "core/kernels/memory.h"
#include "core/ops.h"
#include "cuda/ladder/ladder.h"

using namespace cairn;
using ladder::Heads;

namespace {

const bool emulated = backends().find("cuda-host") != std::string_view::npos;

// Seconds of one run, on average over about a quarter of a second; on the emulator, of a single one.
double seconds(const std::function<Tensor()>& run) {
  const auto timed = [&](int count) {
    gpu::synchronize({});
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) run();
    gpu::synchronize({});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  };
  const double once = timed(1);
  if (emulated) return once;
  timed(3);
  return timed(int(std::clamp(0.25 / once, 1.0, 1000.0)));
}

struct Row {
  std::string name;
  std::function<Tensor()> run;
};

// Whether a has the numbers of b, to `tolerance` of the largest.
bool same(const Tensor& a, const Tensor& b, double tolerance) {
  const auto found = a.cast(DType::float32).to_vector<float>(), expected = b.cast(DType::float32).to_vector<float>();
  double scale = 1;
  for (const float value : expected) scale = std::max(scale, std::abs(double(value)));
  for (size_t i = 0; i < found.size(); ++i)
    if (!(std::abs(double(found[i]) - expected[i]) <= tolerance * scale)) return false;  // a NaN is not the same
  return true;
}

// The last row is the library's. `work` of a run is in `unit` a second.
bool print(const std::string& title, double work, const char* unit, double tolerance, const std::vector<Row>& rows) {
  std::vector<double> times;
  for (const Row& row : rows) times.push_back(seconds(row.run));
  const Tensor expected = rows.back().run();
  bool all_right = true;
  std::printf("\n%s\n  %-34s %12s %12s %10s %12s\n", title.c_str(), "step", "time", unit, "vs first", "vs library");
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool right = same(rows[i].run(), expected, tolerance);
    all_right = all_right && right;
    std::printf("  %-34s %9.3f ms %12.1f %9.2fx %11.2fx%s\n", rows[i].name.c_str(), 1e3 * times[i], work / times[i],
                times[0] / times[i], times.back() / times[i], right ? "" : "  WRONG");
  }
  return all_right;
}

Tensor result(const Shape& shape) { return Tensor(shape, DType::float32, Device::cuda); }

bool softmax_stairs() {
  const Rows size = emulated ? Rows{100, 1000} : Rows{16384, 1024};
  const Shape shape{size.rows, size.cols};
  RandomStream sequence(1, 0, Purpose{});
  const Tensor x = random_normal(shape, sequence).to(Device::cuda);
  std::vector<Row> rows;
  for (const auto& step : ladder::softmax_steps())
    rows.push_back({step.name, [&, run = step.run] {
                      Tensor y = result(shape);
                      run({}, size, x.data<float>(), y.mutable_data<float>());
                      return y;
                    }});
  rows.push_back({"the library's", [&] { return softmax(x); }});
  return print(concat("Softmax of ", size.rows, " rows of ", size.cols), 8e-9 * double(shape.elements()), "GB/s", 1e-5,
               rows);
}

bool attention_stairs() {
  const Heads size = emulated ? Heads{2, 200} : Heads{16, 4096};
  const Shape shape{size.heads, size.N, 1, ladder::head_size};  // to the library, a head is an element of the batch
  RandomStream sequence(3, 0, Purpose{});
  const auto operand = [&] { return random_normal(shape, sequence).cast(DType::bfloat16).to(Device::cuda); };
  const Tensor q = operand(), k = operand(), v = operand();
  std::vector<Row> rows;
  for (const auto& step : ladder::attention_steps())
    rows.push_back({step.name, [&, run = step.run] {
                      Tensor out = result(shape);
                      run({}, size, q.data<bfloat16>(), k.data<bfloat16>(), v.data<bfloat16>(),
                          out.mutable_data<float>());
                      return out;
                    }});
  rows.push_back({"the library's", [&] { return attention(q, k, v).out; }});
  return print(concat("Attention, ", size.heads, " heads of ", size.N, " queries and keys"),
               4e-12 * size.heads * size.N * size.N * ladder::head_size, "Tflop/s", 0x1p-7, rows);  // bfloat16 rounds
}

}  // namespace

int main() try {
  if (const std::string problem = gpu::device_problem(); !problem.empty()) throw DeviceError(problem);
  if (emulated) std::printf("The kernels are executed on the CPU: results are checked, times mean nothing.\n");
  bool right = softmax_stairs();
  right = attention_stairs() && right;
  return right ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "cairn-ladder: error: %s\n", error.what());
  return dynamic_cast<const DeviceError*>(&error) ? 4 : 1;
}
