#include "autograd/tape.h"

#include <pthread.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "nn/io/file.h"
#include "tests/ops/ops_test.h"

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

static Variable leaf(const std::vector<double>& values, const Shape& shape) {
  return Variable(Tensor::from(values, shape), true);
}
static std::vector<double> gradient(const Variable& x) { return x.grad().to_vector<double>(); }

TEST_CASE("a variable used several times gets the sum of its gradients", "[tape]") {
  const Variable x = leaf({2, 3}, {2});
  backward(sum(x * x * x + x));  // 3 x^2 + 1
  CHECK(gradient(x) == std::vector<double>{13, 28});
}

TEST_CASE("gradients of several backward passes add up until they are cleared", "[tape]") {
  Variable x = leaf({2}, {1});
  backward(square(x));
  const Tensor first = x.grad();
  backward(square(x));
  CHECK(gradient(x) == std::vector<double>{8});
  x.clear_grad();
  CHECK_FALSE(x.grad().defined());
  backward(square(x));
  CHECK(gradient(x) == std::vector<double>{4});
}

TEST_CASE("accumulating never changes a gradient that another owner holds", "[tape]") {
  const Variable x = leaf({2, 3}, {2}), y = leaf({5, 7}, {2});
  const Tensor seed = Tensor::from<double>({10, 20}, {2});
  backward(x + y, seed);  // both gradients are the seed
  backward(x * y, seed);
  const Variable z = leaf({3, 4}, {2}), squares = square(z);
  backward(squares + squares, seed);  // so are the two summands of the gradient of squares
  CHECK(seed.to_vector<double>() == std::vector<double>{10, 20});
  CHECK(gradient(x) == std::vector<double>{10 + 50, 20 + 140});
  CHECK(gradient(y) == std::vector<double>{10 + 20, 20 + 60});
  CHECK(gradient(z) == std::vector<double>{2 * 10 * 6, 2 * 20 * 8});
}

TEST_CASE("adding to a gradient that two results share does not change the other's", "[tape]") {
  // The gradients of a and b, which are no leaves, are one tensor from a + b. Then 5 a adds to that of a, before b uses
  // its own.
  const auto check_order = [](auto&& loss) {
    const Variable x = leaf({1}, {1});
    backward(loss(2.0 * x, 3.0 * x));
    CHECK(gradient(x) == std::vector<double>{2 * (1 + 5) + 3});
  };
  check_order([](const Variable& a, const Variable& b) { return (a + b) + 5.0 * a; });
  check_order([](const Variable& a, const Variable& b) { return (b + a) + 5.0 * a; });
  check_order([](const Variable& a, const Variable& b) { return 5.0 * a + (a + b); });
  check_order([](const Variable& a, const Variable& b) { return 5.0 * a + (b + a); });
}

TEST_CASE("a diamond of operations sums the gradients of both paths", "[tape]") {
  const Variable x = leaf({3}, {1});
  const Variable a = square(x), b = 2.0 * a, c = exp(0.0 * a);
  backward(b * c + a);  // 2 x^2 + x^2
  CHECK(gradient(x) == std::vector<double>{18});
}

TEST_CASE("gradients stop at constants and at detached variables", "[tape]") {
  const Variable x = leaf({2}, {1}), constant(Tensor::from<double>({5}, {1}));
  const Variable y = square(x).detach() * x * constant;
  backward(y);
  CHECK(gradient(x) == std::vector<double>{20});
  CHECK_FALSE(constant.grad().defined());
  CHECK_FALSE(constant.requires_grad());
  CHECK_FALSE(square(constant).requires_grad());
  CHECK_FALSE(square(x).detach().requires_grad());
  CHECK(y.requires_grad());
}

TEST_CASE("a variable as a tensor shares its numbers, outlives it, and is a constant", "[tape]") {
  const Variable x = leaf({2, 3}, {2});
  const Tensor& square_of_x = square(x);  // of a temporary variable
  CHECK(square_of_x.to_vector<double>() == std::vector<double>{4, 9});
  CHECK((x.data<double>() == Tensor(x).data<double>() && x.elements() == 2));
  CHECK_FALSE(Variable(square_of_x).requires_grad());
  CHECK_FALSE(Tensor(Variable()).defined());
  backward(sum(square_of_x * x));
  CHECK(gradient(x) == std::vector<double>{4, 9});
}

