// Training on several ranks, which are threads here, without MPI. tests/mpi/check.py runs the program under MPI.
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "apps/copy_task/train.h"
#include "nn/optim/adam.h"
#include "nn/parallel/data_parallel.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;  // NOLINT: tests only

namespace {

// Ranks that are threads of this process. A rank that fails does not let the others wait.
struct Threads {
  explicit Threads(int size) : tensors(size_t(size)), meeting(size) {}

  std::vector<Tensor*> tensors;  // by rank, the tensor to sum or broadcast
  std::barrier<> meeting;
  std::atomic<bool> failed = false;

  void meet() {
    meeting.arrive_and_wait();
    check(!failed, "another rank has failed");
  }
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(Threads& all, int rank) : all_(all), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return int(all_.tensors.size()); }
  void sum(Tensor& x) override {
    gather(x);
    if (rank_ == 0) {
      for (size_t rank = 1; rank < all_.tensors.size(); ++rank) accumulate(x, *all_.tensors[rank]);
    }
    scatter(x);
  }
  void broadcast(Tensor& x) override {
    gather(x);
    scatter(x);
  }

 private:
  void gather(Tensor& x) {
    all_.tensors[size_t(rank_)] = &x;
    all_.meet();
  }
  void scatter(Tensor& x) {
    all_.meet();
    if (rank_ > 0) x.copy_from(*all_.tensors[0]);
    all_.meet();
  }

  Threads& all_;
  int rank_;
};

// Runs f(communicator) on each rank. Throws the error of the rank that failed first.
template <class F>
void on_ranks(int size, F&& f) {
  const OneThread one_thread;
  Threads all(size);
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ThreadRank ranks(all, rank);
        f(ranks);
      } catch (...) {
        if (!all.failed.exchange(true)) first = std::current_exception();
        all.meeting.arrive_and_drop();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// A layer, a parameter that only the first example uses, and one that no example uses.
struct Problem {
  Tensor x, y;
  Variable w, rare, unused, bias;

  explicit Problem(int64_t examples)
      : x(random_tensor({examples, 4}, DType::float32, 1)),
        y(random_tensor({examples, 3}, DType::float32, 2)),
        w(random_tensor({4, 3}, DType::float32, 3), true),
        rare(random_tensor({7}, DType::float32, 4), true),
        unused(random_tensor({5}, DType::float32, 5), true),
        bias(random_tensor({3}, DType::float32, 6), true) {}

  std::vector<Variable> parameters() const { return {w, rare, unused, bias}; }
  Variable mean_loss(int64_t begin, int64_t end) const {
    const Variable out = matmul(Variable(x.slice(begin, end)), w) + bias;
    const Variable loss = mean(square(out - Variable(y.slice(begin, end))));
    if (begin > 0) return loss;
    return loss + sum(square(rare)) * Variable(Tensor::full({}, 1 / double(end), DType::float32));
  }
};

}  // namespace

TEST_CASE("a value and a text of rank 0 reach all ranks", "[parallel]") {
  std::array<std::string, 3> texts;
  std::array<double, 3> values{}, sums{};
  on_ranks(3, [&](ThreadRank& ranks) {
    const auto rank = size_t(ranks.rank());
    const double own = double(rank) + 5;
    texts[rank] = of_rank_0(ranks, std::string(rank == 0 ? "of rank 0" : ""));
    if (!of_rank_0(ranks, std::string(rank == 0 ? "" : "of others")).empty()) texts[rank] = "expected nothing";
    values[rank] = of_rank_0(ranks, own);
    sums[rank] = sum(ranks, own);
  });
  CHECK(texts == std::array<std::string, 3>{"of rank 0", "of rank 0", "of rank 0"});
  CHECK(values == std::array<double, 3>{5, 5, 5});
  CHECK(sums == std::array<double, 3>{18, 18, 18});
}

