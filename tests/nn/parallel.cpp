// Training on several ranks, which are threads here: no MPI is needed. tests/mpi/check.py runs the program under it.
#include <array>
#include <atomic>
#include <barrier>
#include <cmath>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/copy_task/train.h"
#include "nn/io/file.h"
#include "nn/optim/r_adam.h"
#include "nn/parallel/data_parallel.h"
#include "tests/attention/reference.h"
#include "tests/io/io_test.h"
#include "tests/ops/ops_test.h"

using namespace cairn;  // NOLINT: tests only
using Json = nlohmann::ordered_json;

namespace {

// Ranks that are threads of this process. A rank that fails does not let the others wait.
class Threads {
 public:
  explicit Threads(int size) : started(size_t(size)), meeting(size) {}

  std::vector<std::vector<Tensor>> started;  // sums, by rank
  const Tensor* sent = nullptr;
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

  int64_t sums = 0;  // that were started

  int rank() const override { return rank_; }
  int size() const override { return int(all_.started.size()); }
  void start_sum(const Tensor& x) override { all_.started[size_t(rank_)].push_back(x), ++sums; }
  void wait() override {
    all_.meet();
    if (rank_ == 0) add_up();
    all_.meet();
    if (rank_ == 0)
      for (auto& tensors : all_.started) tensors.clear();
    all_.meet();
  }
  void broadcast(Tensor& x, int root) override {
    if (rank_ == root) all_.sent = &x;
    all_.meet();
    if (rank_ != root) x.copy_from(*all_.sent);
    all_.meet();
  }
  void meet() override { all_.meet(); }

 private:
  void add_up() {
    for (const auto& tensors : all_.started) check(tensors.size() == all_.started[0].size(), "ranks start other sums");
    for (size_t i = 0; i < all_.started[0].size(); ++i) {
      Tensor sum = all_.started[0][i].clone();
      for (size_t rank = 1; rank < all_.started.size(); ++rank) accumulate(sum, all_.started[rank][i]);
      for (auto& tensors : all_.started) tensors[i].copy_from(sum);
    }
  }

