#pragma once
// The tape records operations and computes gradients by going back over them. It sums gradients to the shapes of
// broadcast inputs, converts them to the inputs' types and adds them up, so an operation's gradient is only its
// mathematics.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "core/random.h"

namespace cairn {

// One gradient for each input of an operation. An undefined one stands for zeros.
using Gradients = std::vector<Tensor>;
// Maps the gradient of an operation's result to those of its inputs.
using GradientFunction = std::function<Gradients(const Tensor&)>;

// What a tensor is, apart from its numbers.
struct TensorType {
  Shape shape;
  DType dtype;
  Device device;
};

// Where the gradient of an input goes: to the node that made the input, to a leaf, or nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  std::shared_ptr<Variable::State> leaf;
  std::optional<TensorType> type{};  // of the input and its gradient; none: the input was not given

  bool needed() const { return node || leaf; }
};

// One recorded operation. It holds only the values that its gradient captured, until the gradient has run.
struct Node {
  const char* name;
  std::vector<Edge> inputs;
  GradientFunction gradient;
  TensorType result;
  bool unwound = false;
  std::string module;  // with CheckFinite: the parameter that was used last before it

  ~Node();
};

// A tensor that is saved for backward, with its version. Closures capture these, never variables, so there are no
// cycles.
class SavedTensor {
 public:
  explicit SavedTensor(Tensor tensor) : tensor_(std::move(tensor)), version_(tensor_.version()) {}
  // Error: the tensor has changed since it was saved. The message names the operation whose gradient reads it.
  const Tensor& operator()() const;

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
};

// The result of an operation, as a variable. If an input needs a gradient, it records the inputs and `gradient`, which
// maps the gradient of `value` to one gradient for each input. A gradient may have the shape that the input was
// broadcast to. For a bfloat16 input it may be float32, and the reverse. An undefined input is one that was not given;
// what the function returns for it is ignored.
Variable record(const char* operation, Tensor value, const std::vector<Variable>& inputs, GradientFunction gradient);

// Adds d (weight * loss) / d leaf to the gradient of every leaf that `loss` depends on, and frees what the graph
// captured. Errors: the loss is not a scalar (pass its gradient then), does not depend on a parameter, or was unwound
// before.
void backward(const Variable& loss, double weight = 1);
void backward(const Variable& output, const Tensor& gradient);

// While one of these exists on a thread, that thread records or, with false, does not.
class GradMode {
 public:
  explicit GradMode(bool records);
  ~GradMode();
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};
// For a gradient that runs a part of the forward pass again: backward() computes gradients without recording.
struct EnableGrad : GradMode {
  EnableGrad() : GradMode(true) {}
};
bool recording();

// The shape of a leaf without an optimizer that got a gradient beside leaves with one, in the last backward pass of
// this thread. It may be a forgotten parameter.
std::optional<Shape> leaf_without_optimizer();

// One line for each operation, inputs before users: "#3 matmul [2, 8] <- #1, leaf [4, 8]". Leaves in `names`
// (named_parameters of a module) have their name: "encoder.layers.0.weight [4, 8]".
std::string graph_to_string(const Variable& output, const NamedVariables& names = {});

}  // namespace cairn
