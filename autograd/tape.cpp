#include "autograd/tape.h"

#include <ostream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "autograd/check_finite.h"
#include "autograd/ops.h"
#include "core/ops/checks.h"
#include "core/trace.h"

namespace cairn {
namespace {

thread_local bool is_recording = true;
thread_local const char* running_gradient = nullptr;  // the operation whose gradient is being computed, for messages
// Leaves without an optimizer that the last backward pass reached beside leaves with one.
thread_local std::vector<std::weak_ptr<Variable::State>> reached;

TensorType type_of(const Tensor& x) { return {x.shape(), x.dtype(), x.device()}; }

Edge edge_to(const Variable& input) {
  if (!input.defined()) return {};
  const Variable::State& state = input.state();
  if (!state.requires_grad) return {nullptr, nullptr, type_of(state.value)};
  if (state.node) return {state.node, nullptr, type_of(state.value)};
  return {nullptr, input.shared_state(), type_of(state.value)};
}

// slot += gradient; in place in one of the two that nothing else shares.
void add_to(Tensor& slot, Tensor gradient) {
  // [lesson 2
  if (slot.defined() && !slot.unique()) std::swap(slot, gradient);
  if (!gradient.defined()) return;
  if (!slot.defined()) {
    slot = std::move(gradient);
    return;
  }
  if (!slot.unique()) slot = slot.clone();
  accumulate(slot, gradient);
  // lesson 2]
}

void note_leaves(const std::vector<Node*>& nodes) {
  bool any_has_optimizer = false;
  reached.clear();
  for (const Node* node : nodes)
    for (const Edge& edge : node->inputs) {
      if (!edge.leaf) continue;
      any_has_optimizer = any_has_optimizer || edge.leaf->has_optimizer;
      if (!edge.leaf->has_optimizer) reached.push_back(edge.leaf);
    }
  if (!any_has_optimizer) reached.clear();
}

// `root` and the nodes that it depends on, inputs before users. Without recursion, because graphs can be deep.
std::vector<Node*> ordered(Node* root) {
  // [lesson 2
  std::vector<Node*> order;
  std::unordered_set<Node*> seen{root};
  std::vector<std::pair<Node*, size_t>> path{{root, 0}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == node->inputs.size()) {
      order.push_back(node);
      path.pop_back();
      continue;
    }
    Node* input = node->inputs[next++].node.get();
    if (input && seen.insert(input).second) path.push_back({input, 0});
  }
  return order;
  // lesson 2]
}

}  // namespace

// Releases a chain of nodes one after another. Nested destructors would overflow the stack on a long one.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> pending;
  const auto detach = [&pending](Node& node) {
    for (Edge& edge : node.inputs)
      if (edge.node) pending.push_back(std::move(edge.node));
  };
  detach(*this);
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() == 1) detach(*node);
  }
}

const Tensor& SavedTensor::operator()() const {
  check(tensor_.version() == version_, running_gradient ? running_gradient : "backward", ": a tensor of shape ",
        tensor_.shape(), " that its gradient needs was changed after the forward pass");
  return tensor_;
}

Variable record(const char* operation, Tensor value, const std::vector<Variable>& inputs, GradientFunction gradient) {
  bool needed = false;
  for (const Variable& input : inputs) needed = needed || input.requires_grad();
  needed = needed && is_recording;

  // What a gradient computes on its way is its own affair.
  CheckFinite* const finite = running_gradient ? nullptr : CheckFinite::current();
  const std::string module = finite ? finite->check_result(operation, value, inputs) : "";
  Variable result(std::move(value), needed);
  if (!needed) return result;
  const auto node = std::make_shared<Node>(Node{operation, {}, std::move(gradient), type_of(result), false, module});
  for (const Variable& input : inputs) node->inputs.push_back(edge_to(input));
  result.state().node = node;
  return result;
}

void backward(const Variable& loss, double weight) {
  check(loss.elements() == 1, "backward: expected a scalar, got shape ", loss.shape(),
        "; pass the gradient of this output");
  backward(loss, Tensor::full(loss.shape(), weight, loss.dtype(), loss.device()));
}