TEST_CASE("only leaves keep gradients", "[tape]") {
  const Variable x = leaf({2}, {1});
  const Variable y = square(x);
  backward(3.0 * y);
  CHECK(gradient(x) == std::vector<double>{12});
  CHECK_FALSE(y.grad().defined());
}

TEST_CASE("while NoGrad lives, its thread records nothing", "[tape]") {
  const Variable x = leaf({2}, {1});
  CHECK(recording());
  {
    const NoGrad outer;
    CHECK_FALSE(recording());
    {
      const NoGrad inner;
      CHECK_FALSE(square(x).requires_grad());
      const EnableGrad enabled;
      CHECK(square(x).requires_grad());
    }
    CHECK_FALSE(recording());
    CHECK_FALSE(square(x).requires_grad());
  }
  CHECK(recording());
  CHECK(square(x).requires_grad());
}

TEST_CASE("a backward pass records nothing, and recording continues after one that failed", "[tape]") {
  const Variable x = leaf({2}, {1});
  bool recorded = true;
  backward(record("probe", x.value(), {x}, [&](const Tensor& g) -> Gradients {
    recorded = recording();
    return {g};
  }));
  CHECK_FALSE(recorded);
  const Variable failing = record("failing", x.value(), {x}, [](const Tensor&) -> Gradients { throw Error("no"); });
  CHECK_THROWS_WITH(backward(failing), "no");
  CHECK(recording());
}

TEST_CASE("a gradient may record, and go back through what it recorded", "[tape]") {
  const Variable x = leaf({2}, {1}), weight = leaf({5}, {1});
  const Tensor saved = Tensor::from(std::vector<double>{7}, {1});
  const auto inner = [&](const Tensor& g) -> Gradients {
    const EnableGrad enabled;
    const Variable again(x.value(), true);
    backward(square(again) * weight, g);
    return {again.grad()};
  };
  backward(record("recomputed", square(x).value() * weight.value(), {x}, inner));
  CHECK(gradient(x) == std::vector<double>{20});
  CHECK(gradient(weight) == std::vector<double>{4});

  SavedTensor stale(saved);
  Tensor(saved).mutable_data<double>()[0] = 8;
  CHECK_THROWS_WITH(backward(record("outer", x.value(), {x},
                                    [&](const Tensor& g) -> Gradients {
                                      inner(g);
                                      return {stale()};
                                    })),
                    ContainsSubstring("outer: a tensor of shape"));
}

TEST_CASE("a second backward pass through a graph is an error that says what to do", "[tape]") {
  const Variable x = leaf({2}, {1});
  const Variable y = square(x);
  backward(y);
  CHECK_THROWS_WITH(backward(y),
                    StartsWith("backward: the graph was unwound by an earlier backward pass (at square)") &&
                        ContainsSubstring("run the forward pass again"));
  CHECK(gradient(x) == std::vector<double>{4});  // unchanged
  // Also if only a part of the graph is shared.
  CHECK_THROWS_WITH(backward(exp(y)), ContainsSubstring("unwound"));
}

TEST_CASE("changing a tensor before its backward pass is an error that names the operation", "[tape]") {
  Variable x = leaf({2, 3}, {2});
  const Variable y = sum(exp(x));
  x.mutable_value().mutable_data<double>()[0] = 5;
  CHECK_THROWS_WITH(backward(y),
                    "exp: a tensor of shape [2] that its gradient needs was changed after the forward pass");
  // A change through a view of the same storage counts.
  const Variable z = sum(square(x));
  Tensor view = x.value().slice(0, 1).reshape({});
  view.mutable_data<double>()[0] = 6;
  CHECK_THROWS_WITH(backward(z), StartsWith("square: a tensor of shape [2]"));
  // An operation that does not use the values accepts the change.
  const Variable w = sum(2.0 * x);
  x.mutable_value().mutable_data<double>()[0] = 5;
  CHECK_NOTHROW(backward(w));
  CHECK(gradient(x) == std::vector<double>{2, 2});
}

