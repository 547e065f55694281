#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "tests/ops/attention_test.h"

namespace {

double feature(double x) { return (x > 0 ? x : std::expm1(x)) + 1; }
double slope(double x) { return x > 0 ? 1 : std::exp(x); }

// Sum over the elements of feature(q) feature(k), 0 where masked; and its sums over keys, [B, H, N].
BatchHeads reference_products(const Tensor& query, const Tensor& key, const AttentionMask& mask) {
  const Rows4 q(query), k(key);
  BatchHeads products(query.size(0), query.size(2), query.size(1), key.size(1));
  products.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < products.S; ++j)
      for (int64_t d = 0; d < query.size(3) && may_attend(mask, b, h, i, j); ++d)
        products(b, h, i, j) += feature(q(b, i, h, d)) * feature(k(b, j, h, d));
  });
  return products;
}
BatchHeads over_their_sums(BatchHeads products) {
  const auto sums = row_sums(products);
  for (size_t i = 0; i < products.values.size(); ++i)
    if (const double sum = sums[i / size_t(products.S)]; sum > 0) products.values[i] /= sum;
  return products;
}

// By key: what attention draws for query 0, for all queries.
BatchHeads key_dropout_factors(const HeadSizes& s, const AttentionDropout& dropout) {
  const BatchHeads first = dropout_factors({s.B, s.H, 1, s.S, 1, s.S}, dropout);
  BatchHeads factors(s.B, s.H, s.N, s.S);
  factors.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < s.S; ++j) factors(b, h, i, j) = first(b, h, 0, j);
  });
  return factors;
}

// None, one and a few of everything; more than a chunk, by one or several; other numbers of keys than of queries.
std::vector<HeadSizes> every_size() {
  return {{1, 1, 1, 1, 1, 1},     {2, 3, 17, 11, 4, 5},   {0, 2, 3, 4, 2, 2},     {2, 0, 3, 4, 2, 2},
          {2, 2, 0, 4, 2, 2},     {2, 2, 5, 0, 2, 2},     {2, 2, 5, 4, 0, 2},     {2, 2, 5, 4, 2, 0},
          {3, 1, 145, 270, 7, 5}, {1, 2, 129, 5, 33, 17}, {2, 1, 5, 300, 17, 33}, {1, 1, 257, 130, 3, 2}};
}

struct Masked {
  const char* name;
  AttentionMask mask;
};
std::vector<Masked> every_linear_mask(const HeadSizes& s) {
  return {{"nothing", {}},
          {"causal", {{}, {}, {}, true}},
          {"lengths", {some_lengths(s.B, s.N - s.N / 4), some_lengths(s.B, s.S - s.S / 3), {}, false}},
          {"lengths and causal", {some_lengths(s.B, s.N), some_lengths(s.B, s.S - s.S / 3), {}, true}}};
}

// The results of linear attention, and the gradients of q, k, v for the gradient g.
std::vector<Tensor> both_ways(const Operands& x, const AttentionOptions& options, const Tensor& g) {
  const auto saved = linear_attention(x.q, x.k, x.v, options);
  const auto [dq, dk, dv] = linear_attention_backward(x.q, x.k, x.v, options, saved, g);
  return {saved.out, saved.denominators, dq, dk, dv};
}

}  // namespace

TEST_CASE("linear attention agrees with its formula for every mask and size", "[linear_attention]") {
  for (const HeadSizes& s : every_size())
    for (const auto& [what, mask] : every_linear_mask(s)) {
      const Operands exact(s, DType::float64);
      const BatchHeads products = reference_products(exact.q, exact.k, mask), a = over_their_sums(products);
      for (double p : {0.0, 0.3}) {
        const auto out = times_values(product(a, key_dropout_factors(s, test_dropout(p))), exact.v);
        for (DType dtype : {DType::float32, DType::float64}) {
          INFO(s << ' ' << name(dtype) << ", masked: " << what << ", dropout " << p);
          const Operands x(s, dtype);
          const LinearAttentionResult result = linear_attention(x.q, x.k, x.v, {mask, test_dropout(p), 0});
          CHECK(difference(result.out, out) <= tolerance_of(dtype));
          CHECK(difference(result.denominators, row_sums(products)) <= tolerance_of(dtype));
        }
      }
    }
}

