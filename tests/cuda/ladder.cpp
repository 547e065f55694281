#include "cuda/ladder/ladder.h"

#include <bit>

#include "core/attention_ops.h"
#include "core/cpu/gemm.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;
using ladder::Assignment;
using ladder::Clusters;
using ladder::Heads;
using ladder::Product;

static std::vector<float> normal(int64_t n, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = sequence.normal();
  return x;
}

TEST_CASE("the ladder: every step of softmax equals the CPU", "[gpu]") {
  // Of rows of whole fours, of others, and of more than registers hold.
  for (const Rows size : {Rows{1, 1}, Rows{5, 31}, Rows{131, 64}, Rows{3, 1022}, Rows{6, 1024}, Rows{2, 1500}}) {
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

TEST_CASE("the ladder: every step of matmul equals the CPU", "[gpu]") {
  for (const Product p : {Product{1, 1, 1}, Product{33, 7, 9}, Product{4, 4, 4}, Product{131, 140, 36},
                          Product{260, 132, 20}, Product{40, 257, 64}}) {
    const auto a = normal(int64_t(p.m) * p.k, 1), b = normal(int64_t(p.k) * p.n, 2);
    std::vector<float> expected(size_t(p.m) * size_t(p.n));
    cpu::gemm_tile<float>(false, false, p.m, p.n, p.k, 1, a.data(), p.k, b.data(), p.n, 0, expected.data(), p.n);
    for (const auto& step : ladder::matmul_steps())
      in_every_order([&] {
        INFO(step.name << ", " << p.m << " x " << p.n << " x " << p.k);
        OnDevice<float> from_a(a), from_b(b), to(expected.size());
        step.run({}, p, from_a.data(), from_b.data(), to.data());
        CHECK(difference(to.values(), expected) <= tolerance::float32);
      });
  }
}

TEST_CASE("the ladder: every step finds the nearest centroid, of several the first", "[gpu]") {
  for (const Assignment size : {Assignment{1, 1}, Assignment{300, 2}, Assignment{1025, 37}, Assignment{2500, 1100}}) {
    RandomStream sequence(3, 0, Purpose::test);
    // Of eight bits in all, so that ties are frequent.
    const auto codes = [&](int n) {
      std::vector<uint64_t> x(static_cast<size_t>(n));
      for (uint64_t& code : x) code = (uint64_t(sequence.next()) << 32 | sequence.next()) & 0xc0000003'0f000000u;
      return x;
    };
    const auto queries = codes(size.N), centroids = codes(size.C);
    std::vector<int32_t> expected;
    for (const uint64_t code : queries) {
      int32_t best = 0;
      for (int32_t c = 1; c < size.C; ++c)
        if (std::popcount(code ^ centroids[size_t(c)]) < std::popcount(code ^ centroids[size_t(best)])) best = c;
      expected.push_back(best);
    }
    for (const auto& step : ladder::hamming_steps())
      in_every_order([&] {
        INFO(step.name << ", N " << size.N << " C " << size.C);
        OnDevice<uint64_t> from(queries), among(centroids);
        OnDevice<int32_t> to(queries.size());
        step.run({}, size, from.data(), among.data(), to.data());
        CHECK(to.values() == expected);
      });
  }
}

namespace {

Tensor rounded_normal(const Shape& shape, uint64_t seed) {
  return Tensor::from(normal(shape.elements(), seed), shape).cast(DType::bfloat16).cast(DType::float32);
}
Tensor halves(const Tensor& x) { return x.cast(DType::bfloat16).to(Device::cuda); }
Tensor result_like(const Tensor& x) { return Tensor(x.shape(), DType::float32, Device::cuda); }

double tolerance_of(bool rounds) { return rounds ? tolerance::bfloat16 : tolerance::float32; }

}  // namespace

TEST_CASE("the ladder: every step of attention and of its gradient equals the CPU", "[gpu]") {
  for (const Heads size : {Heads{1, 1}, Heads{2, 65}, Heads{1, 150}}) {
    const Shape shape{size.heads, size.N, 1, ladder::head_size};  // a head is an element of the batch
    const Tensor q = rounded_normal(shape, 1), k = rounded_normal(shape, 2), v = rounded_normal(shape, 3),
                 dout = rounded_normal(shape, 4);
    const AttentionResult expected = attention(q, k, v);
    const AttentionGradient gradient = attention_backward(q, k, v, {}, expected, dout);
    const Tensor delta = reduce(Reduce::sum, binary(Binary::multiply, dout, expected.out), -1).to(Device::cuda),
                 logsumexp = expected.logsumexp.to(Device::cuda);
    const Tensor of_q = halves(q), of_k = halves(k), of_v = halves(v), of_dout = halves(dout);
    for (const auto& step : ladder::attention_steps())
      in_every_order([&] {
        INFO(step.name << ", " << size.heads << " heads of " << size.N);
        Tensor out = result_like(q);
        step.run({}, size, of_q.data<bfloat16>(), of_k.data<bfloat16>(), of_v.data<bfloat16>(),
                 out.mutable_data<float>());
        CHECK(difference(out.to_vector<float>(), expected.out.to_vector<float>()) <= tolerance_of(step.rounds));
      });
    for (const auto& step : ladder::attention_gradient_steps())
      in_every_order([&] {
        INFO(step.name << ", " << size.heads << " heads of " << size.N);
        Tensor dq = result_like(q), dk = result_like(q), dv = result_like(q);
        step.run({}, size, of_q.data<bfloat16>(), of_k.data<bfloat16>(), of_v.data<bfloat16>(),
                 of_dout.data<bfloat16>(), logsumexp.data<float>(), delta.data<float>(), dq.mutable_data<float>(),
                 dk.mutable_data<float>(), dv.mutable_data<float>());
        for (const auto& [found, right] : {std::pair(dq, gradient.dq), {dk, gradient.dk}, {dv, gradient.dv}})
          CHECK(difference(found.to_vector<float>(), right.to_vector<float>()) <= tolerance_of(step.rounds));
      });
  }
}

TEST_CASE("the ladder: every step of attention over the top keys equals the CPU", "[gpu]") {
  // One query; fewer keys than there are top keys; several tiles of queries a cluster, and clusters without queries.
  for (const Clusters size :
       {Clusters{{1, 1}, 1}, Clusters{{2, 20}, 3}, Clusters{{1, 150}, 2}, Clusters{{1, 70}, 40}}) {
    const Shape shape{size.heads, size.N, 1, ladder::head_size};
    const Tensor q = rounded_normal(shape, 1), k = rounded_normal(shape, 2), v = rounded_normal(shape, 3);
    RandomStream sequence(5, 0, Purpose::test);
    std::vector<int32_t> labels, top;
    for (int i = 0; i < size.heads * size.N; ++i) labels.push_back(int32_t(sequence.below(uint32_t(size.C))));
    // Of each cluster every second or third key from some key on, and at least one.
    for (int list = 0; list < size.heads * size.C; ++list)
      for (int l = 0, key = list % size.N; l < ladder::top_keys; ++l, key += 2 + list % 2)
        top.push_back(key < size.N ? key : -1);
    const Tensor topk = Tensor::from(top, {size.heads, 1, size.C, ladder::top_keys});
    const Groups groups = group(Tensor::from(labels, {size.heads, 1, size.N}), size.C);
    const auto expected = topk_attention(q, k, v, groups, topk, {}, {}, {}).to_vector<float>();

    const Tensor of_q = halves(q), of_k = halves(k), of_v = halves(v), of_topk = topk.to(Device::cuda);
    const Tensor of_labels = groups.labels().to(Device::cuda), permutation = groups.permutation().to(Device::cuda),
                 offsets = groups.offsets().to(Device::cuda);
    const GroupView group{of_labels.data<int32_t>(), permutation.data<int32_t>(), offsets.data<int32_t>()};
    for (const auto& step : ladder::top_attention_steps())
      in_every_order([&] {
        INFO(step.name << ", " << size.heads << " heads of " << size.N << " in " << size.C << " clusters");
        Tensor out = result_like(q);
        step.run({}, size, of_q.data<bfloat16>(), of_k.data<bfloat16>(), of_v.data<bfloat16>(), group,
                 of_topk.data<int32_t>(), out.mutable_data<float>());
        CHECK(difference(out.to_vector<float>(), expected) <= tolerance_of(step.rounds));
      });
  }
}
