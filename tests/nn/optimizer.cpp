#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "tests/golden/golden.h"
#include "tests/ops/operation.h"

using Catch::Matchers::ContainsSubstring;
using Parameters = std::vector<Variable>;
using Options = std::vector<double>;
using Make = std::unique_ptr<Optimizer> (*)(const Parameters&, const Options&);

// These make optimizers from the options in the golden files.
static std::unique_ptr<Optimizer> r_adam(const Parameters& x, const Options& o) {
  return std::make_unique<RAdam>(x, o[0], AdamOptions{o[1], o[2], o[3], o[4]});
}
static std::unique_ptr<Optimizer> adam(const Parameters& x, const Options& o) {
  return std::make_unique<Adam>(x, o[0], AdamOptions{o[1], o[2], o[3], o[4]});
}
static std::unique_ptr<Optimizer> sgd(const Parameters& x, const Options& o) {
  return std::make_unique<Sgd>(x, o[0], SgdOptions{o[1], o[2]});
}

namespace {
// An optimizer for the tests that run with all of them.
struct Kind {
  const char* name;
  Make make;
  Options options;

  std::unique_ptr<Optimizer> of(const Parameters& x) const { return make(x, options); }
};
const Kind every_kind[] = {{"R-Adam", r_adam, {0.01, 0.9, 0.99, 1e-6, 0.1}},
                           {"Adam", adam, {0.01, 0.9, 0.99, 1e-6, 0.1}},
                           {"SGD", sgd, {0.1, 0, 0.1}},
                           {"SGD with momentum", sgd, {0.1, 0.9, 0}}};
}  // namespace

static Variable parameter(const Tensor& value) { return Variable(value.clone(), true); }
static Variable parameter(const std::vector<float>& values) {
  return Variable(Tensor::from(values, {int64_t(values.size())}), true);
}
static void give(Variable& x, const std::vector<float>& gradient) {
  x.mutable_grad() = Tensor::from(gradient, x.shape());
}

// ------------------------------------------------------------------------------------------------- against PyTorch

// For every case of a file, compares 20 steps from the same start with the same gradients, after each step.
static void check_golden(const char* file, size_t min_cases, const Make& make) {
  const Golden golden(file);
  const auto cases = golden.cases_with("options");
  REQUIRE(cases.size() >= min_cases);
  for (const auto& name : cases)
    for (DType dtype : {DType::float32, DType::float64}) {
      Parameters parameters;
      for (const char* start : {"start/0", "start/1"}) parameters.push_back(parameter(golden.tensor(start, dtype)));
      const auto optimizer = make(parameters, golden.values(name + "/options"));
      for (int64_t step = 0; step < 20; ++step) {
        INFO(file << ' ' << name << ' ' << cairn::name(dtype) << ", step " << step + 1);
        const auto row = [&](const std::string& entry, size_t i) {
          return golden.tensor(entry + std::to_string(i), dtype).slice(step, step + 1).reshape(parameters[i].shape());
        };
        for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = row("gradient/", i);
        optimizer->step();
        for (size_t i = 0; i < parameters.size(); ++i)
          CHECK(difference(parameters[i].value(), row(name + "/after/", i)) <= tolerance::golden);
      }
      CHECK(optimizer->state().step == 20);
    }
}

TEST_CASE("R-Adam, Adam and SGD agree with PyTorch over 20 steps", "[optimizer][golden]") {
  check_golden("r_adam.txt", 5, r_adam);
  check_golden("adam.txt", 2, adam);
  check_golden("sgd.txt", 3, sgd);
}

// ---------------------------------------------------------------------------------------------- skipping and clipping

// Parameters, then moments.
static Tensors numbers(const Optimizer& optimizer) {
  Tensors result;
  for (const Variable& x : optimizer.parameters()) result.push_back(x.value().clone());
  for (const auto& [name, moment] : optimizer.moments()) result.push_back(moment.clone());
  return result;
}
static bool same_bits(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return cairn::same_bits(x, y); });
}