TEST_CASE("gradients of linear attention agree with their formulas for every mask and size",
          "[linear_attention][grad]") {
  for (const HeadSizes& s : every_size())
    for (const Masked& masked : every_linear_mask(s)) {
      const AttentionMask& mask = masked.mask;
      const Operands exact(s, DType::float64);
      const BatchHeads products = reference_products(exact.q, exact.k, mask), a = over_their_sums(products);
      const auto sums = row_sums(products);
      const Rows4 q(exact.q), k(exact.k);
      const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float64, 9);
      for (double p : {0.0, 0.3}) {
        const BatchHeads factors = key_dropout_factors(s, test_dropout(p));
        const BatchHeads da = product(times_transposed(g, exact.v), factors);
        // The gradient of w_ij in A_ij = w_ij / sum over l of w_il, and from it those of the features.
        Rows4 dq(Tensor::zeros(exact.q.shape(), DType::float64)), dk(Tensor::zeros(exact.k.shape(), DType::float64));
        a.rows([&](int64_t b, int64_t h, int64_t i) {
          double mean = 0;
          for (int64_t j = 0; j < s.S; ++j) mean += a(b, h, i, j) * da(b, h, i, j);
          for (int64_t j = 0; j < s.S; ++j) {
            if (!may_attend(mask, b, h, i, j)) continue;
            const double dw = (da(b, h, i, j) - mean) / sums[size_t((b * s.H + h) * s.N + i)];
            for (int64_t d = 0; d < s.D; ++d) {
              dq(b, i, h, d) += slope(q(b, i, h, d)) * dw * feature(k(b, j, h, d));
              dk(b, j, h, d) += slope(k(b, j, h, d)) * dw * feature(q(b, i, h, d));
            }
          }
        });
        const auto dv = times_values(transposed(product(a, factors)), g);
        for (DType dtype : {DType::float32, DType::float64}) {
          INFO(s << ' ' << name(dtype) << ", masked: " << masked.name << ", dropout " << p);
          const Operands x(s, dtype);
          const AttentionOptions options{mask, test_dropout(p), 0};
          const auto result = linear_attention_backward(x.q, x.k, x.v, options,
                                                        linear_attention(x.q, x.k, x.v, options), g.cast(dtype));
          CHECK(difference(result.dq, dq.values) <= tolerance_of(dtype));
          CHECK(difference(result.dk, dk.values) <= tolerance_of(dtype));
          CHECK(difference(result.dv, dv) <= tolerance_of(dtype));
        }
      }
    }
}

TEST_CASE("gradient of linear attention against central differences", "[linear_attention][grad]") {
  for (const HeadSizes& s : {HeadSizes{2, 2, 5, 4, 3, 2}, HeadSizes{2, 1, 3, 6, 2, 3}})
    for (const auto& [what, mask] : every_linear_mask(s))
      for (double p : {0.0, 0.4}) {
        INFO(s << ", masked: " << what << ", dropout " << p);
        const Operands x(s, DType::float64);
        const AttentionOptions options{mask, test_dropout(p), 0};
        CHECK_GRADIENT([&](const auto& in) { return linear_attention(in[0], in[1], in[2], options); }, x.q, x.k, x.v);
      }
}

TEST_CASE("the last query of causal linear attention sees what it sees without the mask", "[linear_attention]") {
  const HeadSizes s{2, 2, 301, 301, 5, 4};
  const Operands x(s, DType::float64);
  const Rows4 all(linear_attention(x.q, x.k, x.v).out);
  const Rows4 causal(linear_attention(x.q, x.k, x.v, {{{}, {}, {}, true}, {}, 0}).out), v(x.v);
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t h = 0; h < s.H; ++h)
      for (int64_t m = 0; m < s.M; ++m) {
        CHECK(std::abs(causal(b, s.N - 1, h, m) - all(b, s.N - 1, h, m)) <= tolerance::float64);
        CHECK(std::abs(causal(b, 0, h, m) - v(b, 0, h, m)) <= tolerance::float64);  // one key: its value
      }
}

