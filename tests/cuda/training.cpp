// Training on CUDA: the same losses as on the CPU, steps that are replayed as a graph, and memory that runs out.
#include <cstdlib>

#include "apps/copy_task/model.h"
#include "core/captured_step.h"
#include "nn/optim/r_adam.h"
#include "nn/optim/sgd.h"
#include "tests/attention/spec_of.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/parity.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::copy_task;
using Catch::Matchers::ContainsSubstring;

namespace {

TransformerOptions small_model(const std::string& attention) {
  TransformerOptions options;
  options.layers = 2, options.heads = 2, options.head_size = 16, options.feed_forward = 40;
  options.attention = attention;
  return options;
}

// A training of the copy task, as apps/copy_task/train.cpp has it.
struct Training {
  static constexpr int64_t batch = 3, length = 11;

  Generator generator;
  Model model;
  RAdam optimizer;
  Batch data;
  Tensor loss;
  CapturedStep learn;

  Training(const TransformerOptions& options, Device device, DType activations = DType::float32, int ordinary = 3)
      : generator(5, device),
        model(options, sequence_length(length), generator),
        optimizer((model.place(device, activations), parameters(model)), 1e-3),
        data{Tensor({batch, sequence_length(length)}, DType::int32, device),
             Tensor({batch, sequence_length(length)}, DType::int32, device)},
        learn(
            device,
            [this] {
              optimizer.clear_gradients();
              const Variable result = cross_entropy(model(data.input, {true, &generator}), data.target);
              backward(result);
              optimizer.step();
              loss = result.value();
            },
            ordinary) {}

  // The loss of step n.
  double step(int64_t n) {
    RandomStream random(7, uint64_t(n), Purpose::data);
    const Batch fresh = make_batch(batch, length, random);
    data.input.copy_from(fresh.input);
    data.target.copy_from(fresh.target);
    generator.set_step(uint64_t(n));
    learn();
    return loss.item();
  }
};

// Steps in which the losses of two devices are compared: the first five of R-Adam follow the gradient, and from the
// sixth on it divides by the root of the second moment, which makes a full update of what is nothing but rounding. Ten
// have both, and stay far from where that could matter. Measured, with normal noise added to each gradient in every
// step: the CPU's losses move by at most 1.1e-7 (their last bit) if the noise is 1e-6 of the parameter's largest
// gradient, which is more than the order of sums or an approximate exponential makes, whatever the variant, and by no
// more in 20 steps. Noise of 1e-2 moves them by 1e-5 in ten steps, by 4e-5 in 20.
//
// Under sanitizers a step takes long. They look for what a first step does as well as a last one; of the requests that
// fail they see one in three; and what is replayed are the same kernels with every variant.
#if CAIRN_SANITIZED
constexpr int64_t compared_steps = 3, failing_every = 3;
#else
constexpr int64_t compared_steps = 10, failing_every = 1;
#endif

std::vector<std::string> all_specs() {
  std::vector<std::string> specs;
  for (const auto* variant : attention_variants()) specs.push_back(spec_of(*variant, 4, 5));
  return specs;
}

std::vector<std::string> replayed_specs() {
#if CAIRN_SANITIZED
  return {"full", "i-clustered-4:topk=5"};
#else
  return all_specs();
#endif
}

}  // namespace

// Activations differ in the last bit between devices, and with them, now and then, a code. So the choices are the
// CPU's.
TEST_CASE("training on CUDA follows the CPU with every attention variant", "[gpu][training]") {
  for (const std::string& spec : all_specs()) {
    INFO(spec);
    TransformerOptions options = small_model(spec);
    options.dropout = options.attention_dropout = 0.1;
    Training cpu(options, Device::cpu), cuda(options, Device::cuda, DType::float32, 1000);
    const size_t layers = cpu.model.encoder.layers.size();
    std::vector<AttentionChoices> made(layers), replayed(layers);
    for (size_t i = 0; i < layers; ++i) {
      cpu.model.encoder.layers[i]->attention.report = &made[i];
      cuda.model.encoder.layers[i]->attention.replay = &replayed[i];
    }
    for (int64_t n = 0; n < compared_steps; ++n) {
      const double expected = cpu.step(n);
      for (size_t i = 0; i < layers; ++i) replayed[i] = made[i].to(Device::cuda);
      CHECK(std::abs(cuda.step(n) - expected) <= tolerance::losses * expected);
    }
  }
}

