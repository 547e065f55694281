// Training, by a loop of this test and by the copy task's.
#include "apps/common/training.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apps/copy_task/train.h"
#include "autograd/ops.h"
#include "core/parallel.h"
#include "nn/io/file.h"
#include "nn/layers.h"
#include "tests/attention/spec_of.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Net : Module {
  Linear weight;
  explicit Net(Generator& generator) : weight(1, 1, generator) {}
  void fields(Fields& f) override { f("weight", weight); }
};

// Learns 2 x from sequences of different lengths, whose padding does not count. The test gives the scores of the
// evaluations, so it decides when they improve.
TrainState train_net(const fs::path& folder, const std::vector<double>& scores, const TrainingOptions& options) {
  Generator generator(1);
  Net net(generator);
  Training training({folder, Json::object(), true}, options, net);
  size_t evaluations = 0;
  while (training.next()) {
    RandomStream random(3, uint64_t(training.step()), Purpose::data);
    const int64_t batch = 1 + random.below(4);
    Variable sum;
    for (int64_t i = 0; i < batch; ++i) {
      std::vector<float> x(1 + random.below(6));
      for (float& each : x) each = float(random.below(100)) / 100;
      const Variable row(Tensor::from(x, {int64_t(x.size()), 1}));
      const Variable loss = mean(square(net.weight(row) - row * 2.0f));
      sum = sum.defined() ? sum + loss : loss;
    }
    training.learn(sum * float(1.0 / double(batch)));
    training.evaluate([&]() -> Evaluation {
      const double score = scores.at(evaluations++);
      return {{{"error", score}}, score};
    });
  }
  return training.state();
}

TrainingOptions of_steps(int64_t iterations, int64_t evaluate_every) {
  TrainingOptions options;
  options.iterations = iterations;
  options.evaluate_every = evaluate_every;
  options.learning_rate = 0.1;
  return options;
}

// metrics.jsonl without times.
std::vector<Json> records_of(const fs::path& folder) {
  std::vector<Json> records = RunFolder(folder, Json::object()).lines();
  for (Json& record : records) record.erase("seconds");
  return records;
}

void check_same_run(const fs::path& a, const fs::path& b) {
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
    CHECK(read_file(a / "checkpoint" / file) == read_file(b / "checkpoint" / file));
  CHECK(records_of(a) == records_of(b));
}

Settings small_copy_task() {
  Settings settings;
  settings.length = 9;
  settings.batch = 3;
  settings.sequences = 8;
  settings.training = of_steps(11, 4);
  settings.training.checkpoint_every = 3;
  settings.model.layers = 2;
  settings.model.heads = 3;
  settings.model.head_size = 8;
  settings.model.feed_forward = 24;
  return settings;
}

void train_copy_task(const fs::path& folder, Settings settings, int64_t iterations) {
  settings.training.iterations = iterations;
  train({folder, Json::object(), true}, settings, {});
}

}  // namespace

TEST_CASE("a program of batches of different sizes learns, and resumes bit for bit", "[training]") {
  const TemporaryFolder whole, parts;
  train_net(whole.path(), {1, 0.5}, of_steps(100, 50));
  const std::vector<Json> records = records_of(whole.path());
  REQUIRE(records.size() == 100);
  CHECK(records[99].at("loss").get<double>() < 0.1 * records[0].at("loss").get<double>());
  CHECK(records[49].at("evaluation") == Json({{"error", 1.0}}));
  train_net(parts.path(), {}, of_steps(30, 50));
  train_net(parts.path(), {1}, of_steps(70, 50));
  train_net(parts.path(), {0.5}, of_steps(100, 50));
  check_same_run(whole.path(), parts.path());
}

TEST_CASE("the best model is kept, and training ends when the score stops improving", "[training]") {
  const TemporaryFolder folder, parts, until;
  TrainingOptions options = of_steps(100, 5);
  options.keep_best = true;
  options.patience = 3;
  const std::vector<double> scores{5, 3, NAN, 2, 2.5, 2, 4};
  const TrainState state = train_net(folder.path(), scores, options);
  CHECK(state.ended);
  CHECK(state.step == 35);  // three evaluations after step 20
  CHECK(state.best == 2);
  const auto best = find_checkpoint(folder / "best");
  REQUIRE(best);
  CHECK(state_of(*best).step == 20);
  train_net(until.path(), scores, of_steps(20, 5));
  CHECK(best->weights.read("weight.weight").to_vector<float>() ==
        find_checkpoint(until.path())->weights.read("weight.weight").to_vector<float>());

  // A resumed run remembers the best score and when it was.
  options.iterations = 25;
  train_net(parts.path(), scores, options);
  options.iterations = 100;
  CHECK(train_net(parts.path(), {2, 4}, options).step == 35);
}

