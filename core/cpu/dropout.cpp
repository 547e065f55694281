#include "core/kernels/dropout.h"

#include <algorithm>

#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void dropout(Stream, int64_t n, Dropout dropout, const T* x, const T* residual, T* y) {
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  const uint32_t threshold = dropout.threshold();
  const T scale = T(dropout.scale());
  // One Philox call decides four elements. The first element here is number `skipped` of its four.
  const auto skipped = int64_t(dropout.draw.first % 4);
  const uint64_t first_four = dropout.draw.first / 4;
  parallel_for(skipped + n, 1 << 13, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 4) {
      const uint64_t four = first_four + uint64_t(i / 4);
      const PhiloxWords words = philox(key, {{uint32_t(four), uint32_t(four >> 32), 0, 0}});
      for (int64_t l = std::max(i, skipped); l < std::min(i + 4, end); ++l) {
        const int64_t j = l - skipped;
        const T kept = words.w[l - i] < threshold ? T(0) : x[j] * scale;
        y[j] = residual ? residual[j] + kept : kept;
      }
    }
  });
}

CAIRN_CPU_TYPES(dropout)

}  // namespace cairn::cpu
