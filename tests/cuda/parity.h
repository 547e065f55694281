#pragma once
// Lists of cases, one an operation, hold every CUDA kernel to the CPU's: a case is a function of a Bench, which makes
// the same inputs on either device, and returns the results. The CPU's are held to references by tests/ops.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "core/ops.h"
#include "nn/purpose.h"
#include "tests/tolerances.h"

namespace cairn::test {

// Where a case runs, and in which element type. Inputs are rounded to bfloat16 if any run of the case is in it.
struct Bench {
  Device device = Device::cpu;
  DType dtype = DType::float32;
  bool rounded = false;

  Tensor place(Tensor x) const {
    if (rounded) x = x.cast(DType::bfloat16);
    return x.cast(dtype).to(device);
  }
  // Normal numbers.
  Tensor normal(const Shape& shape, uint64_t seed = 1) const {
    RandomStream sequence(seed, 0, Purpose::test);
    return place(random_normal(shape, sequence));
  }
  Tensor uniform(const Shape& shape, double low, double high, uint64_t seed = 1) const {
    RandomStream sequence(seed, 0, Purpose::test);
    return place(random_uniform(shape, low, high, sequence));
  }
  // int32 in [low, high].
  Tensor integers(const Shape& shape, int low, int high, uint64_t seed = 1) const {
    RandomStream sequence(seed, 0, Purpose::test);
    Tensor x(shape, DType::int32);
    int32_t* data = x.mutable_data<int32_t>();
    for (int64_t i = 0; i < x.elements(); ++i) data[i] = low + int32_t(sequence.below(uint32_t(high - low + 1)));
    return x.to(device);
  }
  Variable variable(const Tensor& x) const { return Variable(x, true); }
  // The same inputs on the CPU. A gradient that cancels what its forward pass saved gets, on either device, what the
  // CPU saved, rounded to the element type.
  Bench on_cpu() const { return {Device::cpu, DType::float32, rounded}; }
};

struct Result {
  std::string name;  // "dk"
  Tensor value;
};
using Results = std::vector<Result>;
struct Case {
  std::string name;
  std::function<Results(const Bench&)> run;
  bool exact = false;  // in float32; whole numbers always are
  double tolerance = tolerance::float32;
};

// "out" and the gradients of `inputs`, "dx" of "x", for a gradient of y of random numbers.
inline Results with_gradients(const Bench& bench, const Variable& y,
                              const std::vector<std::pair<const char*, Variable>>& inputs) {
  backward(y, bench.normal(y.shape(), 99));
  Results results{{"out", y.value()}};
  for (const auto& [name, x] : inputs) results.push_back({std::string("d") + name, x.grad()});
  return results;
}

// Where and by how much a differs from b: the first element beyond the tolerance. Empty if none is: all |a - b| are at
// most tolerance * max|b|, or tolerance where max|b| is no more than rounding.
std::string differs(const Tensor& a, const Tensor& b, double tolerance);

inline std::string label(const char* what, const Shape& shape) { return std::string(what) + " " + to_string(shape); }

// What adds an operation's cases to a list; parity.cpp runs them.
void add_elementwise(std::vector<Case>& cases);
void add_reduce(std::vector<Case>& cases);
void add_gather_rows(std::vector<Case>& cases);
void add_bias_activation(std::vector<Case>& cases);
void add_dropout(std::vector<Case>& cases);
void add_layer_norm(std::vector<Case>& cases);
void add_cross_entropy(std::vector<Case>& cases);
void add_optimizers(std::vector<Case>& cases);
void add_matmul(std::vector<Case>& cases);
void add_sort(std::vector<Case>& cases);
void add_hash_codes(std::vector<Case>& cases);
void add_group(std::vector<Case>& cases);
void add_segments(std::vector<Case>& cases);
void add_position_labels(std::vector<Case>& cases);
void add_euclidean_kmeans(std::vector<Case>& cases);
void add_attention(std::vector<Case>& cases);
void add_centroid_topk(std::vector<Case>& cases);
void add_topk_attention(std::vector<Case>& cases);
void add_linear_attention(std::vector<Case>& cases);
void add_l2_normalize(std::vector<Case>& cases);
void add_hash_buckets(std::vector<Case>& cases);
void add_bucket_attention(std::vector<Case>& cases);

}  // namespace cairn::test
