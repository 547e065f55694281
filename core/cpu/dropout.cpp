#include "core/kernels/dropout.h"

#include <algorithm>

#include "core/parallel.h"

namespace cairn::cpu {
namespace {

constexpr int64_t chunk = 256;  // elements whose random words are computed together

// The words of philox() at the coordinates first, first + 1, ...: `chunk` of them. Each loop over calls is vectorized,
// so this takes a third of the time of philox() call by call.
void draw_words(PhiloxKey key, uint64_t first, uint32_t* words) {
  constexpr int64_t calls = chunk / 4;
  uint32_t a[calls], b[calls], c[calls], d[calls];
  for (int64_t i = 0; i < calls; ++i) {
    a[i] = uint32_t(first + uint64_t(i));
    b[i] = uint32_t((first + uint64_t(i)) >> 32);
    c[i] = d[i] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int64_t i = 0; i < calls; ++i) {
      const uint64_t p = uint64_t(0xD2511F53u) * a[i], q = uint64_t(0xCD9E8D57u) * c[i];
      a[i] = uint32_t(q >> 32) ^ b[i] ^ key.a;
      b[i] = uint32_t(q);
      c[i] = uint32_t(p >> 32) ^ d[i] ^ key.b;
      d[i] = uint32_t(p);
    }
    key.a += 0x9E3779B9u;
    key.b += 0xBB67AE85u;
  }
  for (int64_t i = 0; i < calls; ++i) {
    words[4 * i] = a[i];
    words[4 * i + 1] = b[i];
    words[4 * i + 2] = c[i];
    words[4 * i + 3] = d[i];
  }
}

}  // namespace

template <class T>
void dropout(Stream, int64_t n, Dropout dropout, const T* x, const T* residual, T* y) {
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  const uint32_t threshold = dropout.threshold();
  const T scale = T(dropout.scale());
  // One Philox call decides four elements. The first element here is number `skipped` of its four.
  const auto skipped = int64_t(dropout.draw.first % 4);
  const uint64_t first_four = dropout.draw.first / 4;
  parallel_for(skipped + n, 1 << 13, [=](int64_t begin, int64_t end) {
    uint32_t words[chunk];
    T kept[chunk];  // stored, so that a sum with the residual rounds as two operations do
    for (int64_t i = begin; i < end; i += chunk) {
      draw_words(key, first_four + uint64_t(i / 4), words);
      const int64_t low = std::max(i, skipped), high = std::min(i + chunk, end);
      for (int64_t l = low; l < high; ++l) kept[l - i] = words[l - i] < threshold ? T(0) : x[l - skipped] * scale;
      for (int64_t l = low; l < high; ++l)
        y[l - skipped] = residual ? residual[l - skipped] + kept[l - i] : kept[l - i];
    }
  });
}

CAIRN_CPU_TYPES(dropout)

}  // namespace cairn::cpu
