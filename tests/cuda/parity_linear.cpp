// Cases of parity.h: linear attention.
#include <algorithm>
#include <cmath>

#include "core/attention_ops.h"
#include "tests/cuda/parity.h"

namespace cairn::test {
namespace {

struct LinearCase {
  int64_t B, H, N, S, D, M;
  bool lengths = false, causal = false;
  double dropout = 0;
  float bad = 0;            // not zero: stands somewhere in (batch element 0, head 1), whose results are left out
  bool beyond_nan = false;  // NaN beyond the lengths
};

struct Inputs {
  Tensor q, k, v, dout;
  AttentionOptions options;

  Inputs(const Bench& bench, const LinearCase& c)
      : q(bench.normal({c.B, c.N, c.H, c.D}, 1)),
        k(bench.normal({c.B, c.S, c.H, c.D}, 2)),
        v(bench.uniform({c.B, c.S, c.H, c.M}, -1, 1, 3)),
        dout(bench.uniform({c.B, c.N, c.H, c.M}, -1, 1, 4)) {
    options.mask.causal = c.causal;
    options.dropout = {c.dropout, Generator(7, bench.device).draw(3, Purpose::attention_dropout)};
    std::vector<int32_t> queries, keys;
    for (int64_t b = 0; b < c.B; ++b) {  // none, some, and all that there are
      queries.push_back(int32_t(c.N * ((b + 2) % 4) / 3));
      keys.push_back(int32_t(c.S * ((b + 1) % 3) / 2));
    }
    if (c.lengths) {
      options.mask.query_lengths = Tensor::from(queries, {c.B}).to(bench.device);
      options.mask.key_lengths = Tensor::from(keys, {c.B}).to(bench.device);
    }
    const auto change = [&](Tensor& x, auto&& f) {
      Tensor host = x.to(Device::cpu).cast(DType::float32);
      f(host.mutable_data<float>());
      x = bench.place(host);
    };
    if (c.beyond_nan)
      for (Tensor* x : {&q, &dout, &k, &v})
        change(*x, [&](float* data) {
          const int64_t rows = x->size(1), row = x->size(2) * x->size(3);
          for (int64_t b = 0; b < c.B; ++b)
            std::fill(data + (b * rows + (x == &q || x == &dout ? queries : keys)[size_t(b)]) * row,
                      data + (b + 1) * rows * row, NAN);
        });
    if (c.bad != 0) change(k, [&](float* data) { data[(3 * c.H + 1) * c.D + c.D / 2] = c.bad; });
  }
  LinearAttentionResult attend() const { return linear_attention(q, k, v, options); }
};

Results attend_linearly(const Bench& bench, const LinearCase& c) {
  const Inputs in(bench, c);
  const LinearAttentionResult made = in.attend(), saved = Inputs(bench.on_cpu(), c).attend();
  const AttentionGradient g = linear_attention_backward(
      in.q, in.k, in.v, in.options, {bench.place(saved.out), saved.denominators.to(bench.device)}, in.dout);
  Results results{{"out", made.out}, {"denominators", made.denominators}, {"dq", g.dq}, {"dk", g.dk}, {"dv", g.dv}};
  if (c.bad != 0)
    for (auto& [name, result] : results) {
      result = result.to(Device::cpu).cast(DType::float32);
      const int64_t cols = result.rank() == 4 ? result.size(3) : c.N;  // denominators are [B, H, N]
      for (int64_t i = 0; i < result.elements() / c.B; ++i)
        if (i / cols % c.H == 1) result.mutable_data<float>()[i] = 0;
    }
  return results;
}

}  // namespace

void add_linear_attention(std::vector<Case>& cases) {
  const auto add = [&](const LinearCase& c) {
    const std::string name = concat("linear_attention B ", c.B, " H ", c.H, " N ", c.N, " S ", c.S, " D ", c.D, " M ",
                                    c.M, c.lengths ? " lengths" : "", c.causal ? " causal" : "", " dropout ", c.dropout,
                                    " bad ", c.bad, c.beyond_nan ? " NaN beyond the lengths" : "");
    cases.push_back({name, [=](const Bench& bench) { return attend_linearly(bench, c); }});
  };
  for (const bool causal : {false, true}) {
    // None, one and a few of everything; one more and one less than tiles have; several chunks of one side alone.
    for (const LinearCase& c : std::vector<LinearCase>{{0, 2, 3, 3, 2, 2},
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
                                                       {1, 1, 70, 70, 130, 66}}) {
      LinearCase with = c;
      with.causal = causal;
      add(with);
    }
    for (const bool lengths : {false, true})
      for (const double dropout : {0.0, 0.3, 1.0}) add({4, 2, 70, 133, 8, 12, lengths, causal, dropout});
    add({1, 1, 600, 590, 4, 4, false, causal});  // more chunks than combine_sums loads at a time
    add({4, 1, 70, 133, 8, 12, true, causal, 0.2, 0, true});
    for (const float bad : {float(NAN), float(INFINITY)}) add({2, 2, 40, 70, 8, 8, false, causal, 0, bad});
  }
}

}  // namespace cairn::test