TEST_CASE("ranks that share a batch get the gradients of one process, of each parameter that any of them used",
          "[parallel]") {
  for (const int64_t examples : {2, 7}) {
    const Problem one(examples);
    const Variable loss = one.mean_loss(0, examples);
    backward(loss);
    for (const int size : {1, 2, 3, 7}) {  // some have no example
      INFO(examples << " examples, " << size << " ranks");
      std::vector<double> losses(static_cast<size_t>(size));
      std::vector<std::vector<Tensor>> gradients(static_cast<size_t>(size));
      on_ranks(size, [&](ThreadRank& ranks) {
        const Problem own(examples);
        const Share mine = share_of(examples, ranks);
        double part = 0;
        if (mine.size() > 0) {
          const Variable its_loss = own.mean_loss(mine.begin, mine.end);
          backward(its_loss, mine.weight);
          part = mine.weight * its_loss.value().item();
        }
        sum_gradients(own.parameters(), ranks);
        const auto rank = size_t(ranks.rank());
        losses[rank] = sum(ranks, part);
        for (const Variable& parameter : own.parameters()) gradients[rank].push_back(parameter.grad());
      });
      for (size_t rank = 0; rank < gradients.size(); ++rank) {
        CHECK(losses[rank] == Approx(loss.value().item()).epsilon(1e-6));
        CHECK_FALSE(gradients[rank][2].defined());
        for (const size_t i : {0, 1, 3}) {
          REQUIRE(gradients[rank][i].defined());
          CHECK(same_bits(gradients[rank][i], gradients[0][i]));
          CHECK(difference(gradients[rank][i], one.parameters()[i].grad()) <= tolerance::float32);
        }
      }
    }
  }
}

TEST_CASE("ranks get the mean of weights and moments, or those of rank 0", "[parallel]") {
  for (const bool average : {true, false}) {
    std::array<std::vector<Tensor>, 3> before, after;
    std::array<OptimizerState, 3> states{};
    on_ranks(3, [&](ThreadRank& ranks) {
      const auto rank = size_t(ranks.rank());
      Variable x(random_tensor({5}, DType::float32, rank), true);
      RAdam optimizer({x}, 0.25);
      const auto tensors = [&] {
        std::vector<Tensor> copies{x.value().clone()};
        for (const auto& [name, moment] : optimizer.moments()) copies.push_back(moment.clone());
        return copies;
      };
      for (size_t step = 0; step <= rank; ++step) {
        x.mutable_grad() = random_tensor({5}, DType::float32, 10 * rank + step);
        optimizer.step();
      }
      before[rank] = tensors();
      average ? average_weights(optimizer, ranks) : broadcast_weights(optimizer, ranks);
      after[rank] = tensors();
      states[rank] = optimizer.state();
    });
    REQUIRE(before[0].size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      const Tensor sum = binary(Binary::add, binary(Binary::add, before[0][i], before[1][i]), before[2][i]).value();
      CHECK(difference(after[0][i], average ? affine(sum, 1. / 3).value() : before[0][i]) <=
            (average ? tolerance::float32 : 0));
      for (const size_t rank : {1, 2}) CHECK(same_bits(after[rank][i], after[0][i]));
    }
    for (const OptimizerState& state : states) CHECK(state.step == 1);
  }
}

TEST_CASE("a training on ranks has the losses of one process", "[parallel][copy-task]") {
  using namespace copy_task;
  Settings settings;
  settings.length = 5;
  settings.batch = 7;
  settings.compute.seed = 3;
  settings.training.iterations = 20;
  settings.training.learning_rate = 3e-3;
  settings.training.evaluate_every = 10;
  settings.model.layers = settings.model.heads = 2;
  settings.model.head_size = 4;
  settings.model.feed_forward = 8;
  settings.model.dropout = settings.model.attention_dropout = 0.1;
  settings.model.attention = "full";
  const auto losses = [&](int size) {
    const TemporaryFolder folder;
    on_ranks(size, [&](ThreadRank& ranks) {
      train({ranks.rank() == 0 ? folder.path() : "", Json::object(), true, "", ranks}, settings, {});
    });
    std::vector<double> result;
    for (const Json& line : RunFolder(folder.path(), Json::object()).lines()) result.push_back(line.at("loss"));
    return result;
  };
  const std::vector<double> one = losses(1);
  REQUIRE(one.size() == 20);
  for (const int size : {2, 3, 8}) {  // one of eight ranks has no sequence
    INFO(size << " ranks");
    const std::vector<double> other = losses(size);
    REQUIRE(other.size() == one.size());
    for (size_t i = 0; i < one.size(); ++i) CHECK(std::abs(other[i] - one[i]) <= 1e-4);
  }
}
