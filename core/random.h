#pragma once
// The generator of draws, random streams and random tensors. The numbers come from philox.h.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "core/tensor.h"

namespace cairn {

// Makes draws from a seed and a step; call set_step() before each training step. It cannot be copied, because a copy
// would draw the same numbers.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}
  Generator(Generator&&) = default;
  Generator& operator=(Generator&&) = default;

  uint64_t seed() const { return seed_; }
  uint64_t step() const { return step_; }
  void set_step(uint64_t step) { step_ = step; }
  void advance() { ++step_; }
  // If processes share a batch: the index in the whole batch of this process's first example. Its examples then get the
  // numbers that they get in a process that has the whole batch. Error: negative.
  void set_first_example(int64_t example);

  Draw draw(uint32_t layer, Purpose purpose) const {
    if (recorded_) recorded_->emplace_back(layer, purpose);
    return {seed_, step_, layer, purpose, uint64_t(first_example_)};
  }
  // For tests: appends layer and purpose of each draw to `draws`. Two equal ones would share their numbers.
  void record_draws(std::vector<std::pair<uint32_t, Purpose>>* draws) { recorded_ = draws; }
  // The index of the next parameter to be initialized from this generator: 0, 1, ...
  uint32_t next_parameter() { return parameters_++; }

 private:
  uint64_t seed_, step_ = 0;
  int64_t first_example_ = 0;
  uint32_t parameters_ = 0;
  std::vector<std::pair<uint32_t, Purpose>>* recorded_ = nullptr;
};

// One random number after another, on the host: for parameters, data and tests. `index` tells the streams of one
// purpose apart, such as those of two parameters.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t step, Purpose purpose, uint32_t index = 0);

  uint32_t next();
  uint32_t below(uint32_t n) { return cairn::below(next(), n); }
  double uniform() { return next() * 0x1p-32; }  // in [0, 1)
  // In [low, high), for low < high. (The sum may be rounded to `high`.)
  double uniform(double low, double high) {
    return std::min(low + (high - low) * uniform(), std::nextafter(high, low));
  }
  float normal();
  // As if next(), and normal(), had been called so many times more.
  void skip(uint32_t words, uint32_t normals);

 private:
  PhiloxKey key_;
  PhiloxWords words_{};
  uint32_t drawn_ = 0, normals_ = 0;
};

// Puts values in a random order.
template <class T>
void shuffle(std::vector<T>& values, RandomStream& random) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(uint32_t(i))]);
}

// Tensors of random numbers on the CPU. Uniform ones are in [low, high), where low is rounded to the element type.
Tensor random_uniform(Shape shape, double low, double high, RandomStream& sequence, DType dtype = DType::float32);
Tensor random_normal(Shape shape, RandomStream& sequence, DType dtype = DType::float32);

}  // namespace cairn
