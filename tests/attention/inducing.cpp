// The parameters of inducing-I, which the tests of all variants do not cover.
#include "nn/attention/attention.h"
#include "tests/ops/ops_test.h"

TEST_CASE("inducing attention draws its points once, and says so if it has none or others", "[attention]") {
  const auto attention = make_attention("inducing-4");
  const auto run = [&](int64_t heads, int64_t size) {
    const Variable x(random_tensor({1, 3, heads, size}, DType::float32));
    return (*attention)(x, x, x, {}, {}).value();
  };
  CHECK_ERROR(run(2, 3), "attention 'inducing-4' has no points yet: initialize() draws them");
  Generator generator(1);
  attention->initialize(2, 3, generator);
  CHECK(run(2, 3).dtype() == DType::float32);
  CHECK_ERROR(run(3, 3), "attention 'inducing-4': points of shape [2, 4, 3] do not fit q of shape [1, 3, 3, 3]");
  CHECK_ERROR(run(2, 5), "attention 'inducing-4': points of shape [2, 4, 3] do not fit q of shape [1, 3, 2, 5]");
  CHECK_THROWS_AS(make_attention("inducing-2147483647")->initialize(2, 1, generator), UsageError);
}
