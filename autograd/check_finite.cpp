#include "autograd/check_finite.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "autograd/tape.h"
#include "core/dispatch.h"

namespace cairn {
namespace {

thread_local CheckFinite* living = nullptr;

std::string place(const char* operation, const std::string& module) {
  return module.empty() ? operation : concat(operation, ", after ", module);
}

}  // namespace

std::string first_fault(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return "";
  const Tensor host = x.to(Device::cpu);
  return visit_floating(x.dtype(), "check_finite", [&]<class T>(T) -> std::string {
    const T *const begin = host.data<T>(), *const end = begin + host.elements();
    const T* const fault = std::find_if_not(begin, end, [](T value) { return std::isfinite(Accum<T>(value)); });
    if (fault == end) return "";
    Shape index = x.shape();
    int64_t rest = fault - begin;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      index = index.with(axis, rest % x.size(axis));
      rest /= x.size(axis);
    }
    return concat("element ", index, " is ", std::isnan(Accum<T>(*fault)) ? "NaN" : "infinite");
  });
}

CheckFinite::CheckFinite(const NamedVariables& names) {
  check(!living, "check_finite: another one lives on this thread");
  for (const auto& [name, parameter] : names) modules_[&parameter.state()] = name;
  living = this;
}

CheckFinite::~CheckFinite() { living = nullptr; }

CheckFinite* CheckFinite::current() { return living; }

std::string CheckFinite::check_result(const char* operation, const Tensor& result,
                                      const std::vector<Variable>& inputs) {
  for (const Variable& input : inputs)
    if (const auto found = modules_.find(input.shared_state().get()); found != modules_.end()) latest_ = found->second;
  const std::string fault = first_fault(result);
  if (fault.empty()) return latest_;
  std::string earlier;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const std::string before = first_fault(inputs[i]); !before.empty())
      earlier += concat("; its input ", i, ' ', inputs[i].shape(), " was not finite: ", before);
  throw DivergedError(concat(place(operation, latest_), ": ", fault, " in the result ", result.shape(), earlier));
}

void CheckFinite::check_gradient(const Node& node, size_t input, const Tensor& gradient) const {
  if (const std::string fault = first_fault(gradient); !fault.empty())
    throw DivergedError(concat("gradient of ", place(node.name, node.module), ": ", fault, " in the gradient of input ",
                               input, ' ', gradient.shape()));
}

}  // namespace cairn
