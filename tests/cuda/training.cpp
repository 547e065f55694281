// Training on CUDA: the same losses as on the CPU, and memory that runs out.
#include <cstdlib>

#include "apps/copy_task/model.h"
#include "nn/optim/adam.h"
#include "tests/attention/spec_of.h"
#include "tests/catch.h"
#include "tests/cuda/device.h"
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

// A training of the copy task, like that of apps/copy_task/train.cpp.
struct Training {
  static constexpr int64_t batch_size = 3, length = 11;

  Generator generator;
  Model model;
  RAdam optimizer;

  static Settings settings_of(const TransformerOptions& options, bool causal) {
    Settings settings;
    settings.length = length, settings.model = options, settings.causal = causal;
    return settings;
  }

  Training(const TransformerOptions& options, Device device, DType activations = DType::float32, bool causal = false)
      : generator(5),
        model(settings_of(options, causal), generator),
        optimizer((place(model, {device, activations}), parameters(model)), 1e-3) {}

  // The loss of step n.
  double step(int64_t n) {
    RandomStream random(7, uint64_t(n), Purpose::data);
    const Batch batch = make_batch(batch_size, length, random, model.causal);
    const Device device = model.output.bias.device();
    generator.set_step(uint64_t(n));
    optimizer.clear_gradients();
    const Variable logits = model(batch.input.to(device), {.training = true, .generator = &generator});
    const Variable loss = cross_entropy(logits, batch.target.to(device));
    backward(loss);
    optimizer.step();
    return loss.value().item();
  }
};

// The number of steps in which the losses of two devices are compared. The first five steps of R-Adam follow the
// gradient. From the sixth on it divides by the root of the second moment, which can turn a rounding error into a full
// update. Ten steps have both, and are too few for such updates to matter. This was measured on the CPU, with normal
// noise added to each gradient in every step. Noise of 1e-6 of the parameter's largest gradient, more than the order of
// sums or an approximate exponential causes, moves the losses by at most 1.1e-7 (their last bit), in 10 and in 20
// steps, whatever the variant. Noise of 1e-2 moves them by 1e-5 in ten steps, by 4e-5 in 20.
//
// Under sanitizers a step takes long. One step shows them as much as ten, so there are fewer steps, and only one in
// twenty of the failing allocations is tried.
constexpr int64_t compared_steps = test::sanitized ? 2 : 10, failing_every = test::sanitized ? 20 : 1;

std::vector<std::string> all_specs() {
  std::vector<std::string> specs;
  for (const auto* variant : attention_variants()) specs.push_back(spec_of(*variant, 4, 5));
  return specs;
}

}  // namespace

// Activations differ in the last bit between devices, and sometimes a hash code differs for that reason. So CUDA
// replays the choices of the CPU.
TEST_CASE("training on CUDA follows the CPU with every attention variant", "[gpu]") {
  std::vector<std::string> specs = all_specs();
  specs.push_back("clustered-keys-2:block=4,top=1");  // the last is causal
  for (const std::string& spec : specs) {
    INFO(spec);
    TransformerOptions options = small_model(spec);
    options.dropout = options.attention_dropout = 0.1;
    const bool causal = spec == specs.back();
    Training cpu(options, Device::cpu, DType::float32, causal), cuda(options, Device::cuda, DType::float32, causal);
    const size_t layers = cpu.model.encoder.layers.size();
    std::vector<Observation> seen(layers), replayed(layers);
    for (size_t i = 0; i < layers; ++i) {
      cpu.model.encoder.layers[i]->attention.observation = &seen[i];
      cuda.model.encoder.layers[i]->attention.observation = &replayed[i];
    }
    for (int64_t n = 0; n < compared_steps; ++n) {
      for (Observation& layer : seen) layer.choices = {};
      const double expected = cpu.step(n);
      for (size_t i = 0; i < layers; ++i) replayed[i].choices = seen[i].choices.to(Device::cuda);
      CHECK(std::abs(cuda.step(n) - expected) <= tolerance::losses * expected);
    }
  }
}

TEST_CASE("training in bfloat16 and TF32 stays close to float32", "[gpu]") {
  for (const std::string spec : {"full", "i-clustered-4:topk=5"}) {
    INFO(spec);
    Training exact(small_model(spec), Device::cuda), bf16(small_model(spec), Device::cuda, DType::bfloat16);
    Training tf32(small_model(spec), Device::cuda);
    double sums[3] = {};
    for (int64_t n = 0; n < compared_steps; ++n) {
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

#if CAIRN_CUDA_HOST
TEST_CASE("a step in the steady state of a training requests no memory from CUDA", "[gpu]") {
  if (test::sanitized) return;  // no block is kept
  for (const std::string spec : {"full", "i-clustered-4:topk=5"}) {
    INFO(spec);
    keep_freed_memory(true);
    Training training(small_model(spec), Device::cuda);
    int64_t requested = 0;
    for (int64_t n = 0; n < 4; ++n) {
      const int64_t before = host_cuda::allocations();
      training.step(n);
      requested = host_cuda::allocations() - before;
      CHECK((requested == 0) == (n > 0));
    }
    keep_freed_memory(false);
    release_cached_memory(Device::cuda);
    CHECK(memory(Device::cuda).cached == 0);
    training.step(4);
    CHECK(host_cuda::allocations() > requested);
  }
}

TEST_CASE("a request for device memory that fails leaves nothing behind", "[gpu]") {
  TransformerOptions options = small_model("i-clustered-4:topk=5");
  options.layers = options.heads = 1;
  const auto train = [&] {
    Training training(options, Device::cuda);
    for (int64_t step = 0; step < 2; ++step) training.step(step);
  };
  train();  // allocates everything that is allocated once
  const int64_t live = memory(Device::cuda).live;
  const auto blocks = host_cuda::live_blocks();
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
    REQUIRE(host_cuda::live_blocks() == blocks);
  }
  CHECK(n > 200);
}
#endif
