// cairn-ladder: runs every step of every staircase, holds it to the CPU's result and prints how long it takes.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "core/attention_ops.h"
#include "core/error.h"
#include "core/kernels/gemm.h"
#include "core/kernels/hamming_kmeans.h"
#include "core/kernels/memory.h"
#include "core/ops.h"
#include "cuda/ladder/ladder.h"

using namespace cairn;
using ladder::Assignment;
using ladder::Clusters;
using ladder::Heads;
using ladder::Product;

namespace {

const bool emulated = backends().find("cuda-host") != std::string_view::npos;

// Seconds of one run, on average over about a quarter of a second; on the emulator, of a single one.
double seconds(const std::function<void()>& run) {
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
  std::function<void()> run;
  std::function<bool()> right;  // of what the last run left
};

// The last row is the library's. `work` of a run is in `unit` a second.
bool print(const std::string& title, double work, const char* unit, const std::vector<Row>& rows) {
  std::vector<double> times;
  for (const Row& row : rows) times.push_back(seconds(row.run));
  bool all_right = true;
  std::printf("\n%s\n  %-34s %12s %12s %10s %12s\n", title.c_str(), "step", "time", unit, "vs first", "vs library");
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].run();
    const bool right = rows[i].right();
    all_right = all_right && right;
    std::printf("  %-34s %9.3f ms %12.1f %9.2fx %11.2fx%s\n", rows[i].name.c_str(), 1e3 * times[i], work / times[i],
                times[0] / times[i], times.back() / times[i], right ? "" : "  WRONG");
  }
  return all_right;
}

Tensor normal(const Shape& shape) {
  RandomStream sequence(1, 0, Purpose{});
  return random_normal(shape, sequence);
}

// Whether `device` holds what `host` does, to `tolerance` of its largest.
bool same(const Tensor& device, const Tensor& host, double tolerance) {
  const auto a = device.to_vector<float>(), b = host.to_vector<float>();
  double maximum = 0, scale = 1;
  bool numbers = true;
  for (size_t i = 0; i < a.size(); ++i) {
    maximum = std::max(maximum, std::abs(double(a[i]) - b[i])), scale = std::max(scale, std::abs(double(b[i])));
    numbers = numbers && a[i] == a[i];
  }
  return numbers && maximum <= tolerance * scale;
}

template <class Steps, class Run>
std::vector<Row> rows_of(const Steps& steps, Run run, const std::function<bool()>& right) {
  std::vector<Row> rows;
  for (const auto& step : steps) rows.push_back({step.name, [=] { run(step.run); }, right});
  return rows;
}

bool softmax_stairs() {
  const Rows size = emulated ? Rows{100, 1000} : Rows{16384, 1024};
  const Tensor host = normal({size.rows, size.cols}), expected = softmax(host), x = host.to(Device::cuda);
  Tensor y(host.shape(), DType::float32, Device::cuda);
  const float* const from = x.data<float>();
  float* const to = y.mutable_data<float>();
  const auto right = [&] { return same(y, expected, 1e-5); };
  auto rows = rows_of(
      ladder::softmax_steps(), [=](auto* step) { step({}, size, from, to); }, right);
  rows.push_back({"the library's", [=] { gpu::softmax_forward<float>({}, size, from, to); }, right});
  return print(concat("Softmax of ", size.rows, " rows of ", size.cols), 8e-9 * double(host.elements()), "GB/s", rows);
}

bool matmul_stairs() {
  const Product p = emulated ? Product{200, 136, 100} : Product{4096, 4096, 4096};
  const Tensor host_a = normal({p.m, p.k}), host_b = normal({p.k, p.n}), expected = matmul(host_a, host_b);
  const Tensor a = host_a.to(Device::cuda), b = host_b.to(Device::cuda);
  Tensor c(expected.shape(), DType::float32, Device::cuda);
  const float *from_a = a.data<float>(), *from_b = b.data<float>();
  float* const to = c.mutable_data<float>();
  const auto right = [&] { return same(c, expected, 1e-5); };
  auto rows = rows_of(
      ladder::matmul_steps(), [=](auto* step) { step({}, p, from_a, from_b, to); }, right);
  const Gemm library{p.m, p.n, p.k, false, false, p.k, p.n, p.n};
  rows.push_back({"the library's", [=] { gpu::gemm<float>({}, library, from_a, from_b, to); }, right});
  return print(concat("Product of ", p.m, " x ", p.k, " and ", p.k, " x ", p.n), 2e-12 * p.m * p.n * p.k, "Tflop/s",
               rows);
}

