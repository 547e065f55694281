#pragma once
// Shared by the tests of modules.
#include "nn/module.h"
#include "tests/ops/ops_test.h"

namespace cairn {

// Replaces a module's parameters by variables, in order.
struct Replace : Fields {
  const Variable* next;
  explicit Replace(const Variable* first) : next(first) {}
  using Fields::operator();
  void operator()(const std::string&, Variable& parameter) override { parameter = *next++; }
};

// The gradient of f, a function of the module and of `inputs`, with respect to both; everything in float64.
template <class F>
GradientCheck check_module_gradient(Module& module, std::vector<Tensor> inputs, F&& f) {
  const size_t own = inputs.size();
  for (const Variable& parameter : parameters(module)) inputs.push_back(parameter.value());
  const OneThread one_thread;
  return check_gradient(
      [&](const std::vector<Variable>& in) {
        Replace replace(in.data() + own);
        module.fields(replace);
        return f(in);
      },
      inputs);
}

}  // namespace cairn