TEST_CASE("training in bfloat16 and TF32 stays close to float32", "[gpu][training]") {
  for (const std::string spec : {"full", "i-clustered-4:topk=5"}) {
    INFO(spec);
    Training exact(small_model(spec), Device::cuda), bf16(small_model(spec), Device::cuda, DType::bfloat16);
    Training tf32(small_model(spec), Device::cuda);
    double sums[3] = {};
    for (int64_t n = 0; n < 10; ++n) {
      sums[0] += exact.step(n);
      sums[1] += bf16.step(n);
      set_float32_products(Float32Products::tf32);
      sums[2] += tf32.step(n);
      set_float32_products(Float32Products::full);
    }
    CHECK(std::abs(sums[1] - sums[0]) <= tolerance::losses_bfloat16 * sums[0]);
    CHECK(std::abs(sums[2] - sums[0]) <= tolerance::losses_bfloat16 * sums[0]);
    for (const Variable& parameter : parameters(bf16.model)) {
      CHECK(parameter.dtype() == DType::float32);
      CHECK(parameter.grad().dtype() == DType::float32);
    }
  }
}

TEST_CASE("a step that is replayed is the step that is run", "[gpu][training]") {
  for (const std::string& spec : replayed_specs()) {
    INFO(spec);
    TransformerOptions options = small_model(spec);
    options.dropout = options.attention_dropout = 0.1;
    Training run(options, Device::cuda, DType::float32, 1000), replayed(options, Device::cuda, DType::float32, 2);
    for (int64_t n = 0; n < 6; ++n) {
      if (n == 4) {  // from the host, while the graph exists
        run.optimizer.set_learning_rate(0.01);
        replayed.optimizer.set_learning_rate(0.01);
      }
      CHECK(run.step(n) == replayed.step(n));
      // Memory that is taken and given back in between is not the recording's.
      const NoGrad no_grad;
      const Tensor logits = replayed.model(replayed.data.input, {false, &replayed.generator}).value();
      CHECK(test::differs(logits, run.model(run.data.input, {false, &run.generator}).value(), 0) == "");
    }
    CHECK(run.learn.replays() == 0);
    CHECK(replayed.learn.replays() == 4);
    const auto weights = parameters(run.model), others = parameters(replayed.model);
    for (size_t i = 0; i < weights.size(); ++i) CHECK(test::differs(weights[i].value(), others[i].value(), 0) == "");
    CHECK(run.optimizer.state().step == replayed.optimizer.state().step);
  }
}

// The device's list of parameters is part of what a recording writes and of what it reads.
TEST_CASE("ordinary steps and replayed ones take turns with an optimizer", "[gpu][training]") {
  const auto numbers = [](double value) { return Tensor::full({3}, value, DType::float32, Device::cuda); };
  const Tensor one = numbers(1), ten = numbers(10);
  Variable x(numbers(0), true);
  Sgd optimizer({x}, 1);
  const auto step_with = [&](const Tensor& gradient) {
    x.mutable_grad() = gradient;
    optimizer.step();
  };
  const auto sum = [&] { return -x.value().to_vector<float>()[1]; };
  CapturedStep by_ten(
      Device::cuda, [&] { step_with(ten); }, 1);
  step_with(one);
  by_ten();
  by_ten();
  CHECK(sum() == 21);
  step_with(one);
  CHECK(sum() == 22);
  by_ten();
  step_with(one);  // where the ordinary step before had it
  CHECK(sum() == 33);

  // Recorded when the device already had the list.
  CapturedStep by_one(
      Device::cuda, [&] { step_with(one); }, 1);
  by_one();
  by_one();
  CHECK(sum() == 35);
  step_with(ten);
  by_one();
  CHECK(sum() == 46);
  CHECK(by_ten.replays() == 2);
  CHECK(by_one.replays() == 2);
}