  Threads& all_;
  int rank_;
};

// f(communicator) on each of the ranks. Throws what the first of them threw that failed by itself.
template <class F>
void on_ranks(int size, F&& f) {
  const OneThread one_thread;
  Threads all(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
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

// Two layers whose gradients take more than one bucket, and between them a parameter that the loss does not know.
struct Problem {
  Tensor x, y;
  Variable w, unused, v, bias;

  explicit Problem(int64_t examples)
      : x(random_tensor({examples, 4}, DType::float32, 1)),
        y(random_tensor({examples, 3}, DType::float32, 2)),
        w(random_tensor({4, 90'000}, DType::float32, 3), true),
        unused(random_tensor({5}, DType::float32, 4), true),
        v(random_tensor({90'000, 3}, DType::float32, 5), true),
        bias(random_tensor({3}, DType::float32, 6), true) {}

  // The same numbers, with gradients of its own.
  Problem again() const {
    Problem copy = *this;
    for (Variable* one : {&copy.w, &copy.unused, &copy.v, &copy.bias}) *one = Variable(one->value(), true);
    return copy;
  }
  std::vector<Variable> parameters() const { return {w, unused, v, bias}; }
  Variable loss(int64_t begin, int64_t end) const {
    const Variable out = matmul(relu(matmul(Variable(x.slice(begin, end)), w)), v) + bias;
    return mean(square(out - Variable(y.slice(begin, end))));
  }
};

// What a rank has behind backward().
struct Outcome {
  Tensor loss;
  std::vector<Tensor> gradients;
  int64_t sums = 0;
};

std::vector<Outcome> outcomes(int size, int64_t examples, bool ordered) {
  std::vector<Outcome> result(static_cast<size_t>(size));
  const Problem of_all(examples);
  on_ranks(size, [&](ThreadRank& ranks) {
    const Problem problem = of_all.again();
    DataParallel parallel(ranks, problem.parameters(), ordered);
    Outcome& own = result[size_t(ranks.rank())];
    own.loss = parallel.backward(examples, [&](int64_t begin, int64_t end) { return problem.loss(begin, end); });
    for (const Variable& parameter : problem.parameters()) own.gradients.push_back(parameter.grad());
    own.sums = ranks.sums;
  });
  return result;
}

bool same(const Outcome& a, const Outcome& b) {
  if (!same_bits(a.loss, b.loss)) return false;
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    if (a.gradients[i].defined() != b.gradients[i].defined()) return false;
    if (a.gradients[i].defined() && !same_bits(a.gradients[i], b.gradients[i])) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("parts of a batch are its examples in their order, as many each as can be", "[parallel]") {
  for (const int64_t n : {0, 1, 7, 8, 100})
    for (const int count : {1, 2, 3, 7, 8}) {
      int64_t end = 0;
      for (int i = 0; i < count; ++i) {
        const Part part = part_of(n, i, count);
        CHECK(part.begin == end);
        CHECK(part.size() >= n / count);
        CHECK(part.size() <= (n + count - 1) / count);
        end = part.end;
      }
      CHECK(end == n);
    }
}

TEST_CASE("ranks that have another text are told of, on all ranks", "[parallel]") {
  const auto found = [](const std::array<std::string, 3>& texts) {
    std::array<std::string, 3> told;
    on_ranks(3,
             [&](ThreadRank& ranks) { told[size_t(ranks.rank())] = difference(ranks, texts[size_t(ranks.rank())]); });
    CHECK(told[1] == told[0]);
    CHECK(told[2] == told[0]);
    return told[0];
  };
  CHECK(found({"a\nb\n", "a\nb\n", "a\nb\n"}).empty());
  CHECK(found({"", "", ""}).empty());
  CHECK(found({"a\nb\n", "a\nb\n", "a\nc\n"}) == "rank 0 has b, rank 2 has c");
  CHECK(found({"a\nb\n", "x\nb\n", "a\nc\n"}) == "rank 0 has a, rank 1 has x");
  CHECK(found({"a\n", "a\nb\n", "a\n"}) == "rank 0 has nothing, rank 1 has b");
  CHECK(found({"a\nb\n", "", "a\n"}) == "rank 0 has a, rank 1 has nothing");
  CHECK(difference(this_process(), "a").empty());
}

TEST_CASE("a text and a flag of one rank reach all ranks", "[parallel]") {
  std::array<std::string, 3> texts, empty;
  std::array<bool, 3> flags{};
  on_ranks(3, [&](ThreadRank& ranks) {
    const auto rank = size_t(ranks.rank());
    texts[rank] = broadcast_text(ranks, rank == 1 ? "from 1" : "", 1);
    empty[rank] = broadcast_text(ranks, rank == 0 ? "" : "of others");
    flags[rank] = broadcast_flag(ranks, rank == 2, 2);
  });
  CHECK(texts == std::array<std::string, 3>{"from 1", "from 1", "from 1"});
  CHECK(empty == std::array<std::string, 3>{});
  CHECK(flags == std::array<bool, 3>{true, true, true});
}

TEST_CASE("ranks that share a batch get the gradients of one process", "[parallel]") {
  for (const int64_t examples : {7, 8, 12}) {
    const Problem problem(examples);
    const Variable loss = problem.loss(0, examples);
    backward(loss);
    for (const int size : {1, 2, 3, 7}) {
      const auto all = outcomes(size, examples, false);
      for (const Outcome& each : all) {
        INFO(examples << " examples, " << size << " ranks");
        CHECK(same(each, all[0]));
        CHECK(each.sums == (size == 1 ? 0 : 3));  // two buckets and the loss
        CHECK(each.loss.item() == Approx(loss.value().item()).epsilon(1e-6));
        CHECK_FALSE(each.gradients[1].defined());
        for (const size_t i : {0, 2, 3})
          CHECK(difference(each.gradients[i], problem.parameters()[i].grad()) <= tolerance::float32);
      }
    }
  }
}

TEST_CASE("gradients in order have the same bits on any number of ranks", "[parallel]") {
  for (const int64_t examples : {7, 8, 12}) {
    const Problem problem(examples);
    backward(problem.loss(0, examples));
    const Outcome one = outcomes(1, examples, true)[0];
    CHECK_FALSE(one.gradients[1].defined());
    for (const size_t i : {0, 2, 3})
      CHECK(difference(one.gradients[i], problem.parameters()[i].grad()) <= tolerance::float32);
    for (int size = 2; size <= 7; ++size)
      for (const Outcome& each : outcomes(size, examples, true)) {
        INFO(examples << " examples, " << size << " ranks");
        CHECK(same(each, one));
      }
  }
}

TEST_CASE("a batch with fewer examples than ranks is refused", "[parallel]") {
  CHECK_ERROR(outcomes(3, 2, false), "data parallel: a batch of 2 for 3 processes, expected at least one example each");
  CHECK_ERROR(outcomes(3, 2, true), "data parallel: a batch of 2 for 3 processes, expected at least one example each");
}

TEST_CASE("ranks begin with the numbers of rank 0, and those that have parted are told of", "[parallel]") {
  std::array<std::string, 2> before, after;
  std::array<double, 2> rates{};
  std::array<Tensor, 2> values, moments;
  on_ranks(2, [&](ThreadRank& ranks) {
    const auto rank = size_t(ranks.rank());
    Variable x(Tensor::full({3}, double(rank), DType::float32), true);
    RAdam optimizer({x}, 0.25 / double(rank + 1));
    x.mutable_grad() = Tensor::full({3}, double(rank + 1), DType::float32);
    optimizer.step();
    try {
      check_shared(ranks, optimizer.parameters());
    } catch (const Error& error) {
      before[rank] = error.what();
    }
    share(ranks, optimizer);
    check_shared(ranks, optimizer.parameters());
    rates[rank] = optimizer.state().learning_rate;
    values[rank] = x.value().clone(), moments[rank] = optimizer.moments()[0].tensor.clone();
  });
  for (const std::string& message : before)
    CHECK_THAT(message, Catch::Matchers::StartsWith("data parallel: the processes have parted: rank 0 has parameters"));
  CHECK(rates == std::array<double, 2>{0.25, 0.25});
  CHECK(same_bits(values[0], values[1]));
  CHECK(same_bits(moments[0], moments[1]));
}

namespace {

copy_task::TrainOptions small_training(const std::string& attention) {
  copy_task::TrainOptions options;
  options.length = 5, options.batch = 7, options.iterations = 20, options.seed = 3;
  options.evaluate_every = 10, options.sequences_meanwhile = 20, options.sequences_after = 12;
  options.model.layers = 2, options.model.heads = 2, options.model.head_size = 4, options.model.feed_forward = 8;
  options.model.dropout = options.model.attention_dropout = 0.1, options.model.attention = attention;
  return options;
}

struct Training {
  std::vector<double> losses, evaluations;
  std::string weights;       // the file
  std::vector<double> last;  // loss of each rank's evaluation after training
};

Training trained(const copy_task::TrainOptions& options, int size) {
  using namespace copy_task;
  const TemporaryFolder folder;
  Training result;
  result.last.resize(size_t(size));
  on_ranks(size, [&](ThreadRank& ranks) {
    std::unique_ptr<RunFolder> run;
    std::optional<RunFiles> files;
    const Json about = {{"program", "copy-task"}, {"configuration", Json::object()}, {"provenance", Json::object()}};
    if (ranks.rank() == 0) run = std::make_unique<RunFolder>(folder.path()), files.emplace(RunFiles{*run, about});
    Progress progress(options.iterations, true);
    result.last[size_t(ranks.rank())] = train(options, progress, files ? &*files : nullptr, ranks).evaluation.loss;
  });
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    if (record.contains("loss")) result.losses.push_back(record.at("loss"));
    if (record.contains("evaluation")) result.evaluations.push_back(record.at("evaluation").at("loss"));
  }
  result.weights = read_file((folder / "checkpoint/weights.safetensors").string());
  return result;
}

// i-clustered attention that writes down, in training on one process, which cluster each query is in and which keys
// each cluster attends to most; then ranks take their part of it: rounding alone would choose others now and then.
struct Replayed : Attention {
  static inline bool recording = true;
  static inline std::map<std::pair<uint64_t, uint32_t>, AttentionChoices> choices = {};  // by step and layer
  std::unique_ptr<Attention> attention;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    if (!context.training || !context.generator) return (*attention)(q, k, v, mask, context);
    AttentionContext own = context;
    AttentionChoices part;
    const std::pair<uint64_t, uint32_t> place{context.generator->step(), context.layer};
    if (recording) {
      own.report = &choices[place];
    } else {
      const int64_t first = context.draw(Purpose::test).first_example;
      for (const char* name : {"labels", "topk"})
        part.tensors[name] = choices.at(place)[name].slice(first, first + q.size(0));
      own.replay = &part;
    }
    return (*attention)(q, k, v, mask, own);
  }
  double flops(const AttentionWork& work) const override { return attention->flops(work); }
};

const AttentionVariant replayed{"replayed", "i-clustered attention that repeats what it chose before",
                                [](SpecReader& spec) -> std::unique_ptr<Attention> {
                                  auto variant = std::make_unique<Replayed>();
                                  variant->attention =
                                      make_attention(concat("i-clustered-", spec.number("clusters"), ":topk=4"));
                                  return variant;
                                }};

}  // namespace

TEST_CASE("an evaluation that ranks share has the bits of one process", "[parallel]") {
  const auto options = small_training("i-clustered-3:topk=2");
  Generator generator(1);
  const copy_task::Model model(options.model, copy_task::sequence_length(options.length), generator);
  const auto evaluated = [&](Communicator& ranks) {
    const auto e = copy_task::evaluate(model, options.length, 3 * copy_task::evaluation_batch + 5, 2, 9, false, ranks);
    return std::array<double, 3>{e.loss, e.accuracy, e.masked_accuracy};
  };
  const auto one = evaluated(this_process());
  for (const int size : {2, 3, 5}) {  // of four batches
    std::vector<std::array<double, 3>> all(static_cast<size_t>(size));
    on_ranks(size, [&](ThreadRank& ranks) { all[size_t(ranks.rank())] = evaluated(ranks); });
    for (const auto& each : all) CHECK(each == one);
  }
}

TEST_CASE("a training in order has the same bits on any number of ranks", "[parallel][copy-task]") {
  for (const std::string attention : {"full", "i-clustered-3:topk=2"}) {
    auto options = small_training(attention);
    options.ordered = true;
    const Training one = trained(options, 1);
    REQUIRE(one.losses.size() == 20);
    REQUIRE(one.evaluations.size() == 2);
    for (const int size : {2, 3, 4}) {
      INFO(attention << ", " << size << " ranks");
      const Training other = trained(options, size);
      CHECK(other.losses == one.losses);
      CHECK(other.evaluations == one.evaluations);
      CHECK(other.weights == one.weights);
      for (const double loss : other.last) CHECK(loss == one.last[0]);
    }
  }
}

TEST_CASE("a training on ranks has the losses of one process, with what was chosen replayed", "[parallel][copy-task]") {
  [[maybe_unused]] static const bool added = [] {
    add_attention_variant(replayed);
    reference::references()["replayed"] = reference::references().at("i-clustered");
    return true;
  }();
  auto options = small_training("replayed-3");
  options.learning_rate = 3e-3;
  Replayed::recording = true;
  const Training one = trained(options, 1);
  CHECK(Replayed::choices.size() == size_t(20 * options.model.layers));
  Replayed::recording = false;
  for (const int size : {2, 3, 4}) {
    INFO(size << " ranks");
    const Training other = trained(options, size);
    REQUIRE(other.losses.size() == one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i) CHECK(std::abs(other.losses[i] - one.losses[i]) <= 1e-4);
  }
  Replayed::recording = true, Replayed::choices.clear();
}
