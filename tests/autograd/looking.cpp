// Printed variables and graphs, and messages about errors in a backward pass.
#include <cmath>
#include <sstream>

#include "autograd/check_finite.h"
#include "autograd/tape.h"
#include "nn/layers.h"
#include "nn/optim/sgd.h"
#include "tests/ops/ops_test.h"

using Catch::Matchers::ContainsSubstring;

static std::string printed(const Variable& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST_CASE("a variable is printed with its operation", "[tape]") {
  const Variable x(Tensor::of<float>({1, 2}), true);
  const Variable loss = sum(square(x));
  CHECK(printed(x) == "[1. 2.] (float32 [2], cpu, leaf without a gradient)");
  CHECK(printed(loss) == "5. (float32 [], cpu, from sum)");
  backward(loss);
  CHECK(printed(x) == "[1. 2.] (float32 [2], cpu, leaf with a gradient)");
  CHECK(printed(x.detach()) == "[1. 2.] (float32 [2], cpu, constant)");
  CHECK(printed(Variable()) == "(no variable)");
}

TEST_CASE("a printed graph names its parameters", "[tape]") {
  Generator generator(1);
  Linear layer(3, 2, generator);
  const Variable y = layer(Variable(Tensor::zeros({4, 3})));
  CHECK_THAT(graph_to_string(y, named_parameters(layer)), ContainsSubstring("weight [2, 3], bias [2]"));
}

namespace {

struct Two : Module {
  Linear first, second;
  explicit Two(Generator& generator) : first(3, 3, generator), second(3, 3, generator) {}
  void fields(Fields& f) override {
    f("first", first);
    f("second", second);
  }
  Variable operator()(const Variable& x) const { return second(square(first(x))); }
};

}  // namespace

TEST_CASE("the first operation with a result that is not finite is named, with module and index", "[tape]") {
  Generator generator(1);
  Two model(generator);
  const Variable x(Tensor::full({2, 3}, 1));
  CHECK_ERROR(CheckFinite({{"bias", Variable()}}), "variable: this variable was never given a value");
  const CheckFinite finite(named_parameters(model));
  backward(sum(model(x)));
  SECTION("in the forward pass") {
    model.second.bias.mutable_value().mutable_data<float>()[1] = NAN;
    CHECK_ERROR(
        model(x),
        "linear, after second.bias: element [0, 1] is NaN in the result [2, 3]; its input 2 [3] was not finite: "
        "element [1] is NaN");
  }
  SECTION("but not on the way to a gradient") {
    const Variable w(Tensor::full({}, 1), true);
    const auto gradient = [](const Tensor& g) -> Gradients { return {(1 / (g * 1e30 * 1e30)).value()}; };
    CHECK_NOTHROW(backward(record("own", w.value(), {w}, gradient)));
  }
  SECTION("in the backward pass") {
    const Variable root = sqrt(model.first(x) * Variable(Tensor::zeros({})));  // its gradient at 0 is infinite
    CHECK_ERROR(backward(sum(root)),
                "gradient of sqrt, after first.bias: element [0, 0] is infinite in the gradient of input 0 [2, 3]");
  }
}

TEST_CASE("a parameter missing from fields() is an error in the first step", "[optim]") {
  struct Forgetful : Two {
    using Two::Two;
    void fields(Fields& f) override { f("first", first); }
  };
  Generator generator(1);
  Forgetful model(generator);
  Sgd optimizer(parameters(model), 0.1);
  const Variable x(Tensor::full({2, 3}, 1));
  backward(sum(model(x)));
  CHECK_ERROR(optimizer.step(), "optimizer: a leaf of shape [3");
  // Two optimizers share the parameters.
  Sgd other(parameters(model.second), 0.1);
  optimizer.step();
  other.step();
}

TEST_CASE("a parameter that no gradient reaches is an error in the first step", "[optim]") {
  struct Cut : Two {
    using Two::Two;
    Variable operator()(const Variable& x) const {
      const Tensor hidden = first(x);
      return second(hidden);
    }
  };
  Generator generator(1);
  Cut model(generator);
  Sgd optimizer(parameters(model), 0.1);
  const Variable x(Tensor::full({2, 3}, 1));
  backward(sum(model(x)));
  CHECK_ERROR(optimizer.step(),
              "optimizer: parameter 0 of shape [3, 3] got no gradient: does the loss use it, or a tensor");
  // What is not trained is left out.
  Sgd other(parameters(model.second), 0.1);
  other.step();
}
