// What clustered-keys promises beside its reference: nothing leaks from later positions, and it is full attention where
// nothing is left to approximate.
#include <cstdlib>

#include "nn/attention/observe.h"
#include "tests/ops/attention_test.h"

namespace {

const std::vector<std::string> specs{"clustered-keys-3:block=8", "clustered-keys-3:block=8,top=2"};

struct Run {
  Tensor out;
  AttentionChoices made;

  Run(const std::string& spec, const Operands& x, const AttentionMask& mask) {
    const Generator generator(5);
    out = (*make_attention(spec))(x.q, x.k, x.v, mask, {{.generator = &generator}, &made}).value();
  }
};

Operands first(const Operands& x, int64_t n) {
  Operands result = x;
  for (Tensor* tensor : {&result.q, &result.k, &result.v}) *tensor = slice(*tensor, 1, 0, n);
  return result;
}

}  // namespace

TEST_CASE("causal clustered keys: what comes later changes no bit", "[attention]") {
  for (const std::string& spec : specs)
    for (const int64_t N : {7, 8, 17, 40}) {
      INFO(spec << ", N = " << N);
      const Operands x({2, 2, N, N, 4, 4}, DType::float32), other({2, 2, N, N, 4, 4}, DType::float32, 2);
      const Tensor out = Run(spec, x, {.causal = true}).out;
      for (int64_t n = 1; n < N; n += 3) {
        Operands changed = first(x, n);
        for (Tensor Operands::*which : {&Operands::q, &Operands::k, &Operands::v})
          changed.*which = concat({changed.*which, slice(other.*which, 1, n, N)}, 1);
        CHECK(same_bits(slice(Run(spec, changed, {.causal = true}).out, 1, 0, n), slice(out, 1, 0, n)));
      }
    }
}

TEST_CASE("clustered keys: a block has the same labels in a longer sequence", "[attention]") {
  const Operands x({2, 2, 61, 61, 4, 4}, DType::float32);
  const Tensor all = Run(specs[0], x, {}).made.key_labels;
  for (const int64_t n : {24, 40, 56})
    CHECK(same_bits(Run(specs[0], first(x, n), {}).made.key_labels, slice(all, 2, 0, n)));
}

TEST_CASE("clustered keys are full attention if all clusters are taken, or each key is one", "[attention]") {
  const Operands x({2, 2, 61, 61, 4, 4}, DType::float64);
  for (const bool causal : {false, true})
    for (const std::string spec : {"clustered-keys-8:block=8", "clustered-keys-3:block=8,top=1000"}) {
      INFO(spec);
      const AttentionMask mask{.key_lengths = int32s({61, 50}), .causal = causal};
      CHECK(difference(Run(spec, x, mask).out, attention(x.q, x.k, x.v, {.mask = mask})) <= tolerance::float64);
      CHECK_THAT(full_attention_note(*make_attention(spec), 61, 61), Catch::Matchers::ContainsSubstring("full"));
    }
}

TEST_CASE("clustered keys: what is far weighs at most as much as with full attention", "[attention]") {
  const Operands x({1, 2, 61, 61, 4, 4}, DType::float64);
  const Generator generator(5);
  const AttentionContext context{{.generator = &generator}};
  const auto far_share = [&](const std::string& spec, int64_t i, int64_t h) {
    const Tensor weights = attention_weights(*make_attention(spec), x.q, x.k, {}, context);
    double far = 0;
    for (int64_t j = 0; j < 61; ++j)
      if (std::abs(i / 8 - j / 8) > 1) far += double(weights.data<float>()[(h * 61 + i) * 61 + j]);
    return far;
  };
  for (const std::string& spec : specs)
    for (int64_t i = 0; i < 61; i += 6) CHECK(far_share(spec, i, i % 2) <= far_share("full", i, i % 2) + 1e-6);
}

TEST_CASE("clustered keys refuse a block that is no power of two, or too small", "[attention]") {
  CHECK_ERROR(make_attention("clustered-keys-8:block=24"),
              "attention 'clustered-keys-8': option block: expected a power of two, at least the 8 clusters, got 24");
  CHECK_THROWS_AS(make_attention("clustered-keys-8:block=4"), UsageError);
  CHECK(make_attention("clustered-keys-100")->spec() == "clustered-keys-100");  // its blocks have 128 positions
}

TEST_CASE("clustered keys of 8192 tokens never hold a matrix of weights", "[attention]") {
  const Operands x({1, 1, 8192, 8192, 16, 16}, DType::float32);
  for (const std::string spec : {"clustered-keys-8", "clustered-keys-8:top=2"}) {
    const Variable q(x.q, true), k(x.k, true), v(x.v, true);
    const Generator generator(5);
    reset_peak_memory(Device::cpu);
    const int64_t before = memory(Device::cpu).live;
    backward((*make_attention(spec))(q, k, v, {.causal = true}, {{.generator = &generator}}), x.v);
    CHECK(memory(Device::cpu).peak - before < 40'000'000);  // a matrix of weights has 268 MB
  }
}
