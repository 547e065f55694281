#pragma once
// The tests that every operation has to pass. The body of OPERATION("softmax") is the table of its cases: operands, a
// reference in double, sizes. Each case runs in these tests:
//
//   values    on the CPU in float32 and float64: the reference's numbers; the same bits on one, two and three threads
//   gradient  in double: against differences along random directions. Backward throws if a tensor that it reads was
//             changed after forward, and only then
//   refusals  an operand that is missing, or of another dtype, device, rank or size than the others ask for, is refused
//             by a message that says which one and why
//   CUDA      results and gradients in float32 and bfloat16: as on the CPU in float32; in bfloat16, the float32 result,
//             rounded once; the same bits at any alignment of the operands (products: see cublas_order)
//
// If the table has a `make`, the tests also run some random shapes.
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

// Which of the attention family's CUDA kernels to test.
enum class Form {
  usual,  // with tensor cores, if the device has them
  older,  // without tensor cores; only the emulator can be told to be an older GPU
};
inline constexpr Form every_form[] = {Form::usual, Form::older};

#if CAIRN_HAS_CUDA
// While one lives, kernels have that form.
class WithForm {
 public:
  explicit WithForm([[maybe_unused]] Form form) {
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
  [[maybe_unused]] int architecture_ = 0;
};
#endif

// The arguments of a case's own comparison of CUDA and the CPU, which runs once on each device.
struct ParityRun {
  const Tensors& operands;  // on the device
  const Tensors& on_cpu;    // the same in float32 on the CPU
  const Tensors& weights;   // the gradients of the results, on the device
  bool rounded;             // to bfloat16
  // A tensor that a forward pass on the CPU saved, in the device's memory and type.
  Tensor place(Tensor saved) const;
};

struct Case {
  std::string name;
  Tensors operands;  // floating ones in double
  // The results, and the expected results in double (or whole numbers).
  std::function<Variables(const Variables&)> forward;
  std::function<Tensors(const Tensors&)> reference;
  bool gradient = true;     // false: there is none, or it is not finite
  bool differences = true;  // false: differences do not give the gradient, because the function jumps. Then nothing
                            // but a TEST_CASE of yours compares the CPU's gradient with the right one.
  bool values = true;       // false: there is no reference
  bool on_cuda = true;
  double tolerance = tolerance::float32;           // of float32; give the reason for another one
  double rounded_tolerance = tolerance::bfloat16;  // of bfloat16, alike
  Form form{};                                     // of the kernels, on CUDA
  // Results and gradients to compare, instead of those of forward and the tape. If a gradient subtracts nearly equal
  // numbers of which one was saved by forward, both devices must use the same saved tensors.
  std::function<Tensors(const ParityRun&)> parity{};
  // The part of each result and gradient that can be compared (in float32, on the CPU), if not all of it.
  std::function<Tensor(Tensor)> compared{};
};

// What a table says of an operand: its name in messages, and a letter for each axis as in core/ops/checks.h; null: any
// shape.
struct Taken {
  enum Kind {
    always,
    optional,  // may be undefined
    number,    // floating or int32
    float32,   // of this dtype, whatever the others have
    labels,    // become clusters: clusters_of() refuses all but wrong sizes
  };
  const char* name;
  const char* shape;
  Kind kind = always;
};

// f(operands) refuses each operand if it is undefined, of another dtype, device or rank, or of another size than an
// earlier operand fixes, with the message that expect() has for it.
void check_refusals(const char* operation, const std::vector<Taken>& takes, const Tensors& operands,
                    const std::function<void(const Tensors&)>& f);

class Operation {
 public:
  explicit Operation(const char* name) : name_(name) {}

  // ---- set by the table
  std::vector<Taken> takes;                   // the operands, if errors about them begin with this operation's name
  std::function<Tensors(const Shape&)> make;  // operands for a shape
  std::function<Variables(const Variables&)> forward;
  std::function<Tensors(const Tensors&)> reference;
  std::vector<size_t> backward_reads;  // the operands that the gradient reads
  bool backward_reads_results = false;
  bool rounds_once = true;           // in bfloat16, results are rounded once
  bool gradients_round_once = true;  // and so are gradients; if false, they are sums of rounded numbers
  bool same_bits_anywhere = true;    // on CUDA, at any alignment of the operands
  // The sums are those of a product by cuBLAS. On a GPU, cuBLAS adds in another order at another alignment and for
  // another type of operands, so float32 sums may differ there by the tolerance of float32 before they are rounded.
  bool cublas_order = false;
  bool draws_empty_rows = true;  // may the last axis of random shapes have no elements?

  Case& add(const Shape& shape);
  // A case with these operands, not those of `make`.
  Case& add(std::string case_name, Tensors operands);
  // `forward` of these operands is an error whose text begins with `text`.
  void refuses(Tensors operands, std::string text);

  // ---- the tests
  void check_values();
  void check_gradients();
  void check_refusals();
  void check_on_cuda(DType dtype);

 private:
  void add_drawn(int count);

  const char* name_;
  std::vector<Case> cases_;
  std::vector<std::pair<Tensors, std::string>> refusals_;
};

// ---- operands, in double

// Normal numbers. Give the second operand of a table another seed than the first.
Tensor normal(const Shape& shape, uint64_t seed = 1);
Tensor uniform(const Shape& shape, double low, double high, uint64_t seed = 1);
// int32 in [low, high].
Tensor integers(const Shape& shape, int low, int high, uint64_t seed = 1);
// x with some elements replaced: {index in memory, value}.
Tensor with(Tensor x, const std::vector<std::pair<int64_t, double>>& elements);
// Three rows, of which the second has one large number, five columns before its end: a maximum over the row's
// beginning, or over a part of the lanes, misses it.
inline Tensor with_late_peak(int64_t cols) { return with(normal({3, cols}), {{2 * cols - 5, 200}}); }
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
#define OPERATION_ON_CUDA(name, fill)                                                                     \
  OPERATION_TEST(name, "CUDA in float32", "[gpu][float32]", fill, check_on_cuda(::cairn::DType::float32)) \
  OPERATION_TEST(name, "CUDA in bfloat16", "[gpu][bfloat16]", fill, check_on_cuda(::cairn::DType::bfloat16))
#else
#define OPERATION_ON_CUDA(name, fill)
#endif
#define OPERATION_TESTS(name, fill)                                   \
  static void fill(::cairn::test::Operation& op);                     \
  OPERATION_TEST(name, "values", "", fill, check_values())            \
  OPERATION_TEST(name, "gradient", "[grad]", fill, check_gradients()) \
  OPERATION_TEST(name, "refusals", "", fill, check_refusals())        \
  OPERATION_ON_CUDA(name, fill)                                       \
  static void fill(::cairn::test::Operation& op)
