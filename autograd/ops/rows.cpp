#include "core/kernels/rows.h"

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

// The gradient of a row is the sum over the places that it was copied to.
Variable gather_rows(const Variable& table, const Tensor& index) {
  const Sizes s = expect("gather_rows", {{"table", table, "N C"}, of_type(DType::int32, "index", index, "*R")});
  check_values("gather_rows", "index", index, -1, s['N'] - 1);
  const RowSelection size{s['R'], s['C'], s['N']};
  Tensor y(appended(index.shape(), s['C']), table.dtype(), table.device());
  CAIRN_RUN("gather_rows", y,
            gather_rows<T>(stream, size, table.data<T>(), index.data<int32_t>(), y.mutable_data<T>()));
  return record("gather_rows", y, {table}, [size, index = SavedTensor(index)](const Tensor& g) -> Gradients {
    Tensor dtable = Tensor::zeros({size.table, size.cols}, g.dtype(), g.device());
    CAIRN_RUN("scatter_add_rows", g,
              scatter_add_rows<T>(stream, size, g.data<T>(), index().data<int32_t>(), dtable.mutable_data<T>()));
    return {dtable};
  });
}

Variable gather_columns(const Variable& x, const Tensor& columns) {
  const Sizes s = expect("gather_columns", {{"x", x, "*R C"}, of_type(DType::int32, "columns", columns, "*R")});
  check_values("gather_columns", "columns", columns, -1, s['C'] - 1);
  const Rows size{s['R'], s['C']};
  Tensor y(columns.shape(), x.dtype(), x.device());
  CAIRN_RUN("gather_columns", y,
            gather_columns<T>(stream, size, x.data<T>(), columns.data<int32_t>(), y.mutable_data<T>()));
  return record("gather_columns", y, {x}, [size, columns = SavedTensor(columns)](const Tensor& g) -> Gradients {
    Tensor dx(appended(g.shape(), size.cols), g.dtype(), g.device());
    CAIRN_RUN("scatter_columns", g,
              scatter_columns<T>(stream, size, g.data<T>(), columns().data<int32_t>(), dx.mutable_data<T>()));
    return {dx};
  });
}

}  // namespace cairn
