#include "nn/parallel/data_parallel.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "core/ops.h"
#include "core/trace.h"
#include "nn/io/hash.h"

namespace cairn {
namespace {

// Large enough that a message's latency does not count (1 MB takes some 800 us at 10 Gbit/s), small enough that the
// first sum starts early.
constexpr int64_t bucket_bytes = 1 << 20;

Tensor scalar(double value, const Variable& like) {
  return Tensor::full(like.shape(), value, like.dtype(), like.device());
}

// How many examples from `begin` on push() joins to one sum, of those before `end`: the largest power of two that
// divides begin and fits.
int64_t joint_size(int64_t begin, int64_t end) {
  int64_t size = 1;
  while (begin % (2 * size) == 0 && begin + 2 * size <= end) size *= 2;
  return size;
}

}  // namespace

DataParallel::DataParallel(Communicator& ranks, std::vector<Variable> parameters, bool ordered)
    : ranks_(ranks), parameters_(std::move(parameters)), ordered_(ordered), offset_{0} {
  check(!parameters_.empty(), "data parallel: there are no parameters");
  std::reverse(parameters_.begin(), parameters_.end());
  for (const Variable& x : parameters_) {
    check(x.dtype() == parameters_[0].dtype() && x.device() == parameters_[0].device(),
          "data parallel: the parameters differ in type or device");
    if (buckets_.empty() || (offset_.back() - buckets_.back().begin) * int64_t(size_of(x.dtype())) >= bucket_bytes)
      buckets_.push_back({offset_.back(), offset_.back(), 0, 0});
    index_.emplace(&x.state(), offset_.size() - 1);
    offset_.push_back(offset_.back() + x.value().elements());
    bucket_of_.push_back(buckets_.size() - 1);
    buckets_.back().end = offset_.back();
    ++buckets_.back().parameters;
  }
}

Tensor DataParallel::backward(int64_t examples, const std::function<Variable(int64_t, int64_t)>& loss) {
  check<UsageError>(examples >= ranks_.size(), "data parallel: a batch of ", examples, " for ", ranks_.size(),
                    " processes, expected at least one example each");
  const Part part = part_of(examples, ranks_.rank(), ranks_.size());
  if (ordered_) return backward_ordered(part, examples, loss);
  if (ranks_.size() > 1) return backward_part(part, examples, loss);
  const Variable mean = loss(0, examples);
  cairn::backward(mean);
  return mean.value();
}

DataParallel::Gradients DataParallel::no_gradients() const {
  return {Tensor::zeros({offset_.back()}, parameters_[0].dtype(), parameters_[0].device()),
          std::vector<bool>(parameters_.size())};
}

// Moves the gradient of a parameter to its place.
void DataParallel::take(Gradients& to, size_t parameter) {
  Variable& x = parameters_[parameter];
  to.numbers.slice(offset_[parameter], offset_[parameter + 1]).reshape(x.shape()).copy_from(x.grad());
  to.given[parameter] = true;
  x.clear_grad();
}

// The parameters' gradients are parts of `from` from now on.
void DataParallel::give(const Gradients& from) {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (from.given[i])
      parameters_[i].mutable_grad() = from.numbers.slice(offset_[i], offset_[i + 1]).reshape(parameters_[i].shape());
}

// All ranks start the same sums in the same order, whatever the order of their gradients.
void DataParallel::start_full_buckets(const Gradients& gradients) {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_)
    ranks_.start_sum(gradients.numbers.slice(buckets_[next_bucket_].begin, buckets_[next_bucket_].end));
}

// The mean over the batch is the sum over ranks of (share of the batch) * (mean over the share), and so is its
// gradient.
Tensor DataParallel::backward_part(Part part, int64_t examples, const std::function<Variable(int64_t, int64_t)>& loss) {
  const double share = double(part.size()) / double(examples);
  Gradients sum = no_gradients();
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  next_bucket_ = 0;

  const Variable mean = loss(part.begin, part.end);
  cairn::backward(mean, scalar(share, mean), [&](const Variable::State& leaf) {
    const auto found = index_.find(&leaf);
    if (found == index_.end()) return;  // another's
    take(sum, found->second);
    --buckets_[bucket_of_[found->second]].missing;
    start_full_buckets(sum);
    ranks_.progress();
  });
  const trace::Span span("sum over ranks", "module");
  for (Bucket& bucket : buckets_) bucket.missing = 0;  // those parameters have no gradient, on any rank
  start_full_buckets(sum);
  Tensor total = Tensor::full({1}, share * mean.value().item(), DType::float64);
  ranks_.start_sum(total);
  ranks_.wait();
  give(sum);
  return total;
}

