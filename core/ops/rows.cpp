#include "core/ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/rows.h"
#include "core/ops/checks.h"

namespace cairn {

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

}  // namespace cairn
