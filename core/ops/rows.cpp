#include "core/ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/rows.h"
#include "core/ops/checks.h"

namespace cairn {

Tensor gather_rows(const Tensor& table, const Tensor& index) {
  const Sizes s = expect("gather_rows", {{"table", table, "N C"}, of_type(DType::int32, "index", index, "*R")});
  check_values("gather_rows", "index", index, -1, s['N'] - 1);
  const RowSelection size{s['R'], s['C'], s['N']};
  Tensor out(appended(index.shape(), s['C']), table.dtype(), table.device());
  CAIRN_RUN("gather_rows", table,
            gather_rows<T>(stream, size, table.data<T>(), index.data<int32_t>(), out.mutable_data<T>()));
  return out;
}

Tensor scatter_add_rows(const Tensor& x, const Tensor& index, int64_t n) {
  check(n >= 0, "scatter_add_rows: expected at least 0 rows, got ", n);
  const Sizes s = expect("scatter_add_rows", {{"x", x, "*R C"}, of_type(DType::int32, "index", index, "*R")});
  check_values("scatter_add_rows", "index", index, -1, n - 1);
  Tensor table = Tensor::zeros({n, s['C']}, x.dtype(), x.device());
  CAIRN_RUN(
      "scatter_add_rows", x,
      scatter_add_rows<T>(stream, {s['R'], s['C'], n}, x.data<T>(), index.data<int32_t>(), table.mutable_data<T>()));
  return table;
}

Tensor gather_columns(const Tensor& x, const Tensor& columns) {
  const Sizes s = expect("gather_columns", {{"x", x, "*R C"}, of_type(DType::int32, "columns", columns, "*R")});
  check_values("gather_columns", "columns", columns, -1, s['C'] - 1);
  Tensor y(columns.shape(), x.dtype(), x.device());
  CAIRN_RUN("gather_columns", x,
            gather_columns<T>(stream, {s['R'], s['C']}, x.data<T>(), columns.data<int32_t>(), y.mutable_data<T>()));
  return y;
}

Tensor scatter_columns(const Tensor& y, const Tensor& columns, int64_t n) {
  check(n >= 0, "scatter_columns: expected at least 0 columns, got ", n);
  const Sizes s = expect("scatter_columns", {{"y", y, "*R"}, of_type(DType::int32, "columns", columns, "*R")});
  check_values("scatter_columns", "columns", columns, -1, n - 1);
  Tensor x(appended(y.shape(), n), y.dtype(), y.device());
  CAIRN_RUN("scatter_columns", y,
            scatter_columns<T>(stream, {s['R'], n}, y.data<T>(), columns.data<int32_t>(), x.mutable_data<T>()));
  return x;
}

}  // namespace cairn
