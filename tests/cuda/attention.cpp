// What the parity cases do not see of attention on CUDA: that results are the same bits every time, and that the
// kernels for tensor cores are those that run.
#include "core/attention_ops.h"
#include "core/device.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"

using namespace cairn;
using namespace cairn::test;

namespace {

// Everything that attention computes, as float32. Two tiles of queries and of keys, with dropout.
std::vector<float> results(DType dtype) {
  RandomStream sequence(1, 0, Purpose::test);
  const auto normal = [&](int64_t rows) {
    return random_normal({2, rows, 2, 16}, sequence).cast(dtype).to(Device::cuda);
  };
  const Tensor q = normal(70), k = normal(67), v = normal(67), dout = normal(70);
  const Generator generator(3, Device::cuda);
  AttentionOptions options;
  options.mask.causal = true;
  options.dropout = {0.2, generator.draw(0, Purpose::attention_dropout)};
  const AttentionResult forward = attention(q, k, v, options);
  const AttentionGradient g = attention_backward(q, k, v, options, forward, dout);
  std::vector<float> all;
  for (const Tensor& x : {forward.out, forward.logsumexp, g.dq, g.dk, g.dv}) {
    const auto values = x.to(Device::cpu).cast(DType::float32).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("attention on CUDA gives the same bits every time", "[gpu]") {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const auto first = results(dtype);
    in_every_order([&] { CHECK(results(dtype) == first); });
  }
  set_float32_products(Float32Products::tf32);
  const auto first = results(DType::float32);
  in_every_order([&] { CHECK(results(DType::float32) == first); });
  set_float32_products(Float32Products::full);
}

TEST_CASE("attention on CUDA takes tensor cores where it may, and only there", "[gpu]") {
  const auto full = results(DType::float32);
  set_float32_products(Float32Products::tf32);
  const auto tf32 = results(DType::float32);
#if CAIRN_CUDA_HOST
  const auto bf16 = results(DType::bfloat16);
  const int before = host_cuda::claim_architecture(75);
  CHECK(results(DType::float32) == full);
  CHECK(results(DType::bfloat16) != bf16);
  host_cuda::claim_architecture(before);
  CHECK(tf32 != full);
#endif
  set_float32_products(Float32Products::full);
  CHECK(results(DType::float32) == full);
}
