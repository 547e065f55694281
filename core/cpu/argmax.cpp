#include "core/kernels/argmax.h"

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void argmax(Stream, RowsOfPositions size, const T* x, const int32_t* lengths, int32_t* columns) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      RowMaximum<T> best;
      for (int64_t c = 0; c < cols; ++c) best.see(x[r * cols + c], int32_t(c));
      columns[r] = size.valid(lengths, r) ? best.column : -1;
    }
  });
}

CAIRN_CPU_TYPES(argmax)

}  // namespace cairn::cpu
