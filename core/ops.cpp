#include "core/ops.h"

#include <algorithm>
#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/cross_entropy.h"
#include "core/kernels/dropout.h"
#include "core/kernels/gemm.h"
#include "core/kernels/layer_norm.h"
#include "core/kernels/rows.h"
#include "core/kernels/softmax.h"
#include "core/kernels/sort.h"

namespace cairn {
namespace {

Tensor like(const Tensor& x) { return Tensor(x.shape(), x.dtype(), x.device()); }

// x as a matrix of rows along its last axis.
Rows rows_of(const char* operation, const Tensor& x) {
  check(x.defined(), operation, ": x was never given a value");
  check(x.rank() > 0, operation, ": expected at least one axis, got a scalar");
  const int64_t cols = x.size(-1);
  return {cols ? x.elements() / cols : x.shape().without(-1).elements(), cols};
}

// The same where rows of nothing need no visit, however many there are.
Rows filled_rows_of(const char* operation, const Tensor& x) {
  const Rows size = rows_of(operation, x);
  return {size.cols ? size.rows : 0, size.cols};
}

// Strides of `from` as it broadcasts to `to`; 0 along axes that are stretched.
void broadcast_strides(const Shape& from, const Shape& to, int64_t* strides) {
  int64_t stride = 1;
  for (int i = 1; i <= to.rank(); ++i) {
    const int64_t size = i <= from.rank() ? from[-i] : 1;
    strides[to.rank() - i] = size == 1 ? 0 : stride;
    stride *= size;
  }
}

Shape with_last(const Shape& shape, int64_t size) { return shape.with(-1, size); }

Shape appended(Shape shape, int64_t size) {
  shape.push_back(size);
  return shape;
}

}  // namespace

DType sums_of(const Tensor& x) { return x.dtype() == DType::bfloat16 ? DType::float32 : x.dtype(); }

void check_operands(const char* operation, std::initializer_list<NamedTensor> operands) {
  const NamedTensor& first = *operands.begin();
  for (const auto& [name_, tensor] : operands) {
    check(tensor.defined(), operation, ": ", name_, " was never given a value");
    check(is_floating(tensor.dtype()), operation, ": ", name_, " must be floating, got ", name(tensor.dtype()));
    check(tensor.dtype() == first.tensor.dtype(), operation, ": ", name_, " is ", name(tensor.dtype()), ", ",
          first.name, " is ", name(first.tensor.dtype()));
    check(tensor.device() == first.tensor.device(), operation, ": ", name_, " is on ", name(tensor.device()), ", ",
          first.name, " on ", name(first.tensor.device()));
  }
}

void check_shape(const char* operation, const char* argument, const Tensor& tensor, const Shape& expected) {
  check(tensor.shape() == expected, operation, ": expected ", argument, " of shape ", expected, ", got ",
        tensor.shape());
}

void check_tensor(const char* operation, const char* argument, const Tensor& tensor, DType dtype, Device device) {
  check(tensor.defined(), operation, ": ", argument, " was never given a value");
  check(tensor.dtype() == dtype, operation, ": expected ", argument, " to be ", name(dtype), ", got ",
        name(tensor.dtype()));
  check(tensor.device() == device, operation, ": ", argument, " is on ", name(tensor.device()), ", expected ",
        name(device));
}

void check_tensor(const char* operation, const char* argument, const Tensor& tensor, DType dtype, Device device,
                  const Shape& shape) {
  check_tensor(operation, argument, tensor, dtype, device);
  check_shape(operation, argument, tensor, shape);
}

void check_draw(const char* operation, const RandomDraw& draw, Device device) {
  check_tensor(operation, "the state of the draw", draw.state, DType::uint64, device, {2});
}

void check_indices(const char* operation, const char* what, const Tensor& index, int64_t lowest, int64_t n) {
  if (index.device() != Device::cpu) return;
  const int32_t* values = index.data<int32_t>();
  for (int64_t i = 0; i < index.elements(); ++i)
    check(values[i] >= lowest && values[i] < n, operation, ": ", what, " ", values[i], " at position ", i,
          " is outside [", lowest, ", ", n, ")");
}

// ---------------------------------------------------------------------------------------------------- single elements

Tensor unary(Unary op, const Tensor& x) {
  check_operands(name(op), {{"x", x}});
  Tensor y = like(x);
  CAIRN_RUN(name(op), x, unary<T>(stream, op, x.elements(), x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor unary_backward(Unary op, const Tensor& x, const Tensor& dy) {
  check_operands(name(op), {{"x", x}, {"its gradient", dy}});
  check_shape(name(op), "the gradient", dy, x.shape());
  Tensor dx = like(x);
  CAIRN_RUN(name(op), x, unary_backward<T>(stream, op, x.elements(), x.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  check_operands(name(op), {{"the first operand", a}, {"the second operand", b}});
  Broadcast shape;
  if (a.shape() == b.shape()) {
    shape = {1, {a.elements()}, {1}, {1}};
  } else {
    const Shape result = broadcast(a.shape(), b.shape(), name(op));
    shape.rank = result.rank();
    std::copy(result.begin(), result.end(), shape.sizes);
    broadcast_strides(a.shape(), result, shape.stride_a);
    broadcast_strides(b.shape(), result, shape.stride_b);
  }
  Tensor y(broadcast(a.shape(), b.shape(), name(op)), a.dtype(), a.device());
  CAIRN_RUN(name(op), a, binary<T>(stream, op, shape, a.data<T>(), b.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor affine(const Tensor& x, double alpha, double beta) {
  check_operands("affine", {{"x", x}});
  Tensor y = like(x);
  CAIRN_RUN("affine", x, affine<T>(stream, x.elements(), alpha, beta, x.data<T>(), y.mutable_data<T>()));
  return y;
}

void accumulate(Tensor& y, const Tensor& x, double alpha) {
  check_operands("accumulate", {{"y", y}, {"x", x}});
  check_shape("accumulate", "x", x, y.shape());
  CAIRN_RUN("accumulate", x, accumulate<T>(stream, x.elements(), alpha, x.data<T>(), y.mutable_data<T>()));
}

// --------------------------------------------------------------------------------------------------------- reductions

static Tensor reduce_as(Reduce op, const Tensor& x, Reduction size, const Shape& shape) {
  Tensor y(shape, x.dtype(), x.device());
  CAIRN_RUN("reduce", x, reduce<T>(stream, op, size, x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor reduce(Reduce op, const Tensor& x, int axis) {
  check_operands("reduce", {{"x", x}});
  check(axis >= -x.rank() && axis < x.rank(), "reduce: axis ", axis, " out of range for ", x.shape());
  axis = x.shape().normalize(axis);
  Reduction size{1, x.size(axis), 1};
  for (int i = 0; i < x.rank(); ++i) (i < axis ? size.outer : size.inner) *= i == axis ? 1 : x.size(i);
  return reduce_as(op, x, size, x.shape().without(axis));
}

Tensor sum_all(const Tensor& x) {
  check_operands("sum", {{"x", x}});
  return reduce_as(Reduce::sum, x, {1, x.elements(), 1}, {});
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_operands("sum_to", {{"x", x}});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "sum_to") == x.shape(), "sum_to: ", shape, " does not broadcast to ", x.shape());
  // Leading axes that were added or stretched go in one step: a bias's gradient is one sum over rows.
  int leading = 0;
  while (leading < x.rank() && (leading < x.rank() - shape.rank() || shape[leading - x.rank()] == 1)) ++leading;
  int64_t outer = 1;
  for (int i = 0; i < leading; ++i) outer *= x.size(i);
  Tensor result = x;
  if (leading > 0) {
    const Shape rest(x.shape().begin() + leading, x.shape().end());
    result = reduce_as(Reduce::sum, x, {1, outer, rest.elements()}, rest);
  }
  for (int i = 1; i <= result.rank(); ++i)
    if (shape[-i] == 1 && result.size(-i) != 1) {
      const Shape saved = result.shape().with(-i, 1);
      result = reduce(Reduce::sum, result, -i).reshape(saved);
    }
  return result.reshape(shape);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  check_operands("broadcast_to", {{"x", x}});
  if (x.shape() == shape) return x;
  check(broadcast(x.shape(), shape, "broadcast_to") == shape, "broadcast_to: ", x.shape(), " does not broadcast to ",
        shape);
  Broadcast strides;
  strides.rank = shape.rank();
  std::copy(shape.begin(), shape.end(), strides.sizes);
  broadcast_strides(x.shape(), shape, strides.stride_a);
  Tensor y(shape, x.dtype(), x.device());
  CAIRN_RUN("broadcast_to", x, expand<T>(stream, strides, x.data<T>(), y.mutable_data<T>()));
  return y;
}

// ----------------------------------------------------------------------------------------------------------- matrices

static void run_gemm(const Gemm& g, const Tensor& a, const Tensor& b, Tensor& c) {
  CAIRN_RUN("matmul", a, gemm<T>(stream, g, a.data<T>(), b.data<T>(), c.mutable_data<T>()));
}

Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  check_operands("matmul", {{"the first operand", a}, {"the second operand", b}});
  check(a.rank() >= 2 && b.rank() >= 2, "matmul: expected matrices, got shapes ", a.shape(), " and ", b.shape());
  Gemm g;
  g.transpose_a = transpose_a, g.transpose_b = transpose_b;
  g.m = a.size(transpose_a ? -1 : -2), g.k = a.size(transpose_a ? -2 : -1), g.n = b.size(transpose_b ? -2 : -1);
  check(b.size(transpose_b ? -1 : -2) == g.k, "matmul: ", a.shape(), transpose_a ? " transposed" : "", " and ",
        b.shape(), transpose_b ? " transposed" : "", " do not match: inner sizes ", g.k, " and ",
        b.size(transpose_b ? -1 : -2));
  const Shape leading_a = a.shape().without(-1).without(-1), leading_b = b.shape().without(-1).without(-1);
  check(leading_a == leading_b || a.rank() == 2 || b.rank() == 2, "matmul: leading axes of ", a.shape(), " and ",
        b.shape(), " differ");
  const Shape leading = a.rank() >= b.rank() ? leading_a : leading_b;
  Tensor c(appended(appended(leading, g.m), g.n), a.dtype(), a.device());
  g.lda = a.size(-1), g.ldb = b.size(-1), g.ldc = g.n;
  g.batch = leading.elements();
  g.stride_a = a.rank() == 2 ? 0 : a.size(-1) * a.size(-2), g.stride_b = b.rank() == 2 ? 0 : b.size(-1) * b.size(-2);
  g.stride_c = g.m * g.n;
  if (b.rank() == 2 && !transpose_a) g.m *= g.batch, g.batch = 1;  // one tall product
  run_gemm(g, a, b, c);
  return c;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_operands("linear", {{"x", x}, {"weight", weight}});
  check(weight.rank() == 2, "linear: expected a weight [out, in], got ", weight.shape());
  const auto [rows, in] = rows_of("linear", x);
  check(in == weight.size(1), "linear: x of shape ", x.shape(), " has ", in, " features, weight of shape ",
        weight.shape(), " expects ", weight.size(1));
  const int64_t out = weight.size(0);
  const Shape shape = with_last(x.shape(), out);
  Tensor y;
  if (bias.defined()) {
    check_operands("linear", {{"x", x}, {"bias", bias}});
    check_shape("linear", "bias", bias, {out});
    // The product is added onto the bias.
    y = shape == bias.shape() ? bias.clone() : broadcast_to(bias, shape);
  } else {
    y = Tensor(shape, x.dtype(), x.device());
  }
  Gemm g;
  g.m = rows, g.n = out, g.k = in, g.transpose_b = true;
  g.lda = in, g.ldb = in, g.ldc = out;
  g.beta = bias.defined() ? 1 : 0;
  run_gemm(g, x, weight, y);
  return y;
}

// Checks x and bias; the rows of x.
static Rows check_bias(const Tensor& x, const Tensor& bias) {
  check_operands("bias_activation", {{"x", x}, {"bias", bias}});
  const Rows size = filled_rows_of("bias_activation", x);
  check_shape("bias_activation", "bias", bias, {size.cols});
  return size;
}

Tensor bias_activation(const Tensor& x, const Tensor& bias, Activation activation) {
  const Rows size = check_bias(x, bias);
  Tensor y = like(x);
  CAIRN_RUN("bias_activation", x,
            bias_activation_forward<T>(stream, activation, size, x.data<T>(), bias.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor bias_activation_backward(const Tensor& x, const Tensor& bias, Activation activation, const Tensor& dy) {
  const Rows size = check_bias(x, bias);
  check_operands("bias_activation", {{"x", x}, {"the gradient", dy}});
  check_shape("bias_activation", "the gradient", dy, x.shape());
  Tensor dx = like(x);
  CAIRN_RUN("bias_activation", x,
            bias_activation_backward<T>(stream, activation, size, x.data<T>(), bias.data<T>(), dy.data<T>(),
                                        dx.mutable_data<T>()));
  return dx;
}

// --------------------------------------------------------------------------------------------------------------- rows

Tensor softmax(const Tensor& x) {
  check_operands("softmax", {{"x", x}});
  const Rows size = filled_rows_of("softmax", x);
  Tensor y = like(x);
  CAIRN_RUN("softmax", x, softmax_forward<T>(stream, size, x.data<T>(), y.mutable_data<T>()));
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  check_operands("softmax", {{"y", y}, {"its gradient", dy}});
  check_shape("softmax", "the gradient", dy, y.shape());
  const Rows size = filled_rows_of("softmax", y);
  Tensor dx = like(y);
  CAIRN_RUN("softmax", y, softmax_backward<T>(stream, size, y.data<T>(), dy.data<T>(), dx.mutable_data<T>()));
  return dx;
}

LayerNormResult layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon) {
  check_operands("layer_norm", {{"x", x}, {"weight", weight}, {"bias", bias}});
  const Rows size = rows_of("layer_norm", x);
  check_shape("layer_norm", "weight", weight, {size.cols});
  check_shape("layer_norm", "bias", bias, {size.cols});
  LayerNormResult result{like(x), Tensor({size.rows}, sums_of(x), x.device()),
                         Tensor({size.rows}, sums_of(x), x.device())};
  CAIRN_RUN("layer_norm", x,
            layer_norm_forward<T>(stream, size, epsilon, x.data<T>(), weight.data<T>(), bias.data<T>(),
                                  result.y.mutable_data<T>(), result.mean.mutable_data<Accum<T>>(),
                                  result.rstd.mutable_data<Accum<T>>()));
  return result;
}

LayerNormGradient layer_norm_backward(const Tensor& x, const Tensor& weight, const LayerNormResult& saved,
                                      const Tensor& dy) {
  check_operands("layer_norm", {{"x", x}, {"weight", weight}, {"the gradient", dy}});
  check_shape("layer_norm", "the gradient", dy, x.shape());
  const Rows size = rows_of("layer_norm", x);
  check_shape("layer_norm", "weight", weight, {size.cols});
  check_tensor("layer_norm", "the saved mean", saved.mean, sums_of(x), x.device(), {size.rows});
  check_tensor("layer_norm", "the saved rstd", saved.rstd, sums_of(x), x.device(), {size.rows});
  LayerNormGradient g{like(x), like(weight), like(weight)};
  CAIRN_RUN("layer_norm", x,
            layer_norm_backward<T>(stream, size, x.data<T>(), weight.data<T>(), saved.mean.data<Accum<T>>(),
                                   saved.rstd.data<Accum<T>>(), dy.data<T>(), g.dx.mutable_data<T>(),
                                   g.dweight.mutable_data<T>(), g.dbias.mutable_data<T>()));
  return g;
}

// residual: undefined for none.
static Tensor run_dropout(const char* operation, const Tensor& x, double p, const RandomDraw& draw,
                          const Tensor& residual) {
  check(p >= 0 && p <= 1, operation, ": expected a probability, got ", p);
  if (p > 0) check_draw(operation, draw, x.device());
  Tensor y = like(x);
  CAIRN_RUN(operation, x,
            dropout<T>(stream, x.elements(), Dropout{draw.view(), float(p)}, x.data<T>(),
                       residual.defined() ? residual.data<T>() : nullptr, y.mutable_data<T>()));
  return y;
}

Tensor dropout(const Tensor& x, double p, const RandomDraw& draw) {
  check_operands("dropout", {{"x", x}});
  return run_dropout("dropout", x, p, draw, {});
}

Tensor dropout_add(const Tensor& x, double p, const RandomDraw& draw, const Tensor& residual) {
  check_operands("dropout_add", {{"x", x}, {"the residual", residual}});
  check_shape("dropout_add", "the residual", residual, x.shape());
  return run_dropout("dropout_add", x, p, draw, residual);
}

Tensor gather_rows(const Tensor& table, const Tensor& index) {
  check_operands("gather_rows", {{"table", table}});
  check(table.rank() == 2, "gather_rows: expected a table [n, cols], got ", table.shape());
  check_tensor("gather_rows", "index", index, DType::int32, table.device());
  check_indices("gather_rows", "index", index, -1, table.size(0));
  const RowSelection size{index.elements(), table.size(1), table.size(0)};
  Tensor out(appended(index.shape(), size.cols), table.dtype(), table.device());
  CAIRN_RUN("gather_rows", table,
            gather_rows<T>(stream, size, table.data<T>(), index.data<int32_t>(), out.mutable_data<T>()));
  return out;
}

Tensor scatter_add_rows(const Tensor& x, const Tensor& index, int64_t n) {
  check_operands("scatter_add_rows", {{"x", x}});
  check(n >= 0, "scatter_add_rows: expected at least 0 rows, got ", n);
  check_tensor("scatter_add_rows", "index", index, DType::int32, x.device());
  const int64_t cols = rows_of("scatter_add_rows", x).cols;
  check_shape("scatter_add_rows", "x", x, appended(index.shape(), cols));
  check_indices("scatter_add_rows", "index", index, -1, n);
  Tensor table = Tensor::zeros({n, cols}, x.dtype(), x.device());
  CAIRN_RUN("scatter_add_rows", x,
            scatter_add_rows<T>(stream, {index.elements(), cols, n}, x.data<T>(), index.data<int32_t>(),
                                table.mutable_data<T>()));
  return table;
}

// Checks logits and targets; the rows of logits. Error (on the CPU): a target that is no class.
static Rows check_targets(const Tensor& logits, const Tensor& targets) {
  check_operands("cross_entropy", {{"logits", logits}});
  const Rows size = rows_of("cross_entropy", logits);
  check_tensor("cross_entropy", "targets", targets, DType::int32, logits.device(), logits.shape().without(-1));
  if (targets.device() != Device::cpu) return size;
  const int32_t* target = targets.data<int32_t>();
  for (int64_t i = 0; i < targets.elements(); ++i)
    check(target[i] < size.cols, "cross_entropy: target ", target[i], " at position ", i, " is no class (there are ",
          size.cols, "); a negative one is ignored");
  return size;
}

CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Rows size = check_targets(logits, targets);
  CrossEntropy result{Tensor({}, logits.dtype(), logits.device()),
                      Tensor({size.rows}, sums_of(logits), logits.device()), Tensor({}, DType::int32, logits.device())};
  CAIRN_RUN("cross_entropy", logits,
            cross_entropy_forward<T>(stream, size, logits.data<T>(), targets.data<int32_t>(),
                                     result.logsumexp.mutable_data<Accum<T>>(), result.loss.mutable_data<T>(),
                                     result.count.mutable_data<int32_t>()));
  return result;
}

Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets, const CrossEntropy& saved,
                              const Tensor& dloss) {
  const Rows size = check_targets(logits, targets);
  check_tensor("cross_entropy", "the saved logsumexp", saved.logsumexp, sums_of(logits), logits.device(), {size.rows});
  check_tensor("cross_entropy", "the saved count", saved.count, DType::int32, logits.device(), {});
  check_operands("cross_entropy", {{"logits", logits}, {"the gradient", dloss}});
  check_shape("cross_entropy", "the gradient", dloss, {});
  Tensor dlogits = like(logits);
  CAIRN_RUN("cross_entropy", logits,
            cross_entropy_backward<T>(stream, size, logits.data<T>(), targets.data<int32_t>(),
                                      saved.logsumexp.data<Accum<T>>(), saved.count.data<int32_t>(), dloss.data<T>(),
                                      dlogits.mutable_data<T>()));
  return dlogits;
}

// f with a value of one of the types that can be sorted.
template <class F>
static void visit_sortable(const char* operation, const Tensor& x, F&& f) {
  switch (x.dtype()) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::int32: return f(int32_t{});
    case DType::int64: return f(int64_t{});
    default: throw Error(concat(operation, ": ", name(x.dtype()), " cannot be sorted"));
  }
}

// Error: columns that int32 cannot number.
static void check_columns(const char* operation, const Rows& size) {
  check(size.cols <= INT32_MAX, operation, ": ", size.cols, " columns, expected at most ", INT32_MAX);
}

Tensor stable_sort(const Tensor& x) {
  const Rows size = filled_rows_of("stable_sort", x);
  check_columns("stable_sort", size);
  Tensor permutation(x.shape(), DType::int32, x.device());
  visit_sortable("stable_sort", x, [&]<class T>(T) {
    CAIRN_DISPATCH("stable_sort", T, x,
                   stable_sort<T>(current_stream(x.device()), size, x.data<T>(), permutation.mutable_data<int32_t>()));
  });
  return permutation;
}

TopK top_k(const Tensor& x, int64_t k) {
  const Rows size = filled_rows_of("top_k", x);
  check_columns("top_k", size);
  check(k >= 0 && k <= size.cols, "top_k: k = ", k, " of ", size.cols, " columns of ", x.shape());
  TopK result{Tensor(with_last(x.shape(), k), x.dtype(), x.device()),
              Tensor(with_last(x.shape(), k), DType::int32, x.device())};
  visit_sortable("top_k", x, [&]<class T>(T) {
    CAIRN_DISPATCH("top_k", T, x,
                   top_k<T>(current_stream(x.device()), size, k, x.data<T>(), result.values.mutable_data<T>(),
                            result.columns.mutable_data<int32_t>()));
  });
  return result;
}

Tensor argmax(const Tensor& x) {
  const Rows size = rows_of("argmax", x);
  check(size.cols > 0, "argmax: the last axis of ", x.shape(), " is empty");
  return top_k(x, 1).columns.reshape(x.shape().without(-1));
}

}  // namespace cairn
