#include "core/kernels/dropout.h"

#include <algorithm>

#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void dropout(Stream, int64_t n, Dropout dropout, const T* x, const T* residual, T* y) {
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  const uint32_t threshold = dropout.threshold();
  const T scale = T(dropout.scale());
  parallel_for(n, 1 << 13, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 4) {
      const PhiloxWords words = philox(key, {{uint32_t(i / 4), uint32_t(uint64_t(i / 4) >> 32), 0, 0}});
      for (int64_t j = i; j < std::min(i + 4, end); ++j) {
        const T kept = words.w[j - i] < threshold ? T(0) : x[j] * scale;
        y[j] = residual ? residual[j] + kept : kept;
      }
    }
  });
}

template void dropout(Stream, int64_t, Dropout, const float*, const float*, float*);
template void dropout(Stream, int64_t, Dropout, const double*, const double*, double*);

}  // namespace cairn::cpu
