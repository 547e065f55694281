// The training loop, with a task of its own and with the copy task.
#include "apps/common/training.h"

#include <algorithm>
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
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

// A task that learns the mean of sequences of different lengths, as speech does. The test sets the scores, so it
// decides when they improve.
struct MeanOfSequence : Task {
  struct Net : Module {
    Linear weight;
    explicit Net(Generator& generator) : weight(1, 1, generator) {}
    void fields(Fields& f) override { f("weight", weight); }
  };

  explicit MeanOfSequence(std::vector<double> scores_) : scores(std::move(scores_)) {}
  Module& model() override { return net; }
  int64_t load(int64_t step) override {
    RandomStream random(3, uint64_t(step), Purpose::data);
    const int64_t batch = 1 + random.below(4), longest = 2 + random.below(5);
    x = Tensor({batch, longest, 1});
    lengths = Tensor({batch}, DType::int32);
    for (int64_t i = 0; i < batch; ++i)
      lengths.mutable_data<int32_t>()[i] = int32_t(1 + random.below(uint32_t(longest)));
    for (int64_t i = 0; i < x.elements(); ++i) x.mutable_data<float>()[i] = float(random.below(100)) / 100;
    return batch;
  }
  // The target is 2 x; padding does not count.
  Variable loss(int64_t begin, int64_t end) override {
    Variable sum;
    for (int64_t i = begin; i < end; ++i) {
      const Tensor row = x.slice(i, i + 1).reshape({x.size(1), 1}).slice(0, lengths.data<int32_t>()[i]);
      const Variable error = net.weight(Variable(row)) - Variable(row) * 2.0f;
      const Variable mean = cairn::mean(error * error);
      sum = sum.defined() ? sum + mean : mean;
    }
    return sum * float(1.0 / double(end - begin));
  }
  Evaluation evaluate(int64_t) override {
    const double score = scores.at(evaluations++);
    return {{{"error", score}}, score, false, ""};
  }

  std::vector<double> scores;
  size_t evaluations = 0;
  Generator generator{1};
  Net net{generator};
  Tensor x, lengths;
};

TrainingOptions of_steps(int64_t iterations, int64_t evaluate_every) {
  TrainingOptions options;
  options.iterations = iterations;
  options.evaluate_every = evaluate_every;
  options.learning_rate = 0.1;
  return options;
}

TrainState train_in(const fs::path& folder, Task& task, const TrainingOptions& options) {
  RunFolder run(folder, Json::object());
  Communicator alone;
  return train(task, options, run, true, alone);
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
  settings.training = of_steps(11, 4);
  settings.training.checkpoint_every = 3;
  settings.model.layers = 2;
  settings.model.heads = 3;
  settings.model.head_size = 8;
  settings.model.feed_forward = 24;
  return settings;
}

TrainState train_copy_task(const fs::path& folder, const Settings& settings, int64_t iterations) {
  CopyTask task(settings, {});
  TrainingOptions options = settings.training;
  options.iterations = iterations;
  return train_in(folder, task, options);
}

}  // namespace

TEST_CASE("a task of batches of different sizes learns, and resumes bit for bit", "[training]") {
  const TemporaryFolder whole, parts;
  MeanOfSequence task({1, 0.5});
  train_in(whole.path(), task, of_steps(100, 50));
  const std::vector<Json> records = records_of(whole.path());
  REQUIRE(records.size() == 100);
  CHECK(records[99].at("loss").get<double>() < 0.1 * records[0].at("loss").get<double>());
  CHECK(records[49].at("evaluation") == Json({{"error", 1.0}}));
  for (const int64_t iterations : {30, 70, 100}) {
    MeanOfSequence part({iterations == 70 ? 1 : 0.5});
    train_in(parts.path(), part, of_steps(iterations, 50));
  }
  check_same_run(whole.path(), parts.path());
}