bool hamming_stairs() {
  const Assignment size = emulated ? Assignment{3000, 100} : Assignment{1 << 20, 256};
  RandomStream sequence(2, 0, Purpose{});
  std::vector<uint64_t> numbers(size_t(size.N + size.C));
  for (uint64_t& code : numbers) code = uint64_t(sequence.next()) << 32 | sequence.next();
  const uint64_t *code = numbers.data(), *centroid = code + size.N;
  std::vector<int32_t> expected;
  for (int i = 0; i < size.N; ++i)
    expected.push_back(int32_t(std::min_element(centroid, centroid + size.C,
                                                [&](uint64_t a, uint64_t b) {
                                                  return std::popcount(a ^ code[i]) < std::popcount(b ^ code[i]);
                                                }) -
                               centroid));
  const Tensor all = Tensor::from(numbers, {size.N + size.C}).to(Device::cuda);
  Tensor labels({size.N}, DType::int32, Device::cuda);
  const uint64_t* const from = all.data<uint64_t>();
  int32_t* const to = labels.mutable_data<int32_t>();
  auto rows = rows_of(
      ladder::hamming_steps(), [=](auto* step) { step({}, size, from, from + size.N, to); },
      [&] { return labels.to_vector<int32_t>() == expected; });
  // The library draws centroids of its own: without iterations, it assigns once.
  const Generator generator(1, Device::cuda);
  const Draw draw = generator.draw(0, Purpose{}).view();
  rows.push_back({"the library's, one assignment",
                  [=] {
                    Workspace workspace(Device::cuda);
                    gpu::hamming_kmeans({}, {1, 1, size.N, size.C, 64, 0}, from, nullptr, draw, workspace, to);
                  },
                  [] { return true; }});
  return print(concat("The nearest of ", size.C, " centroids to ", size.N, " codes"), 1e-9 * size.N * size.C, "1e9/s",
               rows);
}

// Operands of attention, [heads, N, 1, 64]: to the library, a head is an element of the batch.
struct Operands {
  Heads size = emulated ? Heads{2, 200} : Heads{16, 4096};
  Shape shape{size.heads, size.N, 1, ladder::head_size};
  RandomStream sequence{3, 0, Purpose{}};
  Tensor q = halves(), k = halves(), v = halves(), dout = halves();  // bfloat16, on the device

  Tensor halves() { return random_normal(shape, sequence).cast(DType::bfloat16).to(Device::cuda); }
};
Tensor on_host(const Tensor& x) { return x.to(Device::cpu).cast(DType::float32); }
Tensor result_like(const Tensor& x) { return Tensor(x.shape(), DType::float32, Device::cuda); }
// What tensor cores round to bfloat16 is no closer than that.
bool close(const Tensor& device, const Tensor& host) { return same(on_host(device), host, 0x1p-7); }

bool attention_stairs(const Operands& x) {
  const Heads size = x.size;
  const Tensor expected = attention(on_host(x.q), on_host(x.k), on_host(x.v)).out;
  Tensor out = result_like(x.q);
  auto rows = rows_of(
      ladder::attention_steps(),
      [&, to = out.mutable_data<float>()](auto* step) {
        step({}, size, x.q.data<bfloat16>(), x.k.data<bfloat16>(), x.v.data<bfloat16>(), to);
      },
      [&] { return close(out, expected); });
  Tensor library;
  rows.push_back(
      {"the library's", [&] { library = attention(x.q, x.k, x.v).out; }, [&] { return close(library, expected); }});
  return print(concat("Attention, ", size.heads, " heads of ", size.N, " queries and keys"),
               4e-12 * size.heads * size.N * size.N * ladder::head_size, "Tflop/s", rows);
}