TEST_CASE("what cannot be recorded is an error, and the device goes on", "[gpu][training]") {
  Tensor x = Tensor::full({3}, 2, DType::float32, Device::cuda);
  CapturedStep reads(
      Device::cuda, [&] { x.to_vector<float>(); }, 1);
  reads();
  CHECK_THROWS_AS(reads(), DeviceError);
  CHECK(x.to_vector<float>() == std::vector<float>(3, 2));
  CapturedStep throws(
      Device::cuda, [&] { throw UsageError("no"); }, 1);
  CHECK_THROWS_AS(throws(), UsageError);
  CHECK_THROWS_AS(throws(), UsageError);  // while it is recorded
  CHECK_THROWS_WITH(CapturedStep(
                        Device::cuda, [] {}, 0),
                    ContainsSubstring("expected at least 1 ordinary run, got 0"));

  // What is copied from the host while it is recorded is copied as it was.
  CapturedStep adds(
      Device::cuda, [&] { accumulate(x, Tensor::full({3}, 1).to(Device::cuda)); }, 1);
  for (int i = 0; i < 3; ++i) adds();
  CHECK(adds.replays() == 2);
  CHECK(x.to_vector<float>() == std::vector<float>(3, 5));
}

TEST_CASE("memory that recorded work made outlives the recording", "[gpu][training]") {
  const int64_t live = memory(Device::cuda).live;
  {
    Tensor kept;
    const Tensor x = Tensor::full({1000}, 3, DType::float32, Device::cuda);
    {
      CapturedStep square(
          Device::cuda, [&] { kept = unary(Unary::square, unary(Unary::negate, x)); }, 1);
      square();
      square();
    }
    CHECK(kept.to_vector<float>() == std::vector<float>(1000, 9));
  }
  CHECK(memory(Device::cuda).live == live);
}

#if CAIRN_CUDA_HOST
TEST_CASE("a request for device memory that fails leaves nothing behind", "[gpu][training]") {
  TransformerOptions options = small_model("i-clustered-4:topk=5");
  options.layers = options.heads = 1;
  // An ordinary step, one that is recorded, one that is replayed.
  const auto train = [&] {
    Training training(options, Device::cuda, DType::float32, 1);
    for (int64_t step = 0; step < 3; ++step) training.step(step);
  };
  train();  // what is allocated once
  const int64_t live = memory(Device::cuda).live;
  const auto blocks = host_cuda::counts().live_blocks;
  int64_t n = 1;
  for (bool failed = true; failed; n += failing_every) {
    INFO("request " << n);
    host_cuda::fail_allocation(n);
    failed = false;
    try {
      train();
    } catch (const OutOfMemory& error) {
      failed = true;
      REQUIRE_THAT(error.what(), ContainsSubstring("out of memory on cuda: ") &&
                                     ContainsSubstring(" bytes requested, ") &&
                                     ContainsSubstring(" in use by tensors, ") && ContainsSubstring(" free"));
    }
    host_cuda::fail_allocation(0);
    REQUIRE(memory(Device::cuda).live == live);
    REQUIRE(host_cuda::counts().live_blocks == blocks);
  }
  CHECK(n > 200);
}

TEST_CASE("a launch that fails leaves nothing behind", "[gpu][training]") {
  const int64_t live = memory(Device::cuda).live;
  bool failed = true;
  for (int64_t n = 1; failed; n += 17) {
    INFO("launch " << n);
    host_cuda::fail_launch(n);
    failed = false;
    try {
      Training training(small_model("i-clustered-4:topk=5"), Device::cuda, DType::float32, 1);
      for (int64_t step = 0; step < 3; ++step) training.step(step);
    } catch (const DeviceError& error) {
      failed = true;
      REQUIRE_THAT(error.what(), ContainsSubstring("CUDA: too many resources requested for launch"));
    }
    host_cuda::fail_launch(0);
    CHECK(memory(Device::cuda).live == live);
  }
}
#endif
