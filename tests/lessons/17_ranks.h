#pragma once
// The check of lesson 17, which apps/lessons/17_ranks.cpp includes at its end.
#include <exception>

// Calls f(ranks) on each of `size` ranks, of which `first` has the first turn. Throws the first error.
template <class F>
void on_ranks(int size, int first, F&& f) {
  Team team(size, first);
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      team.await_turn(rank);
      try {
        ThreadRank ranks(team, rank);
        f(ranks);
      } catch (...) {
        if (!error) error = std::current_exception();
        team.failed = true;
      }
      team.ended[size_t(rank)] = true;
      team.end_turn();
    });
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

void check_sum(int size, int first) {
  on_ranks(size, first, [&](ThreadRank& ranks) {
    for (const float scale : {1.0f, 100.0f}) {
      std::vector<float> numbers(4), expected(4);
      for (size_t i = 0; i < 4; ++i)
        for (int rank = 0; rank < size; ++rank) {
          const float number = scale / float(int(i) + 3 * rank + 1);
          expected[i] += number;
          if (rank == ranks.rank()) numbers[i] = number;
        }
      Tensor memory = Tensor::zeros({6}), x = memory.slice(1, 5);
      x.copy_from(Tensor::from(numbers, {4}));
      ranks.sum(x);
      check(x.data<float>() == memory.data<float>() + 1, "sum: x is another tensor now, elsewhere in memory");
      for (int64_t i = 0; i < 4; ++i) {
        const float found = x.at<float>({i});
        check(std::abs(found - expected[size_t(i)]) < 1e-4f * scale, "sum: rank ", ranks.rank(), " of ", size, " has ",
              found, ", expected ", expected[size_t(i)], scale > 1 ? ", in a second sum" : "");
        check(found == expected[size_t(i)], "sum: rank ", ranks.rank(), " of ", size, " has other bits than rank 0");
      }
    }
  });
}

void check_shares() {
  for (const int64_t examples : {7, 2})
    on_ranks(3, 0, [&](ThreadRank& ranks) {
      const int64_t ends[] = {0, examples == 7 ? 3 : 1, examples == 7 ? 5 : 2, examples};
      const Share mine = share_of(examples, ranks);
      const int64_t begin = ends[ranks.rank()], end = ends[ranks.rank() + 1];
      check(mine.begin == begin && mine.end == end, "share_of: ", examples, " examples, rank ", ranks.rank(),
            " of 3 has ", mine.begin, " to ", mine.end, ", expected ", begin, " to ", end);
      check(std::abs(mine.weight - double(end - begin) / double(examples)) < 1e-9, "share_of: the weight of ",
            end - begin, " of ", examples, " examples is ", mine.weight);
    });
}

// Rank 1 alone has a gradient of the first parameter, no rank one of the second, and both have one of the third.
void check_gradients() {
  on_ranks(2, 0, [](ThreadRank& ranks) {
    std::vector<Variable> parameters;
    for (const int64_t size : {2, 3, 1}) parameters.push_back(Variable(Tensor::zeros({size}), true));
    if (ranks.rank() == 1) parameters[0].state().grad = Tensor::full({2}, 1);
    parameters[2].state().grad = Tensor::full({1}, 2);
    sum_gradients(parameters, ranks);
    check(parameters[0].grad().defined(), "sum_gradients: rank ", ranks.rank(), " lacks a gradient that rank 1 had");
    check(!parameters[1].grad().defined(), "sum_gradients: rank ", ranks.rank(), " has a gradient that no rank had");
    const float of_one = parameters[0].grad().at<float>({1}), of_both = parameters[2].grad().at<float>({0});
    check(of_one == 1 && of_both == 4, "sum_gradients: a gradient of 1 on one rank became ", of_one,
          ", and one of 2 on both ranks became ", of_both, ", expected 1 and 4");
  });
}

// Two steps that change no weight have different losses, since they drop different numbers.
void check_dropout() {
  Communicator alone;
  Generator generator(1);
  Model model(generator);
  Adam optimizer(parameters(model), 0);
  const Tensor x = Tensor::full({4, 2}, 1), y = Tensor::from(std::vector<int>(4), {4});
  const double before = learn(model, x, y, optimizer, generator, alone);
  generator.set_step(1);
  check(learn(model, x, y, optimizer, generator, alone) != before,
        "learn: without a new weight, two steps have the same loss: no dropout");
}

// The losses of 60 steps, of which each fourth has `fourth` examples, and in `weights` those of each rank after them.
std::vector<double> losses(int size, int64_t fourth, bool forgets, std::vector<Tensor>& weights) {
  std::vector<double> result;
  weights.resize(size_t(size));
  on_ranks(size, 0, [&](ThreadRank& ranks) {
    Communicator alone;
    Generator generator(1);
    Model model(generator);
    Adam optimizer(parameters(model), 0.02);
    RandomStream random(1, 0, Purpose::data);
    for (int step = 0; step < 60; ++step) {
      const int64_t n = step % 4 == 3 ? fourth : 7;
      Tensor x = random_uniform({n, 2}, -1, 1, random);  // all ranks draw the whole batch
      std::vector<int> inside;
      for (int64_t i = 0; i < n; ++i) inside.push_back(std::hypot(x.at<float>({i, 0}), x.at<float>({i, 1})) < 0.7f);
      Tensor y = Tensor::from(inside, {n});
      generator.set_step(uint64_t(step));
      const Share mine = share_of(n, ranks);
      if (forgets) x = x.slice(mine.begin, mine.end), y = y.slice(mine.begin, mine.end);
      const double loss = learn(model, x, y, optimizer, generator, forgets ? alone : ranks);
      if (ranks.rank() == 0) result.push_back(loss);
    }
    weights[size_t(ranks.rank())] = model.hidden.weight.value();
  });
  return result;
}

double apart(const std::vector<Tensor>& weights) {
  const std::vector<float> a = weights[0].to_vector<float>(), b = weights[1].to_vector<float>();
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, double(std::abs(a[i] - b[i])));
  return most;
}

int main() try {
  set_threads(1);  // of each rank
  for (const int size : {2, 3})
    for (int first = 0; first < size; ++first) check_sum(size, first);
  check_shares();
  check_gradients();
  check_dropout();
  std::vector<Tensor> weights;
  for (const int size : {2, 3, 8}) {
    const int64_t fourth = size < 8 ? 7 : 1;  // of one example, one rank alone has gradients
    const std::vector<double> one = losses(1, fourth, false, weights), several = losses(size, fourth, false, weights);
    check(apart(weights) == 0, "learn: on ", size, " ranks, the weights of ranks 0 and 1 differ by up to ",
          apart(weights));
    for (size_t i = 0; i < one.size(); ++i)
      check(std::abs(several[i] - one[i]) < 1e-4, "learn: on ", size, " ranks, the loss of step ", i, " is ",
            several[i], ", expected ", one[i]);
  }
  std::vector<Tensor> astray;
  losses(3, 7, true, astray);
  std::printf(
      "the losses of one rank are those of 2, 3 and 8\n"
      "3 ranks that forget the sum: weights of ranks 0 and 1 differ by up to %.2f\n",
      apart(astray));
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  return 1;
}