TEST_CASE("top keys and clusters from or for an operation may not change before its gradient", "[tape]") {
  const Variable x(random_tensor({1, 4, 1, 3}), true);
  const auto changed = [](Tensor tensor) { tensor.mutable_raw(); };
  const Clusters pairs = clusters_of(int32s({0, 1, 0, 1}).reshape({1, 1, 4}), 2);
  for (const bool of_mass : {false, true}) {
    const auto [out, chosen, mass] = improved_clustered(x, x, x, pairs, 2);
    changed(of_mass ? mass : chosen);
    CHECK_THROWS_WITH(backward(sum(out)), ContainsSubstring("that its gradient needs was changed"));
  }
  for (const int which : {0, 1}) {
    const Clusters clusters = clusters_of(int32s({0, 1, 0, 1}).reshape({1, 1, 4}), 2);
    const Variable y = topk_attention(x, x, x, clusters, Tensor::zeros({1, 1, 2, 1}, DType::int32));
    changed(which == 0 ? clusters.permutation() : clusters.offsets());
    CHECK_THROWS_WITH(backward(sum(y)), "topk_attention: the clusters were changed after they were made");
  }
}

TEST_CASE("a gradient repeats the draws of its forward pass, even after the generator has advanced", "[tape]") {
  const Tensor numbers = random_tensor({1, 8, 2, 3});
  const Clusters clusters = clusters_of(random_integers({1, 2, 8}, 0, 1), 2);
  const Tensor topk = int32s({0, 5, 1, 6, 2, 7, 3, 4}).reshape({1, 2, 2, 2});
  const auto gradient_of = [&](auto&& operation, uint64_t forward_step, uint64_t backward_step) {
    const Variable x(numbers, true);
    Generator generator(1);
    generator.set_step(forward_step);
    const Variable y = operation(x, AttentionOptions{{}, {0.5, generator.draw(0, Purpose::test)}, 0});
    generator.set_step(backward_step);
    backward(sum(square(y)));
    return gradient(x);
  };
  using Operation = std::function<Variable(const Variable&, const AttentionOptions&)>;
  const std::map<std::string, Operation> operations = {
      {"dropout", [](const auto& x, const auto& o) { return dropout(x, o.dropout.p, o.dropout.draw); }},
      {"dropout_add", [](const auto& x, const auto& o) { return dropout_add(x, o.dropout.p, o.dropout.draw, x); }},
      {"attention", [](const auto& x, const auto& o) { return attention(x, x, x, o); }},
      {"joined_attention",
       [&](const auto& x, const auto& o) {
         AttentionOptions window = o;
         window.mask.pattern = {1, 0, false};
         return joined_attention({{x, x, x, window}, {x, x, x, o, 2}});
       }},
      {"chunk_attention", [&](const auto& x, const auto& o) { return chunk_attention(x, x, x, clusters, {}, o); }},
      {"improved_clustered",
       [&](const auto& x, const auto& o) { return improved_clustered(x, x, x, clusters, 2, o).out; }},
      {"its rest", [&](const auto& x, const auto& o) { return improved_clustered(x, x, x, clusters, 2, {}, o).out; }},
      {"topk_attention", [&](const auto& x, const auto& o) { return topk_attention(x, x, x, clusters, topk, o); }},
  };
  for (const auto& [name, operation] : operations) {
    INFO(name);
    const auto expected = gradient_of(operation, 4, 4);
    CHECK(gradient_of(operation, 4, 5) == expected);
    CHECK(gradient_of(operation, 5, 5) != expected);
  }
}