TEST_CASE("linear attention gives exact zeros where no key is left and beyond the lengths", "[linear_attention]") {
  const HeadSizes s{3, 2, 140, 150, 4, 5};
  const Operands x(s, DType::float32);
  const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float32, 9);
  const int32_t queries[] = {130, 140, 0}, keys[] = {150, 0, 7};
  for (bool causal : {false, true}) {
    const AttentionOptions options{
        {int32s({queries[0], queries[1], queries[2]}), int32s({keys[0], keys[1], keys[2]}), {}, causal}, {}, 0};
    const LinearAttentionResult saved = linear_attention(x.q, x.k, x.v, options);
    const auto gradient = linear_attention_backward(x.q, x.k, x.v, options, saved, g);
    const Rows4 out(saved.out), dq(gradient.dq), dk(gradient.dk), dv(gradient.dv);
    const auto all_zero = [](const Rows4& t, int64_t b, int64_t n) {
      bool zero = true;
      for (int64_t h = 0; h < t.shape[2]; ++h)
        for (int64_t d = 0; d < t.shape[3]; ++d) zero = zero && t(b, n, h, d) == 0;
      return zero;
    };
    for (int64_t b = 0; b < s.B; ++b) {
      for (int64_t i = 0; i < s.N; ++i) {
        const bool sees_nothing = i >= queries[b] || keys[b] == 0;
        REQUIRE(all_zero(out, b, i) == sees_nothing);
        // A single key has the weight 1 whatever the query is.
        if (!causal || i > 0) REQUIRE(all_zero(dq, b, i) == sees_nothing);
      }
      for (int64_t j = 0; j < s.S; ++j) {
        const bool seen = j < keys[b] && (causal ? j < queries[b] : queries[b] > 0);
        REQUIRE(all_zero(dk, b, j) == !seen);
        REQUIRE(all_zero(dv, b, j) == !seen);
      }
    }
  }
}

TEST_CASE("linear attention never looks at what lies beyond the lengths", "[linear_attention]") {
  const HeadSizes s{2, 2, 150, 150, 3, 4};
  const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float32, 9);
  for (bool causal : {false, true}) {
    const AttentionOptions options{{int32s({70, 0}), int32s({67, 140}), {}, causal}, {}, 0};
    const auto run = [&](float beyond) {
      Operands x(s, DType::float32);
      Tensor dout = g.cast(DType::float64).cast(DType::float32);
      for (auto [t, first, second] : {std::tuple{&x.q, 70, 0}, {&dout, 70, 0}, {&x.k, 67, 140}, {&x.v, 67, 140}}) {
        const int64_t row = t->size(2) * t->size(3);
        std::fill_n(t->mutable_data<float>() + first * row, (150 - first) * row, beyond);
        std::fill_n(t->mutable_data<float>() + (150 + second) * row, (150 - second) * row, beyond);
      }
      return both_ways(x, options, dout);
    };
    const auto with_zeros = run(0), with_nan = run(NAN);
    for (size_t i = 0; i < with_nan.size(); ++i) CHECK(same_bits(with_zeros[i], with_nan[i]));
  }
}

TEST_CASE("features that vanish give zeros or the right weights, never NaN", "[linear_attention]") {
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
    for (int64_t i = 0; i < x.q.elements(); ++i) x.q.mutable_data<float>()[i] -= float(of_q);
    for (int64_t i = 0; i < x.k.elements(); ++i) x.k.mutable_data<float>()[i] -= float(of_k);
    const auto results = both_ways(x, {}, g);
    for (Tensor* t : {&x.q, &x.k, &x.v}) *t = t->cast(DType::float64);
    const auto expected = both_ways(x, {}, g.cast(DType::float64));
    for (size_t i = 0; i < results.size(); ++i) {
      if (vanishes) CHECK(same_bits(results[i], Tensor::zeros(results[i].shape())));
      if (!vanishes && i != 1) CHECK(difference(results[i], expected[i]) <= tolerance::float32);  // 1: denominators
    }
  }
}