TEST_CASE("a step with a gradient that is not finite is skipped and counted", "[optimizer]") {
  for (const Kind& kind : every_kind)
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      Variable x = parameter({1, 2, 3}), y = parameter({4});
      const auto optimizer = kind.of({x, y});
      optimizer->set_max_gradient_norm(1);
      give(x, {1, -1, 2}), give(y, {3});
      optimizer->step();
      const auto before = numbers(*optimizer);
      give(x, {1, bad, 2});
      optimizer->step();
      optimizer->step();
      CHECK(same_bits(numbers(*optimizer), before));  // also y's, whose gradient is finite
      OptimizerState state = optimizer->state();
      CHECK(state.step == 1);
      CHECK(state.skip == 1);
      CHECK(state.skipped == 2);
      CHECK(state.skipped_in_a_row == 2);
      CHECK_FALSE(std::isfinite(state.gradient_norm));

      give(x, {1, -1, 2});
      optimizer->step();
      CHECK_FALSE(same_bits(numbers(*optimizer), before));
      state = optimizer->state();
      CHECK(state.step == 2);
      CHECK(state.skip == 0);
      CHECK(state.skipped == 2);
      CHECK(state.skipped_in_a_row == 0);
    }
}

TEST_CASE("a step whose squared gradient overflows the second moment is skipped and counted", "[optimizer]") {
  for (const Kind& kind : every_kind) {
    INFO(kind.name);
    Variable x = parameter({1, 2});
    const auto optimizer = kind.of({x});
    give(x, {1, 1});
    optimizer->step();
    const auto before = numbers(*optimizer);
    give(x, {1e21f, 1});  // finite, but 1e42 is not
    optimizer->step();
    const bool has_square = optimizer->moments().size() == 2;
    CHECK(same_bits(numbers(*optimizer), before) == has_square);
    CHECK(optimizer->state().skipped == has_square);
    optimizer->set_max_gradient_norm(1);
    optimizer->step();
    CHECK_FALSE(same_bits(numbers(*optimizer), before));
    CHECK(optimizer->state().skipped == has_square);
  }
}

TEST_CASE("ten skipped steps in a row are a divergence", "[optimizer]") {
  Variable x = parameter({1, 2});
  RAdam optimizer({x}, 0.1);
  const auto bad_steps = [&](int n) {
    give(x, {NAN, 1});
    for (int i = 0; i < n; ++i) optimizer.step();
  };
  bad_steps(9);
  give(x, {1, 1});
  optimizer.step();  // in a row, that is: this starts the count again
  bad_steps(9);
  CHECK_THROWS_AS(optimizer.step(), DivergedError);
  CHECK_THROWS_AS(optimizer.check_diverged(), DivergedError);
  CHECK_THROWS_WITH(optimizer.check_diverged(), ContainsSubstring("10 steps in a row, after 1 steps"));
  CHECK(optimizer.state().skipped == 19);
}

TEST_CASE("gradients are clipped by their norm over all parameters", "[optimizer]") {
  for (const auto& [maximum, scale] : {std::pair{0.0, 1.0}, {8.0, 1.0}, {3.5, 0.5}}) {
    Variable x = parameter({1, 2}), y = parameter({3});
    // Weight decay is not part of what is clipped.
    Sgd optimizer({x, y}, 0.5, {.momentum = 0, .weight_decay = 0.1});
    optimizer.set_max_gradient_norm(maximum);
    give(x, {2, 3}), give(y, {6});  // norm 7
    optimizer.step();
    CHECK(optimizer.state().gradient_norm == Approx(7));
    CHECK(optimizer.state().gradient_scale == Approx(scale));
    CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 3});  // scaled on the fly, not in place
    CHECK(difference(x.value(), {0.95 - scale, 1.9 - 1.5 * scale}) <= tolerance::float32);
    CHECK(difference(y.value(), {2.85 - 3 * scale}) <= tolerance::float32);
  }
}

TEST_CASE("a gradient too large for float32's square is clipped, not skipped", "[optimizer]") {
  Variable x = parameter({0, 0});
  Sgd optimizer({x}, 1);
  optimizer.set_max_gradient_norm(5);
  give(x, {3e30f, 4e30f});
  optimizer.step();
  CHECK(difference(x.value(), {-3, -4}) <= tolerance::float32);
}

// ---------------------------------------------------------------------------------------------- threads, checkpoints

// Sizes on both sides of a thread's slice.
static Parameters large_parameters() {
  return {parameter(random_tensor({131, 257}, DType::float32, 1)), parameter(random_tensor({7}, DType::float32, 2)),
          parameter(random_tensor({0, 3}, DType::float32, 3)), parameter(random_tensor({16384}, DType::float32, 4)),
          parameter(random_tensor({5}, DType::float32, 5))};
}
// The last parameter has a gradient only where an optimizer takes its first step.
static void give_random(const Parameters& parameters, uint64_t seed, bool first_step) {
  parameters.back().state().grad = Tensor();
  for (size_t i = 0; i + (first_step ? 0 : 1) < parameters.size(); ++i) {
    Variable x = parameters[i];
    x.mutable_grad() = random_tensor(x.shape(), DType::float32, 100 * seed + i);
  }
}

