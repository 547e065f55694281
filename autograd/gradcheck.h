#pragma once
// Compares gradients with central differences, in double.
#include <functional>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace cairn {

struct GradientCheck {
  double error = 0;   // the largest |analytic - numeric| / max(1, |numeric|) over all elements of all inputs
  std::string where;  // where it is: "input 1, element 5: analytic 0.25, numeric 0.5"
};

// f maps float64 variables to one variable of any shape, and must be the same function at every call, draws included.
// The loss is the sum of its output times fixed random weights, so every element of the Jacobian takes part.
GradientCheck check_gradient(const std::function<Variable(const std::vector<Variable>&)>& f,
                             std::vector<Tensor> inputs);

}  // namespace cairn