TEST_CASE("NaN and infinity stay within their batch element and head in linear attention", "[linear_attention]") {
  const Tensor g = random_tensor({2, 140, 2, 4}, DType::float32, 9);
  for (bool causal : {false, true}) {
    const AttentionOptions options{{{}, int32s({270, 269}), {}, causal}, {}, 0};
    check_stays_within_head({2, 2, 140, 270, 3, 4}, [&](const Operands& x) { return both_ways(x, options, g); },
                            {NAN, INFINITY});  // the feature of minus infinity is 0
  }
}

TEST_CASE("dropout of linear attention drops values of keys, in the right proportion", "[linear_attention]") {
  const HeadSizes s{2, 3, 2, 40000, 1, 1};
  const Operands x(s, DType::float64);
  const Tensor g = Tensor::full({s.B, s.N, s.H, s.M}, 1, DType::float64);
  check_proportion([&](double p) { return as_double(both_ways(x, {{}, test_dropout(p), 0}, g).back()); });  // dv
  const AttentionOptions all{{}, test_dropout(1), 0};
  CHECK(difference(linear_attention(x.q, x.k, x.v, all).out, Tensor::zeros(g.shape(), DType::float64)) == 0);
}

TEST_CASE("linear attention gives the same bits on any number of threads", "[linear_attention]") {
  const HeadSizes s{1, 2, 601, 503, 7, 9};
  const Operands x(s, DType::float32);
  const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float32, 9);
  for (bool causal : {false, true})
    check_any_threads([&] { return both_ways(x, {{{}, {}, {}, causal}, test_dropout(0.2), 0}, g); });
}

TEST_CASE("linear attention of 100,000 tokens never holds the matrix of weights", "[linear_attention]") {
  const HeadSizes s{1, 1, 100000, 100000, 8, 8};
  const Operands x(s, DType::float32);
  for (bool causal : {false, true}) {
    const Variable q(x.q, true), k(x.k, true), v(x.v, true);
    reset_peak_memory(Device::cpu);
    const int64_t before = memory(Device::cpu).live;
    const Variable out = linear_attention(q, k, v, {{{}, {}, {}, causal}, {}, 0});
    backward(out, out.value());
    CHECK(memory(Device::cpu).peak - before < 30'000'000);  // the matrix has 40 GB
    CHECK(q.grad().shape() == q.shape());
  }
}

TEST_CASE("linear attention refuses what it cannot compute", "[linear_attention]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  const auto with = [&](const AttentionMask& mask) { return linear_attention(x.q, x.k, x.v, {mask, {}, 0}); };
  CHECK_ERROR(linear_attention(Tensor(), x.k, x.v), "linear_attention: q was never given a value");
  CHECK_ERROR(linear_attention(x.q, x.k.reshape({2, 5, 6, 3}), x.v),
              "linear_attention: expected k of shape [2, S, 3, 6], got [2, 5, 6, 3]");
  CHECK_ERROR(with({{}, int32s({6, 1}), {}, false}), "linear_attention: key_lengths[0] is 6, expected 0 to 5");
  CHECK_ERROR(with({{}, {}, random_mask({4, 5}), false}), "linear_attention: cannot honor a boolean mask");
  CHECK_THROWS_AS(with({{}, {}, random_mask({4, 5}), true}), UsageError);
  CHECK_ERROR(linear_attention(x.q, x.k, x.v, {{}, {}, 0.5}),
              "linear_attention: it has no scores to scale, got scale = 0.5");
  CHECK_ERROR(linear_attention_backward(x.q, x.k, x.v, {}, linear_attention(x.q, x.k, x.v), x.q),
              "linear_attention: expected the gradient of shape [2, 4, 3, 7], got [2, 4, 3, 6]");
  const Tensor cuda = elsewhere({0, 4, 3, 6});
  CHECK_NEEDS_CUDA(linear_attention(cuda, cuda, cuda), "linear_attention");
}

#if CAIRN_HAS_CUDA  // against the CPU

