#include "cuda/ladder/ladder.h"

#include "autograd/ops.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;
using ladder::Heads;

static std::vector<float> normal(int64_t n, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = sequence.normal();
  return x;
}

TEST_CASE("the ladder: every step of softmax equals the CPU", "[gpu]") {
  for (const Rows size : {Rows{1, 4}, Rows{5, 28}, Rows{131, 64}, Rows{3, 1020}, Rows{6, ladder::max_cols}}) {
    const auto x = normal(size.rows * size.cols, 1);
    std::vector<float> expected(x.size());
    cpu::softmax_forward<float>({}, size, x.data(), expected.data());
    for (const auto& step : ladder::softmax_steps())
      in_every_order([&] {
        INFO(step.name << ", " << size.rows << " x " << size.cols);
        OnDevice<float> from(x), to(x.size());
        step.run({}, size, from.data(), to.data());
        CHECK(difference(to.values(), expected) <= tolerance::float32);
      });
  }
}

TEST_CASE("the ladder: every step of attention equals the CPU", "[gpu]") {
  for (const Heads size : {Heads{1, 64}, Heads{2, 128}}) {
    const Shape shape{size.heads, size.N, 1, ladder::head_size};  // a head is an element of the batch
    const auto rounded = [&](uint64_t seed) {
      return Tensor::from(normal(shape.elements(), seed), shape).cast(DType::bfloat16);
    };
    const Tensor q = rounded(1), k = rounded(2), v = rounded(3);
    const Tensor expected = attention(q.cast(DType::float32), k.cast(DType::float32), v.cast(DType::float32)).value();
    const Tensor of_q = q.to(Device::cuda), of_k = k.to(Device::cuda), of_v = v.to(Device::cuda);
    for (const auto& step : ladder::attention_steps())
      in_every_order([&] {
        INFO(step.name << ", " << size.heads << " heads of " << size.N);
        Tensor out(shape, DType::float32, Device::cuda);
        step.run({}, size, of_q.data<bfloat16>(), of_k.data<bfloat16>(), of_v.data<bfloat16>(),
                 out.mutable_data<float>());
        CHECK(difference(out.to_vector<float>(), expected.to_vector<float>()) <=
              (step.rounds ? tolerance::bfloat16 : tolerance::float32));
      });
  }
}
