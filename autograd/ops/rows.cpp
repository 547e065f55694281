#include "autograd/ops.h"

namespace cairn {

Variable gather_rows(const Variable& table, const Tensor& index) {
  return record("gather_rows", gather_rows(table.value(), index), {table},
                [index = SavedTensor(index), n = table.size(0)](const Tensor& g) -> Gradients {
                  return {scatter_add_rows(g, index(), n)};
                });
}

Variable gather_columns(const Variable& x, const Tensor& columns) {
  return record("gather_columns", gather_columns(x.value(), columns), {x},
                [columns = SavedTensor(columns), n = x.size(-1)](const Tensor& g) -> Gradients {
                  return {scatter_columns(g, columns(), n)};
                });
}

}  // namespace cairn
