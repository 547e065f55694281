#pragma once
// A tensor that remembers how it was made. Copies of a Variable are the same variable.
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace cairn {

struct Node;

class Variable {
 public:
  Variable() = default;  // no variable: defined() is false
  // A constant; of an undefined tensor, no variable. A tensor converts by itself, so functions of variables take it.
  Variable(Tensor value) {
    if (!value.defined()) return;
    state_ = std::make_shared<State>();
    state_->value = std::move(value);
  }
  // Error: the tensor requires a gradient, and has no value or is not floating.
  explicit Variable(Tensor value, bool requires_grad) : Variable(std::move(value)) {
    if (!requires_grad) return;
    check(defined(), "variable: its tensor was never given a value");
    check(is_floating(dtype()), "variable: a ", name(dtype()), " tensor cannot require a gradient");
    state_->requires_grad = true;
  }

  bool defined() const { return state_ != nullptr; }
  // Undefined if there is no variable. Of a temporary, a copy, so that a reference to it stays valid.
  const Tensor& value() const& {
    if (defined()) return state_->value;
    static const Tensor none;
    return none;
  }
  Tensor value() && { return value(); }
  // Where a tensor is asked for, a variable is its value: a constant, whose use the tape does not record.
  operator Tensor() const { return value(); }
  template <class T>
  const T* data() const {
    return value().data<T>();
  }
  // The value as an operation on x needs it: if x is bfloat16, a float32 value is rounded (mixed precision).
  Tensor beside(const Variable& x) const {
    const bool rounds = defined() && dtype() == DType::float32 && x.value().dtype() == DType::bfloat16;
    return rounds ? rounded() : value();
  }
  // A bfloat16 copy of the value, which is kept until the value changes. An optimizer's step updates both. Two threads
  // must not call it at once.
  Tensor rounded() const {
    State& s = state();
    if (!s.is_rounded()) s.rounded = s.value.cast(DType::bfloat16);
    s.set_rounded();
    return s.rounded;
  }
  // For changing a leaf in place (to initialize, load or optimize it). A later backward pass that needs the old numbers
  // fails, unless it has the rounded copy of them.
  Tensor& mutable_value() { return state().value; }
  const Shape& shape() const { return state().value.shape(); }
  int64_t size(int axis) const { return state().value.size(axis); }
  int64_t elements() const { return state().value.elements(); }
  Device device() const { return state().value.device(); }
  DType dtype() const { return state().value.dtype(); }

  // True for parameters and for variables that are computed from them.
  bool requires_grad() const { return defined() && state_->requires_grad; }
  // The sum of the gradients of all backward passes since it was cleared; undefined before the first. Only leaves,
  // variables that no operation made, have one.
  const Tensor& grad() const { return state().grad; }
  Tensor& mutable_grad() { return state().grad; }
  void clear_grad() { state().grad = Tensor(); }

  // The same numbers as a constant: gradients stop here.
  Variable detach() const { return Variable(value()); }

  struct State {
    Tensor value, grad;
    bool requires_grad = false;
    std::shared_ptr<Node> node;  // the operation that made it; null for a leaf
    bool has_optimizer = false;
    Tensor rounded;                // the value in bfloat16, once it was asked for,
    uint64_t rounded_version = 0;  // the version of the value that was rounded, and its elements
    const void* rounded_from = nullptr;

    bool is_rounded() const {
      return rounded.defined() && rounded_version == value.version() && rounded_from == value.raw() &&
             rounded.shape() == value.shape();
    }
    void set_rounded() { rounded_version = value.version(), rounded_from = value.raw(); }
  };
  State& state() const {
    check(defined(), "variable: this variable was never given a value");
    return *state_;
  }
  const std::shared_ptr<State>& shared_state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// The tensor and its origin: a constant, a leaf with or without a gradient, or an operation.
std::ostream& operator<<(std::ostream& out, const Variable& x);

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

}  // namespace cairn
