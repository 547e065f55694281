// Linear attention, composed of operations (nn/attention/linear.cpp): long sequences, masks, extreme numbers.
// tests/attention/variants.cpp tests the rest.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "nn/attention/attention.h"
#include "tests/ops/attention_test.h"
#include "tests/ops/operation.h"

namespace {

Variable attend(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask, double p = 0) {
  const Generator generator(5);
  AttentionContext context;
  context.training = true;
  context.generator = &generator;
  context.dropout = p;
  return (*make_attention("linear"))(q, k, v, mask, context);
}

// NaN beyond the lengths of x [B, N, H, D].
void spoil(Tensor& x, const Tensor& lengths) {
  const int64_t row = x.size(2) * x.size(3);
  for (int64_t b = 0; b < x.size(0); ++b) {
    const int64_t first = b * x.size(1) + lengths.data<int32_t>()[b];
    std::fill(x.mutable_data<double>() + first * row, x.mutable_data<double>() + (b + 1) * x.size(1) * row, NAN);
  }
}

double feature(double x) { return (x > 0 ? x : std::expm1(x)) + 1; }

Tensor reference(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMask& mask, double p) {
  const uint64_t drawn = reference_key(Generator(5).draw(0, Purpose::attention_dropout));  // of whole keys
  const Rows4 q(query), k(key);
  BatchHeads weights(query.size(0), query.size(2), query.size(1), key.size(1));
  weights.rows([&](int64_t b, int64_t h, int64_t i) {
    double sum = 0;
    for (int64_t j = 0; j < weights.S; ++j) {
      for (int64_t d = 0; d < query.size(3) && may_attend(mask, b, h, i, j); ++d)
        weights(b, h, i, j) += feature(q(b, i, h, d)) * feature(k(b, j, h, d));
      sum += weights(b, h, i, j);
    }
    for (int64_t j = 0; j < weights.S && sum > 0; ++j)
      weights(b, h, i, j) *= dropout_factor(p, drawn, uint64_t((b * weights.H + h) * weights.S + j)) / sum;
  });
  return from_doubles(times_values(weights, value), query.shape().with(-1, value.size(-1)));
}

// The result, and the gradients of q, k, v for a gradient dout.
Tensors both_ways(const Operands& x, const AttentionMask& mask, const Tensor& dout) {
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  const Variable out = attend(q, k, v, mask);
  backward(out, dout);
  return {out.value(), q.grad(), k.grad(), v.grad()};
}

}  // namespace

OPERATION("linear attention") {
  const auto add = [&](const HeadSizes& s, const std::string& what, const AttentionMask& mask, double p) -> Case& {
    const Operands x(s, DType::float64);
    Case& test = op.add(concat(s, ' ', what, " dropout ", p), {x.q, x.k, x.v});
    test.forward = [=](const Variables& t) { return Variables{attend(t[0], t[1], t[2], on(t[0].device(), mask), p)}; };
    test.reference = [=](const Tensors& t) { return Tensors{reference(t[0], t[1], t[2], mask, p)}; };
    return test;
  };
  // None, one and a few of everything; more than a chunk, by one or several; other numbers of keys than of queries.
  for (const HeadSizes& s : {HeadSizes{1, 1, 1, 1, 1, 1},
                             {2, 3, 17, 11, 4, 5},
                             {0, 2, 3, 4, 2, 2},
                             {2, 0, 3, 4, 2, 2},
                             {2, 2, 0, 4, 2, 2},
                             {2, 2, 5, 0, 2, 2},
                             {2, 2, 5, 4, 0, 2},
                             {2, 2, 5, 4, 2, 0},
                             {3, 1, 145, 270, 7, 5},
                             {1, 2, 129, 5, 33, 17},
                             {2, 1, 5, 300, 17, 33},
                             {1, 1, 257, 130, 3, 2}}) {
    add(s, "all", {}, 0);
    add(s, "causal", {.causal = true}, 0);
    for (const bool causal : {false, true}) {
      const AttentionMask mask{.query_lengths = some_lengths(s.B, s.N - s.N / 4),
                               .key_lengths = some_lengths(s.B, s.S - s.S / 3),
                               .causal = causal};
      for (const double p : {0.0, 0.3}) {
        Case& test = add(s, causal ? "lengths and causal" : "lengths", mask, p);
        for (const size_t i : {0, 1, 2}) spoil(test.operands[i], i == 0 ? mask.query_lengths : mask.key_lengths);
      }
    }
  }
}

TEST_CASE("features that vanish give zeros or the right weights, never NaN", "[linear attention]") {
  const HeadSizes s{1, 1, 6, 5, 3, 2};
  const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float32, 9);
  // Elements of q and of k are that much smaller. Where all of one side's are, the features of the other decide.
  for (const auto& [of_q, of_k, vanishes] : {std::tuple{60.0, 0.0, false},
                                             {0.0, 60.0, false},
                                             {30.0, 30.0, false},
                                             {1e4, 0.0, true},
                                             {0.0, 1e4, true},
                                             {80.0, 80.0, true},
                                             {3e38, 3e38, true},
                                             {75.0, 3.0, true},
                                             {3.0, 85.0, true}}) {
    INFO("minus " << of_q << " and " << of_k);
    Operands x(s, DType::float32);
    x.q = affine(x.q, 1, -of_q).value(), x.k = affine(x.k, 1, -of_k).value();
    const auto results = both_ways(x, {}, g);
    for (Tensor* t : {&x.q, &x.k, &x.v}) *t = t->cast(DType::float64);
    const auto expected = both_ways(x, {}, g.cast(DType::float64));
    for (size_t i = 0; i < results.size(); ++i)
      CHECK(difference(results[i], vanishes ? Tensor::zeros(results[i].shape()) : expected[i]) <=
            (vanishes ? 0 : tolerance::float32));
  }
}

TEST_CASE("linear attention of 100,000 tokens never holds the matrix of weights", "[linear attention]") {
  const HeadSizes s{1, 1, 100000, 100000, 8, 8};
  const Operands x(s, DType::float32);
  for (bool causal : {false, true}) {
    reset_peak_memory(Device::cpu);
    const int64_t before = memory(Device::cpu).live;
    both_ways(x, {.causal = causal}, x.q);
    CHECK(memory(Device::cpu).peak - before < (causal ? 400'000'000 : 70'000'000));  // the matrix has 40 GB
  }
}
