#include "core/kernels/argmax.h"

#include <algorithm>
#include <cstdint>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

// The first column where `holds` is true; INT32_MAX if there is none. Without branches, so that it vectorizes.
template <class T, class F>
static int32_t first_where(const T* row, int64_t cols, F holds) {
  int32_t first = INT32_MAX;
  for (int32_t c = 0; c < int32_t(cols); ++c) first = std::min(first, holds(row[c]) ? c : INT32_MAX);
  return first;
}

template <class T>
void argmax(Stream, Rows size, const T* x, int32_t* columns) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x + r * cols;
      columns[r] = first_where(row, cols, [](T value) { return value != value; });
      if (columns[r] != INT32_MAX) continue;
      columns[r] = first_where(row, cols, [largest = maximum(row, cols)](T value) { return value == largest; });
    }
  });
}

CAIRN_CPU_TYPES(argmax)

}  // namespace cairn::cpu