bool gradient_stairs(const Operands& x) {
  const Heads size = x.size;
  const Tensor q = on_host(x.q), k = on_host(x.k), v = on_host(x.v), dout = on_host(x.dout);
  const AttentionResult forward = attention(q, k, v), saved = attention(x.q, x.k, x.v);
  const AttentionGradient expected = attention_backward(q, k, v, {}, forward, dout);
  const Tensor delta = reduce(Reduce::sum, binary(Binary::multiply, dout, forward.out), -1).to(Device::cuda),
               logsumexp = forward.logsumexp.to(Device::cuda);
  AttentionGradient found{result_like(x.q), result_like(x.q), result_like(x.q)};
  float *const dq = found.dq.mutable_data<float>(), *const dk = found.dk.mutable_data<float>(),
               *const dv = found.dv.mutable_data<float>();
  const auto right = [&](const AttentionGradient& g) {
    return close(g.dq, expected.dq) && close(g.dk, expected.dk) && close(g.dv, expected.dv);
  };
  auto rows = rows_of(
      ladder::attention_gradient_steps(),
      [&](auto* step) {
        step({}, size, x.q.data<bfloat16>(), x.k.data<bfloat16>(), x.v.data<bfloat16>(), x.dout.data<bfloat16>(),
             logsumexp.data<float>(), delta.data<float>(), dq, dk, dv);
      },
      [&] { return right(found); });
  AttentionGradient library;
  rows.push_back({"the library's", [&] { library = attention_backward(x.q, x.k, x.v, {}, saved, x.dout); },
                  [&] { return right(library); }});
  return print("Its gradient", 1e-11 * size.heads * size.N * size.N * ladder::head_size, "Tflop/s", rows);
}

bool top_attention_stairs(const Operands& x) {
  const Clusters size{x.size, emulated ? 5 : 100};
  RandomStream sequence(4, 0, Purpose{});
  std::vector<int32_t> labels, top;
  for (int i = 0; i < size.heads * size.N; ++i) labels.push_back(int32_t(sequence.below(uint32_t(size.C))));
  const int apart = size.N / ladder::top_keys;
  for (int list = 0; list < size.heads * size.C; ++list)
    for (int l = 0; l < ladder::top_keys; ++l) top.push_back(l * apart + int32_t(sequence.below(uint32_t(apart))));
  const Tensor of_labels = Tensor::from(labels, {size.heads, 1, size.N}),
               topk = Tensor::from(top, {size.heads, 1, size.C, ladder::top_keys});
  const Tensor expected =
      topk_attention(on_host(x.q), on_host(x.k), on_host(x.v), group(of_labels, size.C), topk, {}, {}, {});

  const Groups groups = group(of_labels.to(Device::cuda), size.C);
  const GroupView view{groups.labels().data<int32_t>(), groups.permutation().data<int32_t>(),
                       groups.offsets().data<int32_t>()};
  const Tensor on_device = topk.to(Device::cuda);
  Tensor out = result_like(x.q);
  auto rows = rows_of(
      ladder::top_attention_steps(),
      [&, to = out.mutable_data<float>()](auto* step) {
        step({}, size, x.q.data<bfloat16>(), x.k.data<bfloat16>(), x.v.data<bfloat16>(), view,
             on_device.data<int32_t>(), to);
      },
      [&] { return close(out, expected); });
  Tensor library;
  rows.push_back({"the library's", [&] { library = topk_attention(x.q, x.k, x.v, groups, on_device, {}, {}, {}); },
                  [&] { return close(library, expected); }});
  return print(concat("Attention over the ", ladder::top_keys, " top keys of ", size.C, " clusters"),
               4e-12 * size.heads * size.N * ladder::top_keys * ladder::head_size, "Tflop/s", rows);
}

}  // namespace

int main() try {
  if (gpu::device_count() == 0) throw DeviceError("no CUDA device");
  if (emulated) std::printf("The kernels are executed on the CPU: results are checked, times mean nothing.\n");
  bool right = softmax_stairs();
  right = matmul_stairs() && right;
  right = hamming_stairs() && right;
  const Operands operands;
  right = attention_stairs(operands) && right;
  right = gradient_stairs(operands) && right;
  right = top_attention_stairs(operands) && right;
  return right ? 0 : 1;
} catch (const Error& error) {
  std::fprintf(stderr, "cairn-ladder: error: %s\n", error.what());
  return dynamic_cast<const DeviceError*>(&error) ? 4 : 1;
}
