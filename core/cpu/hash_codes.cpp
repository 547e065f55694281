#include "core/kernels/hash_codes.h"

#include "core/cpu/projections.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void hash_codes(Stream, HashSize size, HeadView<const T> q, const float* planes, uint64_t* codes) {
  const int64_t D = size.D;
  Projections project(D);
  float threshold[Projections::width] = {};
  for (int j = 0; j < size.bits; ++j) {
    project.set(j, planes + j * (D + 1));
    threshold[j] = planes[j * (D + 1) + D];
  }
  const uint64_t used = size.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << size.bits) - 1;

  parallel_for(size.B * size.H * size.N, 128, [&](int64_t begin, int64_t end) {
    const auto query = [&](int64_t row) {
      const int64_t batch_head = row / size.N;
      return q.at(batch_head / size.H, row % size.N, batch_head % size.H);
    };
    project.each(begin, end, query, [&](int64_t row, const float* product) {
      // In halves, because vectors shift 32-bit lanes faster than 64-bit ones.
      uint32_t low = 0, high = 0;
      for (uint32_t j = 0; j < 32; ++j) low |= uint32_t(product[j] > threshold[j]) << j;
      for (uint32_t j = 0; j < 32; ++j) high |= uint32_t(product[32 + j] > threshold[32 + j]) << j;
      codes[row] = (uint64_t(high) << 32 | low) & used;
    });
  });
}

CAIRN_CPU_TYPES(hash_codes)

}  // namespace cairn::cpu
