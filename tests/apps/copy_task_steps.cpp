// What a training learns from and is judged on, computed a second time: with a learning rate of 0 the weights stay what
// they are, and each step's loss follows from its sequences and its draws alone.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/copy_task/train.h"
#include "autograd/ops.h"
#include "tests/catch.h"
#include "tests/io/io_test.h"

using namespace cairn;             // NOLINT: tests only
using namespace cairn::copy_task;  // NOLINT: tests only
using Json = nlohmann::ordered_json;

namespace {

// The step's own sequences, masked in the step's own places.
double loss_of(const Model& model, const Batch& batch, bool training, const Generator& generator) {
  return cross_entropy(model(batch.input, {training, &generator}), batch.target).value().item();
}

}  // namespace

TEST_CASE("each step of a training has its own sequences and draws, and so has each batch of an evaluation",
          "[copy-task]") {
  TrainOptions options;
  options.length = 5, options.batch = 3, options.seed = 7, options.learning_rate = 0;
  options.model.layers = 2, options.model.heads = 2, options.model.head_size = 4, options.model.feed_forward = 8;
  options.model.attention = "clustered-3", options.model.dropout = options.model.attention_dropout = 0.3;
  options.iterations = 4, options.evaluate_every = 2, options.sequences_meanwhile = 2 * evaluation_batch;
  const TemporaryFolder folder;
  {
    RunFolder run(folder.path());
    const Json about = {{"program", "copy-task"}, {"configuration", Json::object()}, {"provenance", Json::object()}};
    const RunFiles files{run, about};
    Progress progress(options.iterations, true);
    Communicator alone;
    train(options, progress, &files, alone);
  }

  Generator generator(options.seed);
  Model model(options.model, sequence_length(options.length), generator);
  model.place(Device::cpu, DType::float32);
  std::ifstream file(folder / "metrics.jsonl");
  std::vector<double> losses, evaluations;
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line);
    const uint64_t step = losses.size();
    generator.set_step(step);
    RandomStream random(options.seed, step, Purpose::data);
    losses.push_back(loss_of(model, make_batch(options.batch, options.length, random), true, generator));
    CHECK(record.at("loss").get<double>() == losses.back());

    if ((step + 1) % 2 != 0) continue;
    Generator others(~options.seed);
    RandomStream fresh(options.seed, step, Purpose::data, 1);
    double sum = 0;
    for (uint64_t done : {uint64_t(0), uint64_t(evaluation_batch)}) {
      others.set_step(step * 1000003 + done);
      sum += loss_of(model, make_batch(evaluation_batch, options.length, fresh), false, others);
    }
    evaluations.push_back(sum / 2);
    CHECK(record.at("evaluation").at("loss").get<double>() == Approx(sum / 2).epsilon(1e-12));
  }
  // What is compared above could not be equal by chance.
  REQUIRE(losses.size() == 4);
  REQUIRE(evaluations.size() == 2);
  std::ranges::sort(losses);
  CHECK(std::ranges::adjacent_find(losses) == losses.end());
  CHECK(evaluations[0] != evaluations[1]);
}