TEST_CASE("calls in a wrong order say what to call", "[training]") {
  Generator generator(1);
  Net net(generator);
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  Training training({"", Json::object(), true}, of_steps(2, 1), net);
  const auto evaluate = [&] { training.evaluate([] { return Evaluation{}; }); };
  const auto learn = [&] { training.learn(sum(square(net.weight(Variable(Tensor::full({1, 1}, 1)))))); };
  CHECK_THAT(message_of(learn), ContainsSubstring("call next() before it"));
  CHECK_THAT(message_of(evaluate), ContainsSubstring("call it at the end of a step"));
  CHECK(training.next());
  CHECK_THAT(message_of([&] { training.next(); }), ContainsSubstring("call learn() once in each step"));
  learn();
  CHECK_THAT(message_of(learn), ContainsSubstring("and learn() once"));
  evaluate();
  CHECK_THAT(message_of([&] { training.result([] { return Json(); }); }), ContainsSubstring("until it returns false"));
  CHECK(training.next());
}

TEST_CASE("training with every attention variant resumes bit for bit, on any number of threads", "[training]") {
  const int before = threads();
  for (const auto* variant : attention_variants()) {
    Settings settings = small_copy_task();
    settings.model.dropout = settings.model.attention_dropout = 0.1;
    settings.model.attention = spec_of(*variant, 4, 5);
    INFO(settings.model.attention);
    const TemporaryFolder whole, parts;
    set_threads(2);
    train_copy_task(whole.path(), settings, 11);
    train_copy_task(parts.path(), settings, 2);
    set_threads(3);
    train_copy_task(parts.path(), settings, 7);
    set_threads(1);
    train_copy_task(parts.path(), settings, 11);
    check_same_run(whole.path(), parts.path());
    CHECK(records_of(whole.path()).size() == 11);
  }
  set_threads(before);
}

TEST_CASE("a plateau of the loss drops the learning rate, also where a run is resumed", "[training]") {
  Settings settings = small_copy_task();
  TrainingOptions& options = settings.training;
  options.learning_rate = 1e-2;
  options.evaluate_every = 1;
  options.schedule = TrainingOptions::Rate::plateau;
  options.plateau = {.factor = 0.5, .patience = 1, .threshold = 0.05};
  const TemporaryFolder whole, parts;
  train_copy_task(whole.path(), settings, 16);
  train_copy_task(parts.path(), settings, 9);
  train_copy_task(parts.path(), settings, 16);
  check_same_run(whole.path(), parts.path());
  CHECK(records_of(whole.path())[8].at("learning_rate") < options.learning_rate);
}

TEST_CASE("options reach the optimizer and the schedule of a training", "[training]") {
  // The first step from 2 against a gradient of 8: R-Adam goes the rate times the gradient, Adam the rate.
  const auto step_of = [](const Json& values, int64_t steps_before = 0) {
    TrainingOptions options;
    SettingFields fields;
    options.fields(fields);
    fields.assign(fields.checked(values, "options"));
    Variable w(Tensor::full({1}, 2), true);
    const auto optimizer = options.make_optimizer({w});
    optimizer->set_learning_rate(options.make_schedule()->learning_rate(steps_before));
    backward(8 * sum(w));
    optimizer->step();
    return 2 - w.value().item();
  };
  CHECK(step_of({{"lr", 0.01}}) == Approx(0.08));
  CHECK(step_of({{"lr", 0.01}, {"clip", 2}}) == Approx(0.02));
  CHECK(step_of({{"lr", 0.01}, {"weight_decay", 0.5}}) == Approx(0.08 + 0.01 * 0.5 * 2));
  CHECK(step_of({{"lr", 0.01}, {"optimizer", "adam"}}) == Approx(0.01));
  CHECK(step_of({{"lr", 0.01}, {"warm_up", 4}}) == Approx(0.08 / 4));
  CHECK(step_of({{"lr", 0.01}, {"schedule", "linear"}, {"iterations", 4}}, 1) == Approx(0.06));
  CHECK(step_of({{"lr", 0.01}, {"schedule", "linear"}, {"iterations", 0}}) == Approx(0.08));
}

TEST_CASE("each step has its own sequences and draws", "[training]") {
  // A learning rate of 0 keeps the weights, so each loss can be computed a second time.
  Settings settings = small_copy_task();
  settings.training = of_steps(4, 4);
  settings.training.learning_rate = 0;
  settings.model.attention = "clustered-3";
  settings.model.dropout = settings.model.attention_dropout = 0.3;
  const TemporaryFolder folder;
  train_copy_task(folder.path(), settings, 4);
  const auto seed = uint64_t(settings.compute.seed);
  Generator generator(seed);
  Model model(settings, generator);
  std::set<double> losses;
  for (const Json& record : records_of(folder.path())) {
    const auto step = uint64_t(losses.size());
    generator.set_step(step);
    RandomStream random(seed, step, Purpose::data);
    const Batch batch = make_batch(settings.batch, settings.length, random);
    const Variable logits = model(batch.input, {.training = true, .generator = &generator});
    const double loss = cross_entropy(logits, batch.target).value().item();
    CHECK(record.at("loss").get<double>() == loss);
    losses.insert(loss);
  }
  CHECK(losses.size() == 4);  // all different
}