TEST_CASE("every element of every parameter takes part once", "[optimizer]") {
  for (const int64_t largest : {7, 9000001}) {  // the second is cut into longer slices
    Parameters parameters;
    double squares = 0;
    for (const int64_t n : {int64_t{0}, int64_t{4097}, int64_t{3}, int64_t{16384}, largest, int64_t{33667}}) {
      parameters.push_back(parameter(Tensor::zeros({n})));
      parameters.back().mutable_grad() = arange(n, Device::cpu).cast(DType::float32);
      squares += double(n) * double(n - 1) * double(2 * n - 1) / 6;
    }
    Variable idle = parameter({5});
    parameters.push_back(idle);
    give(idle, {1});
    Sgd optimizer(parameters, 0);
    optimizer.step();
    idle.clear_grad();
    optimizer.set_learning_rate(0.5);
    optimizer.step();
    CHECK(optimizer.state().gradient_norm == Approx(std::sqrt(squares)).epsilon(tolerance::float64));
    CHECK(idle.value().item() == 5);
    for (const Variable& x : optimizer.parameters())
      if (x.grad().defined()) CHECK(same_bits(x.value(), affine(x.grad(), -0.5).value()));
  }
}

TEST_CASE("a clipped gradient moves parameters as the scaled one does", "[optimizer]") {
  for (const Kind& kind : every_kind) {
    Parameters clipped, scaled;
    for (float start : {1.0f, -2.0f}) {
      clipped.push_back(parameter({start}));
      scaled.push_back(parameter({start}));
    }
    const auto clipping = kind.of(clipped), plain = kind.of(scaled);
    clipping->set_max_gradient_norm(1);
    for (int step = 1; step <= 8; ++step) {
      // Norms 5 and 0.5 in turn, because a constant factor is nothing to Adam.
      const float size = step % 2 ? 1 : 0.1f, scale = step % 2 ? 0.2f : 1;
      const float gradient[2] = {3 * size, -4 * size};
      for (size_t i = 0; i < 2; ++i) {
        give(clipped[i], {gradient[i]});
        give(scaled[i], {gradient[i] * scale});
      }
      clipping->step();
      plain->step();
      for (size_t i = 0; i < 2; ++i) CHECK(difference(clipped[i].value(), scaled[i].value()) <= tolerance::float32);
    }
  }
}

TEST_CASE("any number of threads gives the same bits", "[optimizer]") {
  for (const Kind& kind : every_kind)
    check_any_threads([&kind] {
      const Parameters parameters = large_parameters();
      const auto optimizer = kind.of(parameters);
      optimizer->set_max_gradient_norm(10);
      for (uint64_t step = 0; step < 8; ++step) {
        give_random(parameters, step, step == 0);
        optimizer->step();
      }
      return numbers(*optimizer);
    });
}

TEST_CASE("moments have names for checkpoints", "[optimizer]") {
  Variable x = parameter({1, 2}), y = parameter({3});
  const auto names = [](const Optimizer& optimizer) {
    std::string text;
    for (const auto& [name, moment] : optimizer.moments()) text += concat(name, moment.shape(), ' ');
    return text;
  };
  CHECK(names(RAdam({x, y}, 1)) == "first.0[2] first.1[1] second.0[2] second.1[1] ");
  CHECK(names(Sgd({x, y}, 1, {.momentum = 0.9, .weight_decay = 0})) == "first.0[2] first.1[1] ");
  CHECK(names(Sgd({x, y}, 1)).empty());
}

TEST_CASE("a step between forward and backward is an error, not a wrong gradient", "[optimizer]") {
  Variable w = parameter({5, 1});
  Sgd optimizer({w}, 0.1);
  give(w, {1, 1});
  const Variable loss = sum(square(w));
  optimizer.step();
  CHECK_THROWS_WITH(backward(loss), ContainsSubstring("was changed after the forward pass"));
}

