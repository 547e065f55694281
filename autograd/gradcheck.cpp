#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"

namespace cairn {

GradientCheck check_gradient(const std::function<Variable(const std::vector<Variable>&)>& f,
                             std::vector<Tensor> inputs) {
  constexpr double step = 1e-5;
  std::vector<Variable> variables;
  for (const Tensor& input : inputs) {
    check(input.dtype() == DType::float64, "check_gradient: expected float64 inputs, got ", name(input.dtype()));
    variables.emplace_back(input.clone(), true);
  }
  const Variable output = f(variables);
  RandomStream random(1, 0, Purpose{});
  const Tensor weight = random_normal(output.shape(), random, DType::float64);
  if (output.requires_grad()) backward(output, weight);

  const auto loss = [&] {
    const NoGrad no_grad;
    return sum(f(variables) * weight).value().item();
  };
  GradientCheck result;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Tensor& gradient = variables[i].grad();
    for (int64_t j = 0; j < inputs[i].elements(); ++j) {
      double* x = variables[i].mutable_value().mutable_data<double>() + j;
      const double before = *x;
      *x = before + step;
      const double above = loss();
      *x = before - step;
      const double below = loss();
      *x = before;
      const double numeric = (above - below) / (2 * step);
      const double analytic = gradient.defined() ? gradient.data<double>()[j] : 0.0;
      double error = std::abs(analytic - numeric) / std::max(1.0, std::abs(numeric));
      if (std::isnan(error)) error = INFINITY;
      if (error > result.error) {
        result.error = error;
        result.where = concat("input ", i, ", element ", j, ": analytic ", analytic, ", numeric ", numeric);
      }
    }
  }
  return result;
}

}  // namespace cairn
