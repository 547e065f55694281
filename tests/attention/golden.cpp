// Full attention against PyTorch's (tests/golden/make_golden.py).
#include "tests/golden/golden.h"

#include "tests/ops/ops_test.h"

static AttentionOptions options_of(const Golden& golden, const std::string& name) {
  AttentionOptions options;
  if (golden.has(name + "/lengths")) options.mask.key_lengths = golden.tensor(name + "/lengths", DType::int32);
  if (golden.has(name + "/allowed")) options.mask.allowed = golden.tensor(name + "/allowed", DType::boolean);
  options.mask.causal = golden.has(name + "/causal");
  if (golden.has(name + "/scale")) options.scale = golden.values(name + "/scale")[0];
  return options;
}

TEST_CASE("full attention and its gradients agree with PyTorch", "[attention][golden]") {
  const Golden golden("attention.txt");
  const auto cases = golden.cases_with("q");
  REQUIRE(cases.size() >= 11);
  for (const auto& name : cases) {
    INFO(name);
    const Variable q(golden.tensor(name + "/q"), true), k(golden.tensor(name + "/k"), true),
        v(golden.tensor(name + "/v"), true);
    const Variable out = attention(q, k, v, options_of(golden, name));
    backward(out, golden.tensor(name + "/dout"));
    const auto off = [&](const Tensor& x, const char* part) {
      CHECK(x.shape() == golden.shape(name + part));
      return difference(x, golden.values(name + part));
    };
    CHECK(off(out.value(), "/out") <= tolerance::golden);
    CHECK(off(q.grad(), "/dq") <= tolerance::golden);
    CHECK(off(k.grad(), "/dk") <= tolerance::golden);
    CHECK(off(v.grad(), "/dv") <= tolerance::golden);
  }
}
