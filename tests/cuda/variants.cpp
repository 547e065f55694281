// Every attention variant in the list gives the same values and gradients on CUDA as on the CPU. CUDA replays the CPU's
// choices.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <future>
#include <vector>

#include "core/attention_ops.h"
#include "tests/attention/trials.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;

namespace {

// A tensor on any device as float32; empty where there is no gradient.
std::vector<float> values(const Tensor& x) {
  return x.defined() ? x.cast(DType::float32).to(Device::cpu).to_vector<float>() : std::vector<float>();
}

struct Run {
  AttentionChoices made;
  std::vector<std::vector<float>> results;  // the output, and the gradients of q, k, v and the parameters
};

Run run(const Trial& trial, Device device, int64_t N, int64_t S, bool lengths, double dropout, const Run* replayed) {
  const int64_t B = 2, H = 2, D = 8, M = 8;
  RandomStream random(21, 0, Purpose::test);
  const auto input = [&](int64_t rows, int64_t size) {
    return Variable(random_normal({B, rows, H, size}, random).to(device), true);
  };
  const Variable q = input(N, D), k = input(S, D), v = input(S, M);
  const Tensor dout = random_normal({B, N, H, M}, random).to(device);
  AttentionMask mask;
  if (lengths) {
    const auto half = [&](int64_t n) {
      return Tensor::from(std::vector<int32_t>{int32_t(n), int32_t(n / 2)}, {B}).to(device);
    };
    mask.query_lengths = half(N), mask.key_lengths = half(S);
  }
  const auto attention = trial.make(H, D);
  move_to(*attention, device);
  Generator generator(5);
  generator.set_first_example(3);
  Run result;
  if (replayed) result.made = replayed->made.to(device);
  const Variable out =
      (*attention)(q, k, v, mask, {{.training = dropout > 0, .generator = &generator}, &result.made, dropout});
  backward(out, dout);
  result.results = {values(out.value()), values(q.grad()), values(k.grad()), values(v.grad())};
  for (const Variable& parameter : parameters(*attention)) result.results.push_back(values(parameter.grad()));
  return result;
}

// Whether a result is exactly 0 beyond the lengths of run(), n and n / 2. An empty result stands for no gradient.
bool padding_is_zero(const std::vector<float>& result, int64_t n) {
  const auto half = std::ptrdiff_t(result.size() / 2), row = half / n;
  return std::all_of(result.begin() + half + n / 2 * row, result.end(), [](float x) { return x == 0; });
}

// With sanitizers, one trial of each variant.
std::vector<Trial> fewer_trials() {
  std::vector<Trial> result = trials(4, 5);
  const auto same_name = [](const Trial& a, const Trial& b) { return a.name == b.name; };
  if (sanitized) result.erase(std::unique(result.begin(), result.end(), same_name), result.end());
  return result;
}

}  // namespace

TEST_CASE("every attention variant gives on CUDA what it gives on the CPU", "[gpu][variants]") {
  for (const Trial& trial : trials(4, 5))
    for (const int64_t N : {5, 9, 70})
      for (const bool lengths : {false, true})
        for (const double dropout : {0.0, 0.3}) {
          if (sanitized && (dropout == 0 || lengths != (N == 70))) continue;
          const int64_t S = trial.entry.cross ? N + 3 : N;
          INFO(trial.spec << " N = " << N << (lengths ? ", lengths" : "") << ", dropout " << dropout);
          const Run expected = run(trial, Device::cpu, N, S, lengths, dropout, nullptr);
          const Run got = run(trial, Device::cuda, N, S, lengths, dropout, &expected);
          REQUIRE(got.results.size() == expected.results.size());
          for (size_t i = 0; i < got.results.size(); ++i) {
            INFO("result " << i);
            CHECK(difference(got.results[i], expected.results[i]) <= tolerance::float32);
            if (lengths && i < 4) CHECK(padding_is_zero(got.results[i], i < 2 ? N : S));
          }
        }
}

TEST_CASE("host threads that use CUDA at once get the bits of one alone", "[gpu][variants]") {
  for (const Trial& trial : fewer_trials()) {
    INFO(trial.spec);
    const auto on_cuda = [&](int64_t n) { return run(trial, Device::cuda, n, n, true, 0.2, nullptr).results; };
    const auto count_wrong = [&](int64_t n, const std::vector<std::vector<float>>& alone) {
      int wrong = 0;
      for (int round = 0; round < (sanitized ? 1 : 3); ++round) wrong += on_cuda(n) != alone;
      return wrong;
    };
    const auto alone = on_cuda(40), other_alone = on_cuda(33);
    auto other = std::async(std::launch::async, count_wrong, 33, std::cref(other_alone));
    CHECK(count_wrong(40, alone) == 0);
    CHECK(other.get() == 0);
  }
}

TEST_CASE("every attention variant gives the same bits on CUDA every time", "[gpu][variants]") {
  for (const Trial& trial : fewer_trials()) {
    INFO(trial.spec);
    const auto first = run(trial, Device::cuda, 40, 40, true, 0.2, nullptr).results;
    in_every_order([&] { CHECK(run(trial, Device::cuda, 40, 40, true, 0.2, nullptr).results == first); });
  }
}
