#pragma once
// Draws as operations take them, the generator that names them, and random tensors. The numbers are philox.h's.
#include <cstdint>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "core/tensor.h"

namespace cairn {

// A draw as operations pass it on: it keeps the state alive, and a gradient that draws again can tell (by the state's
// version) that the step is still the one of its forward pass.
struct RandomDraw {
  Tensor state;  // uint64 [2]; undefined: nothing is drawn
  uint32_t layer = 0;
  Purpose purpose{};
  int64_t first_example = 0;  // Generator::set_first_example

  // per_example: the rows of (batch, head), or elements, of an example; 0 for a draw that all examples share.
  Draw view(int64_t per_example = 0) const {
    return {state.defined() ? state.data<uint64_t>() : nullptr, layer, purpose,
            uint64_t(first_example) * uint64_t(per_example)};
  }
};

// The seed and the step, on a device. advance() once a training step; an operation that saved the draw for its
// backward pass notices that the step has changed since (by the tensor's version). It cannot be copied: a copy would
// draw the same numbers.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0, Device device = Device::cpu);
  Generator(Generator&&) = default;
  Generator& operator=(Generator&&) = default;

  uint64_t seed() const { return seed_; }
  uint64_t step() const { return step_; }
  void set_step(uint64_t step);
  void advance() { set_step(step_ + 1); }
  // For processes that share a batch: example 0 here is this one of the whole batch. From now on, examples are drawn
  // for as they are by a process that has the whole batch. A captured CUDA graph keeps the number. Error: negative.
  void set_first_example(int64_t example);

  RandomDraw draw(uint32_t layer, Purpose purpose) const {
    if (recorded_) recorded_->emplace_back(layer, purpose);
    return {state_, layer, purpose, first_example_};
  }
  // From now on `draws` gets what each draw is named, for tests: two of one name would share their numbers.
  void record_draws(std::vector<std::pair<uint32_t, Purpose>>* draws) { recorded_ = draws; }
  const Tensor& state() const { return state_; }  // uint64 [2]
  // A number of its own for each parameter initialized from this generator.
  uint32_t next_parameter() { return parameters_++; }

 private:
  uint64_t seed_, step_ = 0;
  int64_t first_example_ = 0;
  uint32_t parameters_ = 0;
  Tensor state_;
  std::vector<std::pair<uint32_t, Purpose>>* recorded_ = nullptr;
};

// One random number after another, on the host, from a draw: for data and tests.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t step, Purpose purpose, uint32_t layer = 0);

  uint32_t next();
  uint32_t below(uint32_t n) { return cairn::below(next(), n); }
  double uniform() { return next() * 0x1p-32; }  // in [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  float normal();

 private:
  PhiloxKey key_;
  PhiloxWords words_{};
  uint32_t drawn_ = 0, normals_ = 0;
};

// Tensors of random numbers on the CPU; float32 or float64.
Tensor random_uniform(Shape shape, double low, double high, RandomStream& sequence, DType dtype = DType::float32);
Tensor random_normal(Shape shape, RandomStream& sequence, DType dtype = DType::float32);

}  // namespace cairn