TEST_CASE("a step renews the rounded copy of a parameter", "[optimizer]") {
  for (const Kind& kind : every_kind)
    for (const Device device : every_device()) {
      INFO(kind.name << " on " << name(device));
      const Tensor two = random_tensor({2, 4099}, DType::float32).to(device).clone(), one = two.slice(0, 1).clone();
      Variable x(two.slice(0, 1), true);
      for (const Tensor& next : {x.value(), two.slice(1, 2), one}) {  // of the same memory; as move_to() does
        x.mutable_value() = next;
        CHECK(difference(x.rounded().cast(DType::float32), next) <= tolerance::bfloat16);
      }
      const auto optimizer = kind.of({x});
      for (int step = 0; step < 4; ++step) {
        if (step >= 2) x.mutable_value().copy_from(two.slice(1, 2));                               // as loading does
        x.mutable_grad() = Tensor::full({1, 4099}, step % 2 ? NAN : 0.3, DType::float32, device);  // NAN: skipped
        optimizer->step();
        CHECK(x.state().is_rounded());  // so layers do not cast it
        CHECK(cairn::same_bits(x.rounded().to(Device::cpu), x.value().cast(DType::bfloat16).to(Device::cpu)));
      }
    }
}

// ------------------------------------------------------------------------------------------------------- bad arguments

TEST_CASE("optimizers refuse bad settings", "[optimizer]") {
  const Variable x = parameter({1});
  for (double bad : {-1.0, double(NAN), double(INFINITY)}) {
    CHECK_THROWS_AS(RAdam({x}, bad), UsageError);
    CHECK_THROWS_AS(RAdam({x}, 1, {.weight_decay = bad}), UsageError);
    CHECK_THROWS_AS(Adam({x}, 1, {.epsilon = bad}), UsageError);
    CHECK_THROWS_AS(Sgd({x}, 1, {.momentum = bad, .weight_decay = 0}), UsageError);
    CHECK_THROWS_AS(Sgd({x}, 1, {.momentum = 0, .weight_decay = bad}), UsageError);
    Adam optimizer({x}, 1);
    CHECK_THROWS_AS(optimizer.set_learning_rate(bad), UsageError);
    CHECK_THROWS_AS(optimizer.set_max_gradient_norm(bad), UsageError);
    CHECK(optimizer.learning_rate() == 1);
    CHECK(optimizer.max_gradient_norm() == 0);
  }
  for (double bad : {-0.1, 1.0, double(NAN)}) {
    CHECK_THROWS_WITH(RAdam({x}, 1, {.beta1 = bad}), ContainsSubstring("r_adam: expected beta1 in [0, 1)"));
    CHECK_THROWS_WITH(Adam({x}, 1, {.beta2 = bad}), ContainsSubstring("adam: expected beta2 in [0, 1)"));
  }
  CHECK_THROWS_AS(Adam({x}, 1, {.epsilon = 1e-46}), UsageError);  // 0 in float32
  CHECK_THROWS_AS(Sgd({x}, 1, {.momentum = 1, .weight_decay = 0}), UsageError);
  CHECK_NOTHROW(RAdam({x}, 0, {.beta1 = 0, .beta2 = 0}));
  Adam optimizer({x}, 1);
  OptimizerState state;
  state.step = -1;
  CHECK_THROWS_AS(optimizer.set_state(state), DataError);
}

TEST_CASE("optimizers refuse bad parameters and gradients", "[optimizer]") {
  const auto refused = [](const Parameters& parameters, const char* message) {
    CHECK_THROWS_WITH(RAdam(parameters, 1), ContainsSubstring(message));
  };
  Variable x = parameter({1, 2}), y = parameter({3});
  refused({}, "there are no parameters");
  refused({x, Variable()}, "parameter 1 was never given a value");
  refused({x, Variable(Tensor::zeros({2}, DType::float64), true)}, "parameter 1 is float64, parameter 0 is float32");
  refused({Variable(Tensor::zeros({2}, DType::int32))}, "parameter 0 must be floating, got int32");
  refused({x, y, x}, "parameter 2 is the same variable as parameter 0");
  refused({x, x + y}, "parameter 1 is the result of an operation");

  RAdam optimizer({x, y}, 1);
  give(x, {1, 1});
  optimizer.clear_gradients();
  CHECK_THROWS_WITH(optimizer.step(), ContainsSubstring("no parameter has a gradient"));
  y.mutable_grad() = Tensor::zeros({2});
  CHECK_THROWS_WITH(optimizer.step(), ContainsSubstring("expected the gradient of parameter 1 of shape [1], got [2]"));
  y.mutable_grad() = Tensor::zeros({1}, DType::float64);
  CHECK_THROWS_WITH(optimizer.step(),
                    ContainsSubstring("the gradient of parameter 1 is float64, parameter 0 is float32"));
  y.clear_grad();
  give(x, {1, 1});
  CHECK_THROWS_WITH(optimizer.step(), ContainsSubstring("parameter 1 of shape [1] got no gradient"));
  x.mutable_value() = Tensor::zeros({3});
  give(x, {1, 1, 1});
  CHECK_THROWS_WITH(optimizer.step(), ContainsSubstring("expected parameter 0 of shape [2], got [3]"));
  CHECK(optimizer.state().step == 0);

  Sgd plain({x, y}, 1, {.momentum = 0, .weight_decay = 0});
  y.mutable_value() = Tensor::zeros({1}, DType::float64);
  CHECK_THROWS_WITH(plain.step(), ContainsSubstring("parameter 1 is float64, parameter 0 is float32"));
}

