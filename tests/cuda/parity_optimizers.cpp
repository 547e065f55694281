// Cases of parity.h: optimizers.
#include <cmath>

#include "tests/cuda/parity.h"

#include "nn/optim/adam.h"
#include "nn/optim/r_adam.h"
#include "nn/optim/sgd.h"

namespace cairn::test {

// Three steps from the count `taken`: an ordinary one, one that is skipped, one that is clipped. The values and the
// moments after each, and the state. Parameter 2 gets no gradient in the first.
using Make = std::function<std::unique_ptr<Optimizer>(const std::vector<Variable>&)>;
static Results steps(const Bench& bench, const Make& make, int64_t taken, const std::vector<int64_t>& sizes) {
  std::vector<Variable> parameters;
  for (const int64_t n : sizes) parameters.push_back(bench.variable(bench.normal({n}, uint64_t(n))));
  // A view of memory that no pack of elements starts at.
  parameters.push_back(bench.variable(bench.normal({1032}).slice(1, 1032)));
  const auto optimizer = make(parameters);
  OptimizerState state = optimizer->state();
  state.step = taken;
  optimizer->set_state(state);

  Results results;
  for (uint64_t step = 0; step < 3; ++step) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() =
          step == 0 && i == 2 ? Tensor() : bench.normal(parameters[i].shape(), 10 * i + step);
      if (step == 1 && i == 1)
        parameters[i].mutable_grad() = bench.place(Tensor::full(parameters[i].shape(), INFINITY));
    }
    optimizer->set_max_gradient_norm(step == 2 ? 2 : 0);
    optimizer->step();
    const auto push = [&](const std::string& name, const Tensor& value) {
      results.push_back({concat(name, " after step ", step), value});
    };
    for (size_t i = 0; i < parameters.size(); ++i) push(concat("parameter ", i), parameters[i].value().clone());
    for (const auto& moment : optimizer->moments()) push(moment.name, moment.tensor.clone());
    state = optimizer->state();
    push("counts", Tensor::from<int64_t>({state.step, state.skip, state.skipped, state.skipped_in_a_row}, {4}));
    push("norm, scale and rate",
         Tensor::from<double>({state.gradient_norm, state.gradient_scale, state.learning_rate}, {3}));
  }
  return results;
}

void add_optimizers(std::vector<Case>& cases) {
  const AdamOptions options{0.9, 0.99, 1e-6, 0.1};
  const std::pair<const char*, Make> optimizers[] = {
      {"R-Adam", [=](const auto& x) { return std::make_unique<RAdam>(x, 0.01, options); }},
      {"Adam", [=](const auto& x) { return std::make_unique<Adam>(x, 0.01, options); }},
      {"SGD",
       [](const auto& x) {
         return std::make_unique<Sgd>(x, 0.1, SgdOptions{0, 0.1});
       }},
      {"SGD with momentum",
       [](const auto& x) {
         return std::make_unique<Sgd>(x, 0.1, SgdOptions{0.9, 0});
       }},
  };
  for (const auto& [name, make] : optimizers) {
    for (const int64_t taken : {0, 100})  // R-Adam is rectified from the sixth step on
      cases.push_back({concat(name, ", ", taken, " steps taken"), [=, make = make](const Bench& bench) {
                         return steps(bench, make, taken, {7, 1, 5, 0, 257, 4096, 4099, 13003});
                       }});
#if CAIRN_SANITIZED  // one of them will do: the loop over more elements than threads is the same for all
    if (cases.back().name.rfind("R-Adam", 0) != 0) continue;
#endif
    cases.push_back({concat(name, ", more elements than the grid takes at once"), [make = make](const Bench& bench) {
                       return steps(bench, make, 9, {3, 1, 2, 1500001, 700001});
                     }});
  }
  cases.push_back({"an optimizer of hundreds of parameters", [make = optimizers[0].second](const Bench& bench) {
                     std::vector<int64_t> sizes;
                     for (int64_t n = 0; n < 700; ++n) sizes.push_back(n % 13 + 1);
                     return steps(bench, make, 9, sizes);
                   }});
}

}  // namespace cairn::test
