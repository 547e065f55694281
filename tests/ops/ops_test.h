#pragma once
// What the tests of operations share.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "core/ops.h"
#include "core/parallel.h"
#include "nn/purpose.h"
#include "tests/catch.h"
#include "tests/ops/reference.h"
#include "tests/tolerances.h"
#if CAIRN_HAS_CUDA
#include "tests/cuda/device.h"
#endif

namespace cairn {

// Normal numbers; the same for the same seed.
inline Tensor random_tensor(const Shape& shape, DType dtype = DType::float64, uint64_t seed = 1) {
  RandomStream sequence(seed, 0, Purpose::test);
  return random_normal(shape, sequence, dtype);
}

// Whole numbers in [low, high]: their sums and products are exact, and ties are frequent.
inline Tensor random_integers(const Shape& shape, int low, int high, DType dtype = DType::int32, uint64_t seed = 1) {
  RandomStream sequence(seed, 0, Purpose::test);
  Tensor result(shape, DType::int32);
  int32_t* data = result.mutable_data<int32_t>();
  for (int64_t i = 0; i < result.elements(); ++i) data[i] = low + int32_t(sequence.below(uint32_t(high - low + 1)));
  return result.cast(dtype);
}

inline Tensor int32s(const std::vector<int32_t>& values) { return Tensor::from(values, {int64_t(values.size())}); }

inline double difference(const Tensor& a, const std::vector<double>& b) { return difference(as_double(a), b); }
inline double difference(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() ? difference(as_double(a), as_double(b)) : INFINITY;
}

inline double tolerance_of(DType dtype) { return dtype == DType::float32 ? tolerance::float32 : tolerance::float64; }

inline std::vector<Device> every_device() {
#if CAIRN_HAS_CUDA
  return {Device::cpu, Device::cuda};
#else
  return {Device::cpu};
#endif
}

// A parameter as a model has it: float32, even where x is bfloat16.
inline Variable wide(const Variable& x) { return x.value().dtype() == DType::bfloat16 ? cast(x, DType::float32) : x; }

// Equal to the last bit, NaN or not.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0);
}

// The peak without the threads' scratch memory, which does not grow with the problem.
inline int64_t peak_without_scratch() {
  const MemoryCount count = memory(Device::cpu);
  return count.peak - count.scratch;
}

// f() gives tensors. One, two and three threads must give the same bits.
template <class F>
void check_any_threads(F&& f) {
  const int before = threads();
  set_threads(1);
  const std::vector<Tensor> expected = f();
  for (int count : {2, 3}) {
    set_threads(count);
    const std::vector<Tensor> result = f();
    INFO(count << " threads");
    REQUIRE(result.size() == expected.size());
    for (size_t i = 0; i < result.size(); ++i) {
      INFO("tensor " << i);
      CHECK(same_bits(result[i], expected[i]));
    }
  }
  set_threads(before);
}

// A tensor on the other device. It has no elements, so a build without CUDA can make it too.
inline Tensor elsewhere(const Shape& shape, DType dtype = DType::float32) { return Tensor(shape, dtype, Device::cuda); }

// An operation on a device that this build lacks. Checks nothing in a build that has CUDA.
#define CHECK_NEEDS_CUDA(expression, operation)                                                   \
  do {                                                                                            \
    if (::cairn::backends() != "cpu") break;                                                      \
    CHECK_THROWS_AS(expression, ::cairn::DeviceError);                                            \
    CHECK_THROWS_WITH(expression, Catch::Matchers::StartsWith(operation ": built without CUDA")); \
  } while (false)

// The operation rejects its arguments with an error whose text begins so.
#define CHECK_ERROR(expression, text) CHECK_THROWS_WITH(expression, Catch::Matchers::StartsWith(text))

// While it lives, loops run on one thread. For tiny tensors, where a second thread costs more than it saves.
class OneThread {
 public:
  OneThread() : before_(threads()) { set_threads(1); }
  ~OneThread() { set_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// The gradient of f, a function of a vector of variables, at inputs in double.
#define CHECK_GRADIENT(f, ...)                                      \
  do {                                                              \
    const ::cairn::OneThread one_thread;                            \
    const auto checked = ::cairn::check_gradient(f, {__VA_ARGS__}); \
    INFO(checked.where);                                            \
    CHECK(checked.error <= ::cairn::tolerance::gradient);           \
  } while (false)

}  // namespace cairn

namespace cairn::test {

// Where and by how much a differs from b: the first element beyond the tolerance. Empty if all |a - b| are at most
// tolerance * max|b|; if max|b| is only rounding, at most tolerance.
std::string differs(const Tensor& a, const Tensor& b, double tolerance);

// Rows of no, of one, of a few and of more elements than a warp keeps in registers, and of whole chunks or not.
inline const Shape row_shapes[] = {{0, 5},  {1, 1},     {3, 1},    {5, 2},    {7, 31},        {3, 5, 32}, {33, 33},
                                   {2, 64}, {9, 129},   {3, 257},  {2, 520},  {2, 1023},      {3, 1024},  {3, 1025},
                                   {67, 7}, {1031, 13}, {2, 2053}, {3, 2056}, {2, 3, 2, 4099}};

// B, H, N and clusters: nothing, one, odd, several chunks of queries, more clusters than queries, more than a block
// takes at once.
inline const ClusterSizes cluster_sizes[] = {{0, 2, 3, 2},    {2, 0, 3, 2},     {2, 3, 0, 4},     {2, 3, 7, 0},
                                             {1, 1, 1, 1},    {2, 3, 17, 1},    {2, 1, 33, 7},    {1, 2, 300, 5},
                                             {2, 3, 257, 40}, {1, 1, 100, 300}, {1, 2, 2100, 31}, {1, 1, 5003, 1100}};

}  // namespace cairn::test

using namespace cairn;        // NOLINT: tests only
using namespace cairn::test;  // NOLINT: tests only
