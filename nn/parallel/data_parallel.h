#pragma once
// Training on a batch that several processes share. A step is
//
//   const Share mine = share_of(examples, ranks);
//   optimizer.clear_gradients();
//   if (mine.size() > 0) backward(mean_loss_of(mine.begin, mine.end), mine.weight);
//   sum_gradients(optimizer.parameters(), ranks);
//   optimizer.step();
//
// The mean over the batch is the sum over ranks of weight times the mean over the part, and so is its gradient. What an
// example draws must be named by its place in the whole batch: Generator::set_first_example(mine.begin).
//
// Instead of summing gradients in every step, ranks may train by themselves and average their weights now and then (the
// paper's appendix C.3.2): backward() without the weight, no sum_gradients(), and every few steps average_weights().
#include <cstdint>
#include <vector>

#include "autograd/variable.h"
#include "nn/optim/optimizer.h"
#include "nn/parallel/communicator.h"

namespace cairn {

// A rank's part of a batch: examples [begin, end), and which fraction of the batch they are. Parts differ by one
// example at most; with fewer examples than ranks, some are empty.
struct Share {
  int64_t begin = 0, end = 0;
  double weight = 1;
  int64_t size() const { return end - begin; }
};
Share share_of(int64_t examples, const Communicator& ranks);

// Gives each parameter, on all ranks, the sum of its gradients over the ranks. A missing gradient counts as zeros; one
// that is missing on every rank stays missing.
void sum_gradients(const std::vector<Variable>& parameters, Communicator& ranks);

// Gives all ranks the mean of their weights and of their optimizers' moments, and rank 0's count of steps and learning
// rate.
void average_weights(Optimizer& optimizer, Communicator& ranks);
// Gives all ranks the weights, the moments, the count of steps and the learning rate of rank 0.
void broadcast_weights(Optimizer& optimizer, Communicator& ranks);

}  // namespace cairn