TEST_CASE("a leaf owns its gradient, which may be changed in place", "[tape]") {
  const Variable a(Tensor::full({2}, 1), true), b(Tensor::full({2}, 1), true);
  const Tensor seed = Tensor::full({2}, 1);
  backward(a + b, seed);
  Variable(a).mutable_grad().mutable_data<float>()[0] = 5;
  CHECK(b.grad().to_vector<float>() == std::vector<float>{1, 1});
  const Variable c(Tensor::zeros({2}), true);
  backward(c, seed);
  Variable(c).mutable_grad().mutable_data<float>()[0] = 5;
  CHECK(seed.to_vector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("a backward pass begins with 1 or with a given gradient", "[tape]") {
  const Variable x = leaf({2, 3}, {2});
  backward(square(x), Tensor::from<double>({10, 100}, {2}));
  CHECK(gradient(x) == std::vector<double>{40, 600});
  CHECK_ERROR(backward(square(x)), "backward: expected a scalar, got shape [2]; pass the gradient of this output");
  CHECK_ERROR(backward(square(x), Tensor({3}, DType::float64)),
              "backward: expected its gradient of shape [2], got [3]");
  CHECK_ERROR(backward(square(x), Tensor({2})), "backward: its gradient is float32, the output is float64");
  CHECK_ERROR(backward(square(x), Tensor()), "backward: its gradient was never given a value");
  CHECK_ERROR(backward(Variable()), "variable: this variable was never given a value");
}

TEST_CASE("a backward pass from a leaf adds to its gradient, and from a constant is an error", "[tape]") {
  const Variable x = leaf({2}, {1}), constant(Tensor::from<double>({2}, {1}));
  backward(x);
  CHECK(gradient(x) == std::vector<double>{1});
  CHECK_ERROR(backward(constant), "backward: this output depends on no variable that requires a gradient");
  CHECK_ERROR(backward(sum(constant)), "backward: this output depends on no variable that requires a gradient");
}

TEST_CASE("an undefined gradient stands for zeros", "[tape]") {
  const Variable x = leaf({1}, {1}), y = leaf({1}, {1});
  backward(record("half", x.value(), {x, y}, [](const Tensor& g) -> Gradients { return {g, Tensor()}; }));
  CHECK(gradient(x) == std::vector<double>{1});
  CHECK_FALSE(y.grad().defined());
}

TEST_CASE("an input that was not given has no gradient", "[tape]") {
  const Variable x = leaf({1}, {1}), none;
  const Variable y = record("with", x.value(), {none, x}, [](const Tensor& g) -> Gradients { return {g, g}; });
  CHECK(graph_to_string(y) == "#1 with [1] <- none, leaf [1]\n");
  backward(y);
  CHECK(gradient(x) == std::vector<double>{1});
}

TEST_CASE("an operation that returns too few gradients or a wrong one is an error", "[tape]") {
  const Variable x = leaf({1}, {1});
  CHECK_ERROR(backward(record("short", x.value(), {x, x}, [](const Tensor& g) -> Gradients { return {g}; })),
              "backward: short gave 1 gradients for 2 inputs");
  CHECK_THROWS_AS(backward(record("wrong", x.value(), {leaf({1, 2}, {2})},
                                  [](const Tensor&) -> Gradients { return {Tensor::zeros({3}, DType::float64)}; })),
                  Error);
  for (const Tensor& other : {Tensor({1}), elsewhere({0}, DType::float64)})
    CHECK_ERROR(backward(record("other", x.value(), {x}, [&](const Tensor&) -> Gradients { return {other}; })),
                "backward: other gave a gradient in " + std::string(name(other.dtype())));
}

TEST_CASE("a chain of 100,000 operations does not overflow the stack, forward, backward or when freed", "[tape]") {
  const OneThread one_thread;
  // The thread's stack is too small for a recursion with a few bytes per node.
  pthread_attr_t small;
  REQUIRE(pthread_attr_init(&small) == 0);
  REQUIRE(pthread_attr_setstacksize(&small, 1 << 20) == 0);
  static double value, slope;
  pthread_t thread;
  const auto work = [](void*) -> void* {
    const Variable x = leaf({1}, {1});
    Variable y = x, unused = x;
    for (int i = 0; i < 100'000; ++i) y = y + 1.0, unused = unused * unused;
    backward(y);
    value = y.value().item(), slope = x.grad().item();
    return nullptr;  // frees both, the second without a backward pass
  };
  REQUIRE(pthread_create(&thread, &small, work, nullptr) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  CHECK(value == 100'001);
  CHECK(slope == 1);
}

TEST_CASE("a graph with many paths is walked once", "[tape]") {
  const OneThread one_thread;
  const Variable x = leaf({1}, {1});
  Variable y = x;
  for (int i = 0; i < 60; ++i) y = y + y;  // 2^60 paths
  backward(y);
  CHECK(x.grad().item() == 0x1p60);
}

TEST_CASE("a backward pass frees the captures of each operation after its gradient", "[tape]") {
  const OneThread one_thread;
  const int64_t n = 10'000, bytes = n * 8, steps = 50;
  const Variable x(Tensor::full({n}, 1e-3, DType::float64), true);
  Variable y = x;
  const int64_t before = memory(Device::cpu).live;
  for (int i = 0; i < steps; ++i) y = exp(y) + -1.0;  // exp saves a tensor for its gradient
  const Variable loss = sum(y);
  y = Variable();
  CHECK(memory(Device::cpu).live - before >= (steps - 1) * bytes);
  reset_peak_memory(Device::cpu);
  const int64_t kept = memory(Device::cpu).live;
  backward(loss);
  // At the end: the gradient of x and the graph's scalars. Before: a few gradients besides what is not freed yet.
  CHECK(memory(Device::cpu).live - before <= bytes + 100);
  CHECK(memory(Device::cpu).peak <= kept + 4 * bytes);
}

TEST_CASE("a graph is freed with its last result", "[tape]") {
  const int64_t before = memory(Device::cpu).live;
  {
    const Variable x = leaf({1, 2}, {2});
    const Variable y = exp(x) * x;
    CHECK(memory(Device::cpu).live > before);
  }
  CHECK(memory(Device::cpu).live == before);
}

TEST_CASE("a graph is printed with one line per operation", "[tape]") {
  const Variable x = leaf({1, 2, 3, 4}, {2, 2}), constant(Tensor::from<double>({1, 2}, {2}));
  const Variable y = sum(matmul(x, exp(x)) * constant);
  CHECK(graph_to_string(y) ==
        "#1 exp [2, 2] <- leaf [2, 2]\n"
        "#2 matmul [2, 2] <- leaf [2, 2], #1\n"
        "#3 multiply [2, 2] <- #2, constant [2]\n"
        "#4 sum [] <- #3\n");
  CHECK(graph_to_string(x) == "leaf [2, 2]\n");
}

TEST_CASE("autograd/TAPE.md shows the graph and the gradients of its loss", "[tape]") {
  const std::string page = read_file(CAIRN_SOURCE_DIR "/autograd/TAPE.md");
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {3, 2}));
  const Variable w = leaf({1, -1, 0, 1}, {2, 2}), b = leaf({1, 1}, {2});
  const Variable h = relu(matmul(x, w) + b);
  const Variable loss = sum(h * softmax(h));
  CHECK_THAT(page, ContainsSubstring("```\n" + graph_to_string(loss) + "```\n"));
  backward(loss);
  char text[100];
  const auto dw = gradient(w), db = gradient(b);
  std::snprintf(text, sizeof text, "[[%.3g, %.3g], [%.3g, %.3g]] and `b.grad()` [%.3g, %.3g]", dw[0], dw[1], dw[2],
                dw[3], db[0], db[1]);
  CHECK_THAT(page, ContainsSubstring(text));
}

TEST_CASE("a variable needs a value, and a floating-point value for a gradient", "[tape]") {
  CHECK_ERROR(Variable(Tensor(), true), "variable: its tensor was never given a value");
  CHECK_ERROR(Variable(Tensor({2}, DType::int32), true), "variable: a int32 tensor cannot require a gradient");
  CHECK_FALSE(Variable().defined());
  CHECK_FALSE(Variable(Tensor()).defined());
  CHECK_FALSE(Variable().value().defined());
  static_assert(std::is_same_v<decltype(Variable().value()), Tensor>);  // no reference into what a temporary holds
  CHECK_ERROR(Variable().shape(), "variable: this variable was never given a value");
  const Variable x = leaf({1}, {1}), copy = x;
  backward(square(x));
  CHECK(copy.grad().defined());  // copies are the same variable
}

TEST_CASE("backward with a weight gives the gradient of the weighted loss", "[tape]") {
  const Variable x = leaf({2, 3}, {2});
  backward(sum(square(x)), 0.25);
  CHECK(x.grad().to_vector<double>() == std::vector<double>{1, 1.5});
}
