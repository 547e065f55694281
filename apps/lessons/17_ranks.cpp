// Lesson 17: ranks that train one model (apps/lessons/17_ranks.md). Here a rank is a thread.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "autograd/ops.h"
#include "core/parallel.h"
#include "nn/layers.h"
#include "nn/optim/adam.h"
#include "nn/parallel/data_parallel.h"
#include "nn/purpose.h"

using namespace cairn;

// What the ranks share. They take turns: each runs until it meets the others, so that a mistake is the same each time.
struct Team {
  std::vector<Tensor*> tensors;  // a place for each rank
  std::vector<int> meetings;     // of each rank
  std::vector<bool> ended;
  int turn;
  bool failed = false;  // a rank, whose tensors are gone
  std::mutex mutex{};
  std::condition_variable changed{};

  Team(int size, int first) : tensors(size_t(size)), meetings(size_t(size)), ended(size_t(size)), turn(first) {}
  void await_turn(int rank) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return turn == rank; });
  }
  void end_turn() {
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < ended.size() && (i == 0 || ended[size_t(turn)]); ++i) turn = (turn + 1) % int(ended.size());
    changed.notify_all();
  }
  // Waits until all ranks have called it as often.
  void meet(int rank) {
    ++meetings[size_t(rank)];
    end_turn();
    await_turn(rank);
    check(!failed, "another rank has failed");
    for (size_t other = 0; other < ended.size(); ++other)
      check(!ended[other] || meetings[other] >= meetings[size_t(rank)], "rank ", rank, " waits for rank ", other,
            ", which has ended");
  }
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(Team& all, int own) : team(all), own_rank(own) {}
  int rank() const override { return own_rank; }
  int size() const override { return int(team.tensors.size()); }

  // Adds up x over all ranks, in place, with the same bits on all of them. What other ranks wrote to memory is there
  // after team.meet(own_rank).
  void sum(Tensor& x) override {
    // [lesson 17
    team.tensors[size_t(own_rank)] = &x;
    team.meet(own_rank);
    Tensor total = team.tensors[0]->clone();
    for (size_t other = 1; other < team.tensors.size(); ++other) accumulate(total, *team.tensors[other]);
    team.meet(own_rank);
    x.copy_from(total);
    // lesson 17]
  }

  Team& team;
  int own_rank;
};

struct Model : Module {
  Linear hidden, output;

  explicit Model(Generator& generator) : hidden(2, 16, generator), output(16, 2, generator) {}
  void fields(Fields& f) override {
    f("hidden", hidden);
    f("output", output);
  }
  Variable operator()(const Tensor& x, const Context& context) const {
    return output(apply_dropout(tanh(hidden(x)), 0.2, context, Purpose::feed_forward_dropout));
  }
};

// One step with this rank's share of the batch x [examples, 2], y [examples]. Returns the mean loss of the whole batch.
double learn(Model& model, const Tensor& x, const Tensor& y, Optimizer& optimizer, Generator& generator,
             Communicator& ranks) {
  // [lesson 17
  const Share mine = share_of(x.size(0), ranks);
  generator.set_first_example(mine.begin);
  optimizer.clear_gradients();
  double part = 0;
  if (mine.size() > 0) {
    const Variable out = model(x.slice(mine.begin, mine.end), {.training = true, .generator = &generator});
    const Variable loss = cross_entropy(out, y.slice(mine.begin, mine.end));
    backward(loss, mine.weight);
    part = mine.weight * loss.value().item();
  }
  sum_gradients(optimizer.parameters(), ranks);
  optimizer.step();
  return sum(ranks, part);
  // lesson 17]
}

#include "tests/lessons/17_ranks.h"  // the check
