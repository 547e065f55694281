#pragma once
// Training on a batch that several processes share: each computes the gradients of its part of the examples, and all
// get the sum, while backward still runs.
//
//   DataParallel parallel(ranks, parameters(model));
//   ...
//   optimizer.clear_gradients();
//   const Tensor loss = parallel.backward(batch, [&](int64_t begin, int64_t end) { return loss_of(begin, end); });
//   optimizer.step();
//
// What an example draws must be named by its place in the whole batch: Generator::set_first_example(begin).
#include <functional>
#include <unordered_map>
#include <vector>

#include "autograd/tape.h"
#include "nn/optim/optimizer.h"
#include "nn/parallel/communicator.h"

namespace cairn {

class DataParallel {
 public:
  // ordered: each example goes forward and backward by itself, and gradients are added up pair by pair in an order that
  // the batch alone decides, so that any number of ranks gives the same bits. It takes about as long as so many
  // batches of one example.
  DataParallel(Communicator& ranks, std::vector<Variable> parameters, bool ordered = false);

  // Gives every parameter, on all ranks, the gradient of the mean loss over a batch of `examples`. loss(begin, end):
  // the mean loss over these examples of the batch, a scalar. Returns the mean over all, a scalar. The gradients before
  // must have been cleared. Errors: fewer examples than ranks (UsageError); as backward().
  Tensor backward(int64_t examples, const std::function<Variable(int64_t begin, int64_t end)>& loss);

 private:
  // All gradients in one tensor, the last parameter's first: backward reaches them in about this order.
  struct Gradients {
    Tensor numbers;
    std::vector<bool> given;  // has the parameter one?
  };
  // Some of them, next to each other, that are summed in one message.
  struct Bucket {
    int64_t begin = 0, end = 0;  // elements
    size_t parameters = 0, missing = 0;
  };
  // A sum over the examples [begin, begin + size).
  struct PartialSum {
    int64_t begin, size;
    Gradients gradients;
  };

  Gradients no_gradients() const;
  void take(Gradients& to, size_t parameter);
  void give(const Gradients& from);
  void start_full_buckets(const Gradients& gradients);
  Tensor backward_part(Part part, int64_t examples, const std::function<Variable(int64_t, int64_t)>& loss);
  Tensor backward_ordered(Part part, int64_t examples, const std::function<Variable(int64_t, int64_t)>& loss);
  static void push(std::vector<PartialSum>& sums, PartialSum next);

  Communicator& ranks_;
  std::vector<Variable> parameters_;  // the last one first
  bool ordered_;
  std::vector<int64_t> offset_;                               // of each one's gradient, and behind the last
  std::unordered_map<const Variable::State*, size_t> index_;  // in parameters_
  std::vector<size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;  // the first that was not started
};

// Gives all ranks the parameters and the optimizer of rank 0: numbers, moments, counts, learning rate.
void share(Communicator& ranks, Optimizer& optimizer);
// Error: some rank's parameters are not those of rank 0, to the bit.
void check_shared(Communicator& ranks, const std::vector<Variable>& parameters);

}  // namespace cairn