TEST_CASE("the best model is kept, and training ends when the score stops improving", "[training]") {
  const TemporaryFolder folder, parts;
  TrainingOptions options = of_steps(100, 5);
  options.keep_best = true;
  options.patience = 3;
  const std::vector<double> scores{5, 3, NAN, 2, 2.5, 2, 4};
  MeanOfSequence task(scores);
  const TrainState state = train_in(folder.path(), task, options);
  CHECK(state.ended);
  CHECK(state.step == 35);  // three evaluations after step 20
  CHECK(state.best == 2);
  const auto best = find_checkpoint(folder / "best");
  REQUIRE(best);
  CHECK(state_of(*best).step == 20);
  MeanOfSequence again({scores.begin(), scores.begin() + 4});
  const TemporaryFolder until;
  train_in(until.path(), again, of_steps(20, 5));
  CHECK(best->weights.at("weight.weight").to_vector<float>() ==
        find_checkpoint(until.path())->weights.at("weight.weight").to_vector<float>());

  // A resumed run remembers the best score and when it was.
  MeanOfSequence first({scores.begin(), scores.begin() + 5}), second({scores.begin() + 5, scores.end()});
  options.iterations = 25;
  train_in(parts.path(), first, options);
  options.iterations = 100;
  CHECK(train_in(parts.path(), second, options).step == 35);
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

TEST_CASE("a plateau of the loss drops the learning rate", "[training]") {
  Settings settings = small_copy_task();
  TrainingOptions& options = settings.training;
  options.learning_rate = 1e-2;
  options.evaluate_every = 1;
  options.schedule = TrainingOptions::Rate::plateau;
  options.plateau.factor = 0.5;
  options.plateau.patience = 1;
  options.plateau.threshold = 0.05;
  const TemporaryFolder folder;
  train_copy_task(folder.path(), settings, 16);
  DropOnPlateau expected(options.learning_rate, options.plateau);
  for (const Json& record : records_of(folder.path())) {
    expected.observe(record.at("evaluation").at("loss"));
    CHECK(record.at("learning_rate") == expected.learning_rate(0));
  }
  CHECK(expected.learning_rate(0) < options.learning_rate / 2);
}

TEST_CASE("clipping and weight decay change a step by their formulas", "[training]") {
  // The first step of R-Adam is momentum alone: the learning rate times the gradient.
  Settings settings = small_copy_task();
  settings.training.learning_rate = 1e-2;
  const auto weights_after = [&](const fs::path& folder, int64_t iterations) {
    train_copy_task(folder, settings, iterations);
    return find_checkpoint(folder)->weights.at("output.weight").to_vector<float>();
  };
  const TemporaryFolder none, one, clip, decay;
  const auto start = weights_after(none.path(), 0), plain = weights_after(one.path(), 1);
  settings.training.clip = records_of(one.path())[0].at("gradient_norm").get<double>() / 4;
  const auto clipped = weights_after(clip.path(), 1);
  settings.training.clip = 0;
  settings.training.weight_decay = 0.5;
  const auto decayed = weights_after(decay.path(), 1);
  double largest = 0;
  for (size_t i = 0; i < start.size(); ++i) {
    const double step = double(plain[i]) - start[i];
    largest = std::max(largest, std::abs(step));
    CHECK(double(clipped[i]) - start[i] == Approx(step / 4).margin(1e-6));
    CHECK(double(decayed[i]) - plain[i] == Approx(-0.01 * 0.5 * start[i]).margin(1e-6));
  }
  CHECK(largest > 1e-4);  // above the tolerance
}

TEST_CASE("Adam, the warm-up and the linear schedule are as the options say", "[training]") {
  // The first step of Adam is the learning rate, towards the gradient's sign.
  Settings settings = small_copy_task();
  settings.training.optimizer = TrainingOptions::Algorithm::adam;
  settings.training.learning_rate = 1e-2;
  settings.training.warm_up = 4;
  std::vector<double> steps;
  const TemporaryFolder none, one;
  train_copy_task(none.path(), settings, 0);
  train_copy_task(one.path(), settings, 1);
  const auto weights = [](const TemporaryFolder& folder) {
    return find_checkpoint(folder.path())->weights.at("output.weight").to_vector<float>();
  };
  for (size_t i = 0; i < weights(none).size(); ++i)
    steps.push_back(std::abs(double(weights(one)[i]) - weights(none)[i]));
  std::sort(steps.begin(), steps.end());
  CHECK(steps[steps.size() / 2] == Approx(1e-2 / 4).epsilon(1e-3));
  CHECK(steps.back() == Approx(1e-2 / 4).epsilon(1e-3));

  settings.training.schedule = TrainingOptions::Rate::linear;
  settings.training.iterations = 12;
  const auto schedule = settings.training.make_schedule();
  CHECK(schedule->learning_rate(1) == Approx(1e-2 / 2));
  CHECK(schedule->learning_rate(4) == Approx(1e-2));
  CHECK(schedule->learning_rate(8) == Approx(1e-2 / 2));
  settings.training.iterations = 0;
  settings.training.make_schedule();  // not an error
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
  Model model(settings.transformer(), sequence_length(settings.length), generator);
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
