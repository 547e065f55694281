#pragma once
// Finds the operation that NaN or infinity comes from:
//
//   const CheckFinite check(named_parameters(model));
//   backward(loss_of(model, batch));  // DivergedError: "softmax, after encoder.layers.1.norm1.bias: element ..."
//
// It reads each result and each gradient, and on CUDA waits for it. So training takes about twice as long.
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/variable.h"

namespace cairn {

struct Node;

// The first element that is not finite, as "element [0, 3] is NaN". Empty: there is none.
std::string first_fault(const Tensor& x);

// While one exists on a thread, all operations of that thread are checked. A thread can have only one.
class CheckFinite {
 public:
  // `names`: a model's parameters. Messages then name the parameter that was used last before the operation.
  explicit CheckFinite(const NamedVariables& names = {});
  ~CheckFinite();
  CheckFinite(const CheckFinite&) = delete;
  CheckFinite& operator=(const CheckFinite&) = delete;

  // The one of this thread, or null. The tape calls the next two functions.
  static CheckFinite* current();
  // Returns the name of the parameter that was used last. Error (DivergedError): an element of the result is not
  // finite.
  std::string check_result(const char* operation, const Tensor& result, const std::vector<Variable>& inputs);
  // Called when an operation has added to the gradient of an input. Error (DivergedError): an element is not finite.
  void check_gradient(const Node& node, size_t input, const Tensor& gradient) const;

 private:
  std::unordered_map<const Variable::State*, std::string> modules_;  // the name of each parameter
  std::string latest_;                                               // the name of the one that was used last
};

}  // namespace cairn