#if CAIRN_HAS_CUDA  // against the CPU

namespace {

// Values, moments and state after each of three steps, of which the second is skipped and the third is clipped. (Adam
// and R-Adam skip a square that overflows, SGD an infinite one.) The count starts at `taken`. Parameter 2 gets no
// gradient in the third step.
Tensors steps(Device device, DType dtype, bool rounded, const Kind& kind, int64_t taken,
              const std::vector<int64_t>& sizes) {
  const auto place = [=](const Tensor& x) { return (rounded ? x.cast(DType::bfloat16) : x).cast(dtype).to(device); };
  const auto drawn = [=](const Shape& shape, uint64_t seed) {
    return place(random_tensor(shape, DType::float32, seed));
  };
  Parameters parameters;
  for (const int64_t n : sizes) parameters.emplace_back(drawn({n}, uint64_t(n)), true);
  // A view whose address is not a multiple of 16 bytes.
  parameters.emplace_back(drawn({1032}, 1).slice(1, 1032), true);
  const auto optimizer = kind.of(parameters);
  OptimizerState state = optimizer->state();
  state.step = taken;
  optimizer->set_state(state);

  Tensors results;
  for (uint64_t step = 0; step < 3; ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = step == 2 && i == 2 ? Tensor() : drawn(parameters[i].shape(), 10 * i + step);
      if (step == 1 && i == 1) parameters[i].mutable_grad() = place(Tensor::full(parameters[i].shape(), INFINITY));
    }
    optimizer->set_max_gradient_norm(step == 2 ? 2 : 0);
    optimizer->step();
    for (const Tensor& x : numbers(*optimizer)) results.push_back(x);
    state = optimizer->state();
    results.push_back(Tensor::from<int64_t>({state.step, state.skip, state.skipped, state.skipped_in_a_row}, {4}));
    results.push_back(Tensor::from<double>({state.gradient_norm, state.gradient_scale}, {2}));
  }
  return results;
}

void compare_with_cpu(DType dtype) {
  const bool rounded = dtype == DType::bfloat16;
  const auto compare = [&](const Kind& kind, int64_t taken, const std::vector<int64_t>& sizes) {
    INFO(taken << " steps taken, " << sizes.size() << " parameters");
    const Tensors found = steps(Device::cuda, dtype, rounded, kind, taken, sizes);
    const Tensors expected = steps(Device::cpu, DType::float32, rounded, kind, taken, sizes);
    for (size_t i = 0; i < found.size(); ++i) {
      const double tolerance = rounded ? tolerance::bfloat16 : tolerance::float32;
      const std::string difference = differs(found[i], expected[i], is_floating(found[i].dtype()) ? tolerance : 0);
      INFO("result " << i << ' ' << difference);
      CHECK(difference.empty());
    }
  };
  for (const Kind& kind : every_kind) {
    INFO(kind.name);
    for (const int64_t taken : {0, 100})  // R-Adam is rectified from the sixth step on
      compare(kind, taken, {7, 1, 5, 0, 257, 4096, 4099, 13003});
#if CAIRN_SANITIZED  // one is enough: the loop over more elements than threads is the same for all
    if (kind.make != r_adam) continue;
#endif
    compare(kind, 9, {3, 1, 2, 1500001, 700001});  // more elements than the grid takes at once
  }
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n < 2500; ++n) sizes.push_back(n % 13);
  compare(every_kind[0], 9, sizes);
}

}  // namespace

TEST_CASE("optimizer: CUDA in float32", "[gpu][float32]") { compare_with_cpu(DType::float32); }
TEST_CASE("optimizer: CUDA in bfloat16", "[gpu][bfloat16]") { compare_with_cpu(DType::bfloat16); }

#endif
