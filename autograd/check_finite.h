#pragma once
// Finds where NaN or infinity comes from:
//
//   const CheckFinite check(named_parameters(model));
//   backward(loss_of(model, batch));  // DivergedError: "softmax, after encoder.layers.1.attention.key: element ..."
//
// Each result and each gradient is read once more, and on CUDA waited for: a training takes about twice as long.
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/variable.h"

namespace cairn {

struct Node;

// While one lives on a thread, all operations of that thread are checked. They may not nest.
class CheckFinite {
 public:
  // With the names of a model's parameters, messages say after which module's parameter an operation came.
  explicit CheckFinite(const NamedVariables& names = {});
  ~CheckFinite();
  CheckFinite(const CheckFinite&) = delete;
  CheckFinite& operator=(const CheckFinite&) = delete;

  // The one that lives on this thread, or null. The tape calls the following two.
  static CheckFinite* current();
  // Returns where the operation is: the module of the parameter that was used last. Error (DivergedError): an element
  // of a result is not finite.
  std::string check_results(const char* operation, const std::vector<Tensor>& results,
                            const std::vector<Variable>& inputs);
  // Error (DivergedError): an element of the gradient of an input is not finite, now that the operation added its part.
  void check_gradient(const Node& node, size_t input, const Tensor& gradient) const;

 private:
  std::unordered_map<const Variable::State*, std::string> modules_;  // of each parameter
  std::string latest_;                                               // where the forward pass is
};

}  // namespace cairn