void backward(const Variable& output, const Tensor& gradient) {
  check(output.requires_grad(), "backward: this output depends on no variable that requires a gradient");
  expect("backward", {{"the output", output, "*R"}, {"its gradient", gradient, "*R"}});
  const NoGrad no_grad;
  const CheckFinite* const finite = CheckFinite::current();
  Variable::State& state = output.state();
  if (!state.node) return add_to(state.grad, state.grad.defined() ? gradient : gradient.clone());

  const std::vector<Node*> order = ordered(state.node.get());
  for (const Node* node : order)
    check(!node->unwound, "backward: the graph was unwound by an earlier backward pass (at ", node->name,
          "); run the forward pass again");

  if (!running_gradient) note_leaves(order);
  std::unordered_map<const Node*, Tensor> pending{{state.node.get(), gradient}};
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    Node& node = **it;
    Tensor g = std::move(pending[&node]);
    pending.erase(&node);
    if (!g.defined()) g = Tensor::zeros(node.result.shape, node.result.dtype, node.result.device);
    node.unwound = true;

    const char* const outer = std::exchange(running_gradient, node.name);  // a gradient may call backward()
    Gradients inputs;
    try {
      const trace::Span span(node.name, "backward", node.result.shape);
      inputs = node.gradient(g);
    } catch (...) {
      running_gradient = outer;
      throw;
    }
    running_gradient = outer;
    node.gradient = nullptr;  // frees what it captured
    g = Tensor();
    check(inputs.size() == node.inputs.size(), "backward: ", node.name, " gave ", inputs.size(), " gradients for ",
          node.inputs.size(), " inputs");

    for (size_t i = 0; i < inputs.size(); ++i) {
      const Edge& edge = node.inputs[i];
      if (!edge.needed()) continue;
      Tensor& sum = edge.node ? pending[edge.node.get()] : edge.leaf->grad;
      if (inputs[i].defined()) {
        const auto& [shape, dtype, device] = *edge.type;
        check(sums_of(inputs[i].dtype()) == sums_of(dtype) && inputs[i].device() == device, "backward: ", node.name,
              " gave a gradient in ", name(inputs[i].dtype()), " on ", name(inputs[i].device()), " for input ", i,
              ", which is ", name(dtype), " on ", name(device));
        Tensor reduced = sum_to(inputs[i], shape).cast(dtype);
        inputs[i] = Tensor();
        // The user may change a leaf's gradient in place, so it must not share storage.
        if (edge.leaf && !sum.defined() && !reduced.unique()) reduced = reduced.clone();
        add_to(sum, std::move(reduced));
      }
      if (finite) finite->check_gradient(node, i, sum);
    }
  }
}

GradMode::GradMode(bool records) : before_(std::exchange(is_recording, records)) {}
GradMode::~GradMode() { is_recording = before_; }
bool recording() { return is_recording; }

std::optional<Shape> leaf_without_optimizer() {
  for (const auto& entry : reached)
    if (const auto leaf = entry.lock(); leaf && !leaf->has_optimizer && leaf->grad.defined()) return leaf->grad.shape();
  return {};
}

std::ostream& operator<<(std::ostream& out, const Variable& x) {
  if (!x.defined()) return out << "(no variable)";
  const Variable::State& state = x.state();
  std::string from = ", constant";
  if (state.node)
    from = concat(", from ", state.node->name);
  else if (state.requires_grad)
    from = state.grad.defined() ? ", leaf with a gradient" : ", leaf without a gradient";
  return out << to_string(state.value, from);
}

std::string graph_to_string(const Variable& output, const NamedVariables& names) {
  std::unordered_map<const Variable::State*, std::string> name_of;
  for (const auto& [name, variable] : names) name_of[&variable.state()] = name;
  const auto leaf_text = [&](const Variable::State* leaf, const Shape& shape) {
    const auto found = name_of.find(leaf);
    return concat(found != name_of.end() ? found->second : leaf ? "leaf" : "constant", ' ', shape);
  };
  if (!output.state().node) return leaf_text(&output.state(), output.shape()) + '\n';
  const std::vector<Node*> order = ordered(output.state().node.get());
  std::unordered_map<const Node*, size_t> number;
  std::string text;
  for (const Node* node : order) {
    number[node] = number.size() + 1;
    text += concat('#', number[node], ' ', node->name, ' ', node->result.shape);
    const char* separator = " <- ";
    for (const Edge& edge : node->inputs) {
      text += separator;
      if (edge.node)
        text += concat('#', number[edge.node.get()]);
      else
        text += edge.type ? leaf_text(edge.leaf.get(), edge.type->shape) : "none";
      separator = ", ";
    }
    text += '\n';
  }
  return text;
}

}  // namespace cairn
