#include "nn/parallel/data_parallel.h"

#include <algorithm>

#include "autograd/ops.h"
#include "core/trace.h"

namespace cairn {
namespace {

// Views of the elements of `all`, one after another, in the shapes of the parameters.
std::vector<Tensor> slots_of(const Tensor& all, const std::vector<Variable>& parameters) {
  std::vector<Tensor> slots;
  int64_t begin = 0;
  for (const Variable& x : parameters) {
    const int64_t end = begin + x.elements();
    slots.push_back(all.slice(begin, end).reshape(x.shape()));
    begin = end;
  }
  return slots;
}

// They share the optimizer's memory.
std::vector<Tensor> weights_and_moments(const Optimizer& optimizer) {
  std::vector<Tensor> tensors;
  for (const Variable& x : optimizer.parameters()) tensors.push_back(x);
  for (const auto& [name, moment] : optimizer.moments()) tensors.push_back(moment);
  return tensors;
}

}  // namespace

Share share_of(int64_t examples, const Communicator& ranks) {
  // [lesson 17
  const int64_t each = examples / ranks.size(), more = examples % ranks.size();  // the first `more` have one more
  const int64_t begin = ranks.rank() * each + std::min<int64_t>(ranks.rank(), more);
  const int64_t size = each + (ranks.rank() < more);
  return {begin, begin + size, double(size) / double(examples)};
  // lesson 17]
}

void sum_gradients(const std::vector<Variable>& parameters, Communicator& ranks) {
  if (ranks.size() == 1 || parameters.empty()) return;
  const trace::Span span("sum of gradients over ranks", "module");
  const Tensor& first = parameters.front().value();
  int64_t elements = 0;
  for (const Variable& x : parameters) elements += x.elements();
  // Each parameter has a slot, even without a gradient on this rank, so that the slots of all ranks agree.
  Tensor all = Tensor::zeros({elements}, first.dtype(), first.device());
  Tensor given = Tensor::zeros({int64_t(parameters.size())}, DType::float64);  // on how many ranks
  const std::vector<Tensor> slots = slots_of(all, parameters);
  // [lesson 17
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& gradient = parameters[i].grad();
    if (!gradient.defined()) continue;
    Tensor slot = slots[i];
    slot.copy_from(gradient);
    given.mutable_data<double>()[i] = 1;
  }
  ranks.sum(all);
  ranks.sum(given);
  for (size_t i = 0; i < parameters.size(); ++i)
    if (given.data<double>()[i] > 0) parameters[i].state().grad = slots[i];
  // lesson 17]
}

void average_weights(Optimizer& optimizer, Communicator& ranks) {
  if (ranks.size() == 1) return;
  const trace::Span span("mean of weights over ranks", "module");
  for (Tensor x : weights_and_moments(optimizer)) {
    ranks.sum(x);
    x.copy_from(affine(x, 1.0 / ranks.size()));
  }
  optimizer.set_state(of_rank_0(ranks, optimizer.state()));
}

void broadcast_weights(Optimizer& optimizer, Communicator& ranks) {
  for (Tensor x : weights_and_moments(optimizer)) ranks.broadcast(x);
  optimizer.set_state(of_rank_0(ranks, optimizer.state()));
}

}  // namespace cairn