namespace {

struct CudaCase {
  HeadSizes s;
  AttentionMask mask{};
  double dropout = 0;
  float bad = 0;            // not zero: stands somewhere in (batch element 0, head 1), whose results are left out
  bool beyond_nan = false;  // NaN beyond the lengths
};

struct CudaInputs {
  CudaInputs(const Bench& bench, const CudaCase& c)
      : x(bench, c.s), options{on(bench.device, c.mask), test_dropout(c.dropout), 0} {
    if (c.bad != 0) change(bench, x.k, [&](float* data) { data[(3 * c.s.H + 1) * c.s.D + c.s.D / 2] = c.bad; });
    for (const int operand : {0, 1, 2, 3}) {
      if (!c.beyond_nan) break;
      const Tensor& lengths = operand % 3 == 0 ? c.mask.query_lengths : c.mask.key_lengths;
      const int64_t rows = x[operand].size(1), row = x[operand].size(2) * x[operand].size(3);
      change(bench, x[operand], [&](float* data) {
        for (int64_t b = 0; b < c.s.B; ++b)
          std::fill(data + (b * rows + lengths.data<int32_t>()[b]) * row, data + (b + 1) * rows * row, NAN);
      });
    }
  }
  LinearAttentionResult attend() const { return linear_attention(x.q, x.k, x.v, options); }

  BenchOperands x;
  AttentionOptions options;
};

Results attend_linearly(const Bench& bench, const CudaCase& c) {
  const CudaInputs in(bench, c);
  const LinearAttentionResult made = in.attend(), saved = CudaInputs(bench.on_cpu(), c).attend();
  const AttentionGradient g = linear_attention_backward(
      in.x.q, in.x.k, in.x.v, in.options, {bench.place(saved.out), saved.denominators.to(bench.device)}, in.x.dout);
  Results results{{"out", made.out}, {"denominators", made.denominators}, {"dq", g.dq}, {"dk", g.dk}, {"dv", g.dv}};
  return c.bad != 0 ? without_head_1(results) : results;
}

}  // namespace

PARITY("linear_attention") {
  const auto add = [&](const CudaCase& c) {
    cases.add(
        concat("linear_attention ", c.s, c.mask.key_lengths.defined() ? " lengths" : "", c.mask.causal ? " causal" : "",
               " dropout ", c.dropout, " bad ", double(c.bad), c.beyond_nan ? " NaN beyond the lengths" : ""),
        [=](const Bench& bench) { return attend_linearly(bench, c); });
  };
  // None, one and a few of everything; one more and one less than tiles have; several chunks of one side alone; more
  // chunks than combine_sums loads at a time.
  for (const HeadSizes& s : {HeadSizes{0, 2, 3, 3, 2, 2},
                             {2, 0, 3, 3, 2, 2},
                             {2, 2, 0, 3, 2, 2},
                             {2, 2, 3, 0, 2, 2},
                             {2, 2, 3, 4, 0, 2},
                             {2, 2, 3, 4, 2, 0},
                             {1, 1, 1, 1, 1, 1},
                             {2, 3, 31, 17, 3, 5},
                             {1, 2, 67, 131, 5, 40},
                             {1, 1, 64, 128, 32, 64},
                             {1, 1, 200, 3, 8, 4},
                             {1, 1, 3, 200, 4, 8},
                             {1, 1, 65, 63, 68, 132},
                             {1, 1, 70, 70, 130, 66},
                             {1, 1, 600, 590, 4, 4}})
    for (const bool causal : {false, true}) add({s, {{}, {}, {}, causal}});
  const HeadSizes s{4, 2, 70, 133, 8, 12};
  for (const auto& [what, mask] : every_linear_mask(s))
    for (const double dropout : {0.0, 0.3, 1.0}) add({s, mask, dropout});
  for (const bool causal : {false, true}) {
    const HeadSizes one_head{4, 1, 70, 133, 8, 12};
    add({one_head, {some_lengths(4, 50), some_lengths(4, 100), {}, causal}, 0.2, 0, true});
    for (const float bad : {float(NAN), float(INFINITY)}) add({{2, 2, 40, 70, 8, 8}, {{}, {}, {}, causal}, 0, bad});
  }
}

#endif
