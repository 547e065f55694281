#include "autograd/ops.h"

namespace cairn {

// Picking rows and adding rows are each other's gradients.
Variable gather_rows(const Variable& table, const Tensor& index) {
  return record("gather_rows", gather_rows(table.value(), index), {table},
                [index = SavedTensor(index), n = table.size(0)](const Tensor& g) -> Gradients {
                  return {scatter_add_rows(g, index(), n)};
                });
}

Variable scatter_add_rows(const Variable& x, const Tensor& index, int64_t n) {
  return record("scatter_add_rows", scatter_add_rows(x.value(), index, n), {x},
                [index = SavedTensor(index)](const Tensor& g) -> Gradients { return {gather_rows(g, index())}; });
}

Variable gather_columns(const Variable& x, const Tensor& columns) {
  return record("gather_columns", gather_columns(x.value(), columns), {x},
                [columns = SavedTensor(columns), n = x.size(-1)](const Tensor& g) -> Gradients {
                  return {scatter_columns(g, columns(), n)};
                });
}

}  // namespace cairn
