#pragma once
// The tape: what operations record, and the walk back over it that computes gradients. Un-broadcasting and accumulation
// are done here, once, so that an operation's gradient is only its mathematics.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/variable.h"
#include "core/random.h"

namespace cairn {

// One gradient for each input of an operation; an undefined one stands for zeros.
using Gradients = std::vector<Tensor>;
// From the gradients of an operation's outputs to those of its inputs. sums[i] is the gradient of input i so far (of a
// leaf also from earlier passes), or undefined: there is none yet, or somebody else holds it. A closure may add to it
// in place; then its own gradient i is undefined.
using GradientFunction = std::function<Gradients(const Gradients& outputs, const Gradients& sums)>;

// Where a gradient goes: to an output of the node that made the input, or to the leaf that it is.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<Variable::State> leaf;
  Shape shape;

  bool needed() const { return node || leaf; }
};

// One recorded operation. It holds no values but those its gradient captured, and these only until it has run.
struct Node {
  const char* name;
  std::vector<Edge> inputs;
  GradientFunction gradient;
  struct Output {
    Shape shape;
    DType dtype;
    Device device;
  };
  std::vector<Output> outputs;
  bool unwound = false;
  std::string module;  // after which parameter it came, while a CheckFinite lives

  ~Node();
};

// A tensor kept for a gradient, with the version it had. A closure captures these, never variables, so that there are
// no cycles.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(Tensor tensor) : tensor_(std::move(tensor)), version_(tensor_.version()) {}
  // Error: the tensor was changed since it was saved; names the operation whose gradient wants it.
  const Tensor& operator()() const;

 private:
  Tensor tensor_;
  uint64_t version_ = 0;
};

// Tensors that a gradient reads besides its operands: masks and top keys. (Groups notice by themselves.)
class VersionGuard {
 public:
  VersionGuard& add(const Tensor& tensor);
  // Error: one of them was changed.
  void operator()() const;

 private:
  std::vector<SavedTensor> tensors_;
};

// The result of an operation: a variable over `value`, which, unless no input needs a gradient, remembers its inputs
// and how the gradient of `value` becomes one gradient for each of them. A gradient may have the shape that its input
// was broadcast to.
Variable record(const char* operation, Tensor value, const std::vector<Variable>& inputs,
                std::function<Gradients(const Tensor&)> gradient);
// The same for an operation with several outputs.
std::vector<Variable> record_outputs(const char* operation, std::vector<Tensor> values,
                                     const std::vector<Variable>& inputs, GradientFunction gradient);

// Adds d loss / d leaf to the gradient of every leaf that `loss` depends on, and frees what the graph captured on the
// way. With a weight: the gradient of weight times the loss. Errors: loss is not a scalar (then give its gradient),
// does not depend on a parameter, or was unwound before.
void backward(const Variable& loss, double weight = 1);
void backward(const Variable& output, const Tensor& gradient);

// While one of these lives on a thread, that thread records nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
bool recording();

// The shape of a leaf that is no optimizer's parameter and has a gradient from a backward pass of this thread that also
// reached parameters of one.
std::optional<Shape> leaf_without_optimizer();

// One line an operation, inputs before users: "#3 matmul [2, 8] <- #1, leaf [4, 8]"; #1.2 is the output with index 2.
// Leaves that have a name here (named_parameters of a module) stand there with it: "encoder.layers.0.weight [4, 8]".
std::string graph_to_string(const Variable& output, const NamedVariables& names = {});

}  // namespace cairn
