#include "autograd/variable.h"

#include <utility>

namespace cairn {

Variable::Variable(Tensor value, bool requires_grad) : state_(std::make_shared<State>()) {
  check(value.defined(), "variable: its tensor was never given a value");
  check(!requires_grad || is_floating(value.dtype()), "variable: a ", name(value.dtype()),
        " tensor cannot require a gradient");
  state_->value = std::move(value);
  state_->requires_grad = requires_grad;
}

}  // namespace cairn
