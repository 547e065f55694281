#pragma once
// What every operation is held to. Behind OPERATION("softmax") stands the table of its cases: how operands are made, a
// reference in double, sizes. Each case runs in these tests:
//
//   values    on the CPU in float32 and float64: the reference's numbers; the same bits on one, two and three threads
//   gradient  in double: along random directions, against differences; a tensor that the gradient reads must not change
//             before it, and any other may
//   CUDA      in float32 and bfloat16, numbers and gradients: those of the CPU in float32; bfloat16 is the float32
//             result, rounded once; the same bits wherever an operand starts
//
// Where the table has a `make`, all of them run some shapes that are drawn, too.
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/ops/checks.h"
#include "tests/ops/ops_test.h"

namespace cairn::test {

using Tensors = std::vector<Tensor>;
using Variables = std::vector<Variable>;

// Which of the attention family's CUDA kernels are asked for.
enum class Form {
  usual,  // on tensor cores, if the device has them
  older,  // on the emulator, as on a device without
};
inline constexpr Form every_form[] = {Form::usual, Form::older};

#if CAIRN_HAS_CUDA
// While one lives, kernels have that form.
class WithForm {
 public:
  explicit WithForm(Form form) {
#if CAIRN_CUDA_HOST
    if (form == Form::older) architecture_ = host_cuda::claim_architecture(75);
#endif
  }
  ~WithForm() {
#if CAIRN_CUDA_HOST
    if (architecture_) host_cuda::claim_architecture(architecture_);
#endif
  }
  WithForm(const WithForm&) = delete;
  WithForm& operator=(const WithForm&) = delete;

 private:
  int architecture_ = 0;
};
#endif

// What a case's own comparison of CUDA and the CPU gets, once on each device.
struct ParityRun {
  const Tensors& operands;  // on the device
  const Tensors& on_cpu;    // the same in float32 on the CPU
  const Tensors& weights;   // the gradients of the results, on the device
  bool rounded;             // to bfloat16
  // What a forward pass on the CPU saved, as the device takes it.
  Tensor place(Tensor saved) const;
};

struct Case {
  std::string name;
  Tensors operands;  // floating ones in double
  // The results, and what they must be, in double (or whole numbers).
  std::function<Variables(const Variables&)> forward;
  std::function<Tensors(const Tensors&)> reference;
  bool gradient = true;     // false: there is none here, or it is not finite
  bool differences = true;  // false: it is none of differences, because the function jumps
  bool values = true;       // false: there is no reference
  bool on_cuda = true;
  double tolerance = tolerance::float32;  // of float32; whoever sets another one says why
  Form form{};                            // of the kernels, on CUDA
  // Results and gradients to compare, in place of forward's and the tape's: where a gradient cancels what its forward
  // pass saved, both devices must have saved the same.
  std::function<Tensors(const ParityRun&)> parity{};
  // What of each result and gradient is compared (in float32, on the CPU), where not all of it can be.
  std::function<Tensor(Tensor)> compared{};
};

class Operation {
 public:
  explicit Operation(const char* name) : name_(name) {}

  // ---- set by the table
  std::function<Tensors(const Shape&)> make;  // operands for a shape
  std::function<Variables(const Variables&)> forward;
  std::function<Tensors(const Tensors&)> reference;
  std::vector<size_t> backward_reads;  // the operands that the gradient reads
  bool backward_reads_results = false;
  bool rounds_once = true;           // in bfloat16, the results
  bool gradients_round_once = true;  // and the gradients, which otherwise are sums of rounded ones
  bool same_bits_anywhere = true;    // on CUDA, wherever operands start
  bool draws_empty_rows = true;      // whether the last axis of the shapes that are drawn may have no elements

  Case& add(const Shape& shape);
  // A case whose operands `make` does not make.
  Case& add(std::string case_name, Tensors operands);
  // `forward` of these is an error whose text begins with this.
  void refuses(Tensors operands, std::string text);

  // ---- the tests
  void check_values();
  void check_gradients();
  void check_on_cuda(DType dtype);

 private:
  void add_drawn(int count);

  const char* name_;
  std::vector<Case> cases_;
  std::vector<std::pair<Tensors, std::string>> refusals_;
};

// ---- operands, in double

// Normal numbers. A table's second operand takes another seed than its first.
Tensor normal(const Shape& shape, uint64_t seed = 1);
Tensor uniform(const Shape& shape, double low, double high, uint64_t seed = 1);
// int32 in [low, high].
Tensor integers(const Shape& shape, int low, int high, uint64_t seed = 1);
// x with some elements replaced: {index in memory, value}.
Tensor with(Tensor x, const std::vector<std::pair<int64_t, double>>& elements);
inline Tensor from_doubles(const std::vector<double>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

}  // namespace cairn::test

// The tests of an operation. The body fills `op`.
#define OPERATION(name) OPERATION_TESTS(name, CAIRN_JOIN(fill_table_, __LINE__))
#define CAIRN_JOIN(a, b) CAIRN_JOIN_TEXTS(a, b)
#define CAIRN_JOIN_TEXTS(a, b) a##b
#define OPERATION_TEST(name, what, tags, fill, check) \
  TEST_CASE(name ": " what, "[" name "]" tags) {      \
    ::cairn::test::Operation op(name);                \
    fill(op);                                         \
    op.check;                                         \
  }
#if CAIRN_HAS_CUDA
#define OPERATION_ON_CUDA(name, fill)                                                                             \
  OPERATION_TEST(name, "CUDA in float32", "[gpu][parity][float32]", fill, check_on_cuda(::cairn::DType::float32)) \
  OPERATION_TEST(name, "CUDA in bfloat16", "[gpu][parity][bfloat16]", fill, check_on_cuda(::cairn::DType::bfloat16))
#else
#define OPERATION_ON_CUDA(name, fill)
#endif
#define OPERATION_TESTS(name, fill)                                   \
  static void fill(::cairn::test::Operation& op);                     \
  OPERATION_TEST(name, "values", "", fill, check_values())            \
  OPERATION_TEST(name, "gradient", "[grad]", fill, check_gradients()) \
  OPERATION_ON_CUDA(name, fill)                                       \
  static void fill(::cairn::test::Operation& op)
