// What the walk over all variants does not see of inducing-I: its parameters.
#include "nn/transformer.h"
#include "tests/ops/ops_test.h"

static std::unique_ptr<Attention> with_points(const char* spec, int64_t heads, int64_t size) {
  auto attention = make_attention(spec);
  Generator generator(3);
  attention->initialize(heads, size, generator);
  return attention;
}

TEST_CASE("inducing attention to one key gives its value", "[attention]") {
  const Tensor q = random_tensor({2, 5, 3, 4}, DType::float64, 1), k = random_tensor({2, 1, 3, 4}, DType::float64, 2),
               v = random_tensor({2, 1, 3, 6}, DType::float64, 3);
  for (const char* spec : {"inducing-1", "inducing-4", "inducing-50"}) {
    INFO(spec);
    const Tensor out = (*with_points(spec, 3, 4))(Variable(q), Variable(k), Variable(v), {}, {}).value();
    CHECK(difference(out, broadcast_to(Variable(v), {2, 5, 3, 6}).value()) <= tolerance::float64);
  }
}

TEST_CASE("inducing attention without keys is zero, and so are its gradients", "[attention]") {
  const Variable q(random_tensor({2, 5, 3, 4}), true), k(random_tensor({2, 6, 3, 4}), true),
      v(random_tensor({2, 6, 3, 4}), true);
  AttentionMask mask;
  mask.key_lengths = int32s({0, 0});
  const auto attention = with_points("inducing-4", 3, 4);
  const Variable out = (*attention)(q, k, v, mask, {});
  CHECK(difference(out.value(), Tensor::zeros(q.shape(), DType::float64)) == 0);
  backward(out, random_tensor(out.shape()));
  for (const Variable& x : {q, k, v, parameters(*attention)[0]})
    CHECK(difference(x.grad(), Tensor::zeros(x.shape(), DType::float64)) == 0);
}

TEST_CASE("inducing attention draws its points once, and says so if it has none or others", "[attention]") {
  const auto attention = make_attention("inducing-4");
  const auto run = [&](int64_t heads, int64_t size) {
    const Variable x(random_tensor({1, 3, heads, size}, DType::float32));
    return (*attention)(x, x, x, {}, {}).value();
  };
  CHECK(parameter_count(*attention) == 0);
  CHECK_ERROR(run(2, 3), "attention 'inducing-4' has no points yet: initialize() draws them");
  Generator generator(1);
  attention->initialize(2, 3, generator);
  CHECK(parameter_count(*attention) == 2 * 4 * 3);
  CHECK(named_parameters(*attention)[0].first == "points");
  CHECK(run(2, 3).dtype() == DType::float32);
  CHECK_ERROR(run(3, 3), "attention 'inducing-4': points of shape [2, 4, 3] do not fit q of shape [1, 3, 3, 3]");
  CHECK_ERROR(run(2, 5), "attention 'inducing-4': points of shape [2, 4, 3] do not fit q of shape [1, 3, 2, 5]");
  CHECK_THROWS_AS(make_attention("inducing-2147483647")->initialize(2, 1, generator), UsageError);
}

TEST_CASE("every layer with inducing attention has points of its own, and learns them", "[attention]") {
  Generator generator(1);
  TransformerOptions options;
  options.layers = 2, options.heads = 2, options.head_size = 4, options.feed_forward = 8;
  options.attention = "inducing-5";
  Encoder encoder(options, generator);
  std::vector<Variable> points;
  for (const auto& [name, parameter] : named_parameters(encoder))
    if (name == concat("layers.", points.size(), ".attention.attention.points")) points.push_back(parameter);
  REQUIRE(points.size() == 2);
  CHECK(points[0].shape() == Shape{2, 5, 4});
  CHECK(difference(points[0].value(), points[1].value()) > 0.1);
  const Variable x(random_tensor({2, 7, 8}, DType::float32));
  backward(sum(square(encoder(x, {}, {false, &generator}))));
  for (const Variable& p : points) CHECK(difference(p.grad(), Tensor::zeros(p.shape())) > 0);
}
