// The list of parity.h is run here.
#include "tests/cuda/parity.h"

#include "tests/catch.h"

using namespace cairn;
using namespace cairn::test;

namespace {

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto add :
       {add_elementwise, add_reduce, add_rows, add_bias_activation, add_dropout, add_layer_norm, add_cross_entropy,
        add_optimizers, add_matrix, add_groups, add_attention, add_topk, add_linear, add_lsh})
    add(cases);
  return cases;
}

void check_same(const Results& a, const Results& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("result " << i);
    REQUIRE(a[i].shape() == b[i].shape());
    const bool whole = !is_floating(a[i].dtype());
    const auto values = [](const Tensor& x) { return x.to(Device::cpu).cast(DType::float64).to_vector<double>(); };
    CHECK(difference(values(a[i]), values(b[i])) <= (whole ? 0 : tolerance));
  }
}

}  // namespace

TEST_CASE("every operation on CUDA computes what it computes on the CPU", "[gpu][parity][float32]") {
  for (const Case& test : all_cases()) {
    INFO(test.name);
    check_same(test.run({Device::cuda, DType::float32}), test.run({Device::cpu, DType::float32}),
               test.exact ? 0 : test.tolerance);
  }
}

TEST_CASE("every operation on CUDA computes in bfloat16 what the CPU does in float32", "[gpu][parity][bfloat16]") {
  for (const Case& test : all_cases()) {
    INFO(test.name);
    check_same(test.run({Device::cuda, DType::bfloat16, true}), test.run({Device::cpu, DType::float32, true}),
               tolerance::bfloat16);
  }
}
