#include "core/kernels/strided_copy.h"

#include <algorithm>
#include <cstdint>

#include "core/cpu/strides.h"

namespace cairn::cpu {

template <class T>
void strided_copy(Stream, const Strides& strides, const T* x, T* y) {
  const int64_t step_x = inner_step(strides, 0), step_y = inner_step(strides, 1);
  each_inner_loop(strides, [=](int64_t, const Strides::Steps& at, int64_t n) {
    const T* from = x + at[0];
    T* to = y + at[1];
    if (step_x == 1 && step_y == 1)
      std::copy_n(from, n, to);
    else if (step_x == 0 && step_y == 1)
      std::fill_n(to, n, *from);
    else
      for (int64_t i = 0; i < n; ++i) to[i * step_y] = from[i * step_x];
  });
}

template void strided_copy(Stream, const Strides&, const uint8_t*, uint8_t*);
template void strided_copy(Stream, const Strides&, const uint16_t*, uint16_t*);
template void strided_copy(Stream, const Strides&, const uint32_t*, uint32_t*);
template void strided_copy(Stream, const Strides&, const uint64_t*, uint64_t*);

}  // namespace cairn::cpu
