#include "core/ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/sort.h"
#include "core/ops/checks.h"

namespace cairn {

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
  TopK result{Tensor(x.shape().with(-1, k), x.dtype(), x.device()),
              Tensor(x.shape().with(-1, k), DType::int32, x.device())};
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