// Adds a sum behind the others. Two of one size become one where the first begins at a multiple of their joint size: so
// who adds what to what depends on the places in the batch alone.
void DataParallel::push(std::vector<PartialSum>& sums, PartialSum next) {
  while (!sums.empty() && sums.back().size == next.size && sums.back().begin % (2 * next.size) == 0) {
    PartialSum& before = sums.back();
    accumulate(before.gradients.numbers, next.gradients.numbers);
    before.size *= 2;
    next = std::move(before);
    sums.pop_back();
  }
  sums.push_back(std::move(next));
}

Tensor DataParallel::backward_ordered(Part part, int64_t examples,
                                      const std::function<Variable(int64_t, int64_t)>& loss) {
  std::vector<PartialSum> own;
  Tensor losses = Tensor::zeros({examples}, DType::float64);
  for (int64_t i = part.begin; i < part.end; ++i) {
    const Variable mean = loss(i, i + 1);
    cairn::backward(mean, scalar(1 / double(examples), mean));
    losses.mutable_data<double>()[i] = mean.value().item();
    PartialSum next{i, 1, no_gradients()};
    for (size_t x = 0; x < parameters_.size(); ++x)
      if (parameters_[x].grad().defined()) take(next.gradients, x);
    push(own, std::move(next));
  }

  const trace::Span span("sum over ranks", "module");
  ranks_.start_sum(losses);  // each has zeros where others have theirs
  ranks_.wait();
  const std::vector<bool> given = own[0].gradients.given;  // for every example the same
  std::vector<PartialSum> all;
  auto mine = own.begin();
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const Part its = part_of(examples, rank, ranks_.size());
    for (int64_t begin = its.begin, size = 0; begin < its.end; begin += size) {
      size = joint_size(begin, its.end);
      PartialSum next = rank == ranks_.rank() ? std::move(*mine++) : PartialSum{begin, size, no_gradients()};
      ranks_.broadcast(next.gradients.numbers, rank);
      push(all, std::move(next));
    }
  }
  for (; all.size() > 1; all.pop_back()) accumulate(all.end()[-2].gradients.numbers, all.back().gradients.numbers);
  all[0].gradients.given = given;
  give(all[0].gradients);
  double total = 0;
  for (int64_t i = 0; i < examples; ++i) total += losses.data<double>()[i];
  return Tensor::full({1}, total / double(examples), DType::float64);
}

void share(Communicator& ranks, Optimizer& optimizer) {
  if (ranks.size() == 1) return;
  for (Variable x : optimizer.parameters()) ranks.broadcast(x.mutable_value());
  for (Optimizer::Moment& moment : optimizer.moments()) ranks.broadcast(moment.tensor);
  OptimizerState state = optimizer.state();
  Tensor bytes({int64_t(sizeof state)}, DType::uint8);
  std::memcpy(bytes.mutable_raw(), &state, sizeof state);
  ranks.broadcast(bytes);
  std::memcpy(&state, bytes.raw(), sizeof state);
  optimizer.set_state(state);
}

void check_shared(Communicator& ranks, const std::vector<Variable>& parameters) {
  if (ranks.size() == 1) return;
  Xxh128 hash;
  for (const Variable& x : parameters) {
    const Tensor host = x.value().to(Device::cpu);
    hash.add(host.raw(), host.bytes());
  }
  const std::string trouble = difference(ranks, "parameters with the hash " + hash.text());
  check(trouble.empty(), "data parallel: the processes have parted: ", trouble,
        "; a machine's memory or network has a fault, or rounds differently");
}

}  // namespace cairn
