#pragma once
// Holds every CUDA kernel to the CPU's, which the same file of tests holds to a reference. Behind PARITY("softmax")
// stand the cases of an operation; a case is a function of a Bench, which makes the same inputs on either device, and
// returns the results.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "core/ops.h"
#include "nn/purpose.h"
#include "tests/catch.h"
#include "tests/tolerances.h"
#if CAIRN_HAS_CUDA
#include "tests/cuda/device.h"
#endif

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
class Cases {
 public:
  // exact: in float32; whole numbers always are.
  void add(std::string name, std::function<Results(const Bench&)> run, bool exact = false,
           double tolerance = tolerance::float32) {
    cases_.push_back({std::move(name), std::move(run), exact ? 0 : tolerance});
  }
  // Runs them all on both devices, and compares.
  void in_float32() const { compare({Device::cuda}, {}, 0); }
  void in_bfloat16() const {
    compare({Device::cuda, DType::bfloat16, true}, {Device::cpu, DType::float32, true}, tolerance::bfloat16);
  }

 private:
  struct Case {
    std::string name;
    std::function<Results(const Bench&)> run;
    double tolerance;
  };
  // tolerance 0: each case's own.
  void compare(const Bench& on_cuda, const Bench& on_cpu, double tolerance) const;

  std::vector<Case> cases_;
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

inline std::string label(const char* what, const Shape& shape) { return concat(what, " ", shape); }

// Rows of no, of one, of a few and of more elements than a warp keeps in registers, and of whole chunks or not.
inline const Shape row_shapes[] = {{0, 5},  {1, 1},     {3, 1},    {5, 2},    {7, 31},        {3, 5, 32}, {33, 33},
                                   {2, 64}, {9, 129},   {3, 257},  {2, 520},  {2, 1023},      {3, 1024},  {3, 1025},
                                   {67, 7}, {1031, 13}, {2, 2053}, {3, 2056}, {2, 3, 2, 4099}};

// B, H, N and clusters: nothing, one, odd, several pieces of queries, more clusters than queries, more than a block
// takes at once.
struct Grouped {
  int64_t B, H, N, C;
};
inline const Grouped grouped[] = {{0, 2, 3, 2},    {2, 0, 3, 2},     {2, 3, 0, 4},     {2, 3, 7, 0},
                                  {1, 1, 1, 1},    {2, 3, 17, 1},    {2, 1, 33, 7},    {1, 2, 300, 5},
                                  {2, 3, 257, 40}, {1, 1, 100, 300}, {1, 2, 2100, 31}, {1, 1, 5003, 1100}};
inline std::string grouped_label(const std::string& what, const Grouped& size) {
  return concat(what, " ", Shape{size.B, size.H, size.N}, " in ", size.C, " clusters");
}
}  // namespace cairn::test

// Two test cases: CUDA in float32, and in bfloat16, against the CPU in float32. The body adds to `cases`.
#define PARITY(operation)                                                                                        \
  static void add_parity(::cairn::test::Cases& cases);                                                           \
  TEST_CASE(operation " on CUDA computes what it does on the CPU", "[gpu][parity][float32]") {                   \
    ::cairn::test::Cases cases;                                                                                  \
    add_parity(cases);                                                                                           \
    cases.in_float32();                                                                                          \
  }                                                                                                              \
  TEST_CASE(operation " on CUDA computes in bfloat16 what the CPU does in float32", "[gpu][parity][bfloat16]") { \
    ::cairn::test::Cases cases;                                                                                  \
    add_parity(cases);                                                                                           \
    cases.in_bfloat16();                                                                                         \
  }                                                                                                              \
  static void add_parity(::cairn::test::Cases& cases)

using namespace cairn::test;  // NOLINT: tests only
