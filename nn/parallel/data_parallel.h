#pragma once
// Data-parallel training: several processes share a batch. A step is
//
//   const Share mine = share_of(examples, ranks);
//   optimizer.clear_gradients();
//   if (mine.size() > 0) backward(mean_loss_of(mine.begin, mine.end), mine.weight);
//   sum_gradients(optimizer.parameters(), ranks);
//   optimizer.step();
//
// The loss of the batch is the sum over ranks of weight times the mean over the part, and so is its gradient. Random
// numbers must depend on an example's place in the whole batch: call Generator::set_first_example(mine.begin).
//
// Ranks may also train by themselves and average their weights every few steps (the paper's appendix C.3.2): backward()
// without the weight, no sum_gradients(), and then average_weights().
#include <cstdint>
#include <vector>

#include "autograd/variable.h"
#include "nn/optim/optimizer.h"
#include "nn/parallel/communicator.h"

namespace cairn {

// A rank's part of a batch: examples [begin, end). `weight` is their fraction of the batch. Parts differ by at most one
// example; with fewer examples than ranks, some are empty.
struct Share {
  int64_t begin = 0, end = 0;
  double weight = 1;
  int64_t size() const { return end - begin; }
};
Share share_of(int64_t examples, const Communicator& ranks);

// Gives each parameter, on all ranks, the sum of its gradients over the ranks. A missing gradient counts as zeros; one
// that is missing on every rank stays missing.
void sum_gradients(const std::vector<Variable>& parameters, Communicator& ranks);

// Gives all ranks the mean of their weights and of their optimizers' moments, and rank 0's count of steps.
void average_weights(Optimizer& optimizer, Communicator& ranks);
// Gives all ranks the weights, the moments and the count of steps of rank 0.
void broadcast_weights(Optimizer& optimizer, Communicator& ranks);

}  // namespace cairn
