#pragma once
// Random numbers without a sequence: a number depends on (seed, step, layer, purpose, coordinates) and on nothing else.
// So any thread of any device computes any of them, in any order, with the same bits.
//
// The generator is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#include <cstdint>

#include "core/host_device.h"

namespace cairn {

struct PhiloxKey {
  uint32_t a, b;
};
struct PhiloxWords {
  uint32_t w[4];
};

// Ten rounds over a 128-bit counter.
CAIRN_HD inline PhiloxWords philox(PhiloxKey key, PhiloxWords c) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p = uint64_t(0xD2511F53u) * c.w[0], q = uint64_t(0xCD9E8D57u) * c.w[2];
    c = {{uint32_t(q >> 32) ^ c.w[1] ^ key.a, uint32_t(q), uint32_t(p >> 32) ^ c.w[3] ^ key.b, uint32_t(p)}};
    key.a += 0x9E3779B9u;
    key.b += 0xBB67AE85u;
  }
  return c;
}

// What a draw is for. Two purposes never share a number. nn/purpose.h has the values.
enum class Purpose : uint32_t;

// Names a set of random numbers; coordinates pick one of them. A copy of a Draw draws the same numbers again.
struct Draw {
  uint64_t seed = 0, step = 0;
  uint32_t layer = 0;
  Purpose purpose{};
  // If processes share a batch: how many examples come before this process's part. Operations turn it into the number
  // of rows of (batch, head), or of elements, that come before, which kernels add to their own numbers.
  uint64_t first = 0;

  // The draw that an operation passes to its kernel. per_example: the rows, or elements, of an example; 0 if all
  // examples share the draw.
  Draw for_kernel(int64_t per_example = 0) const {
    Draw result = *this;
    result.first *= uint64_t(per_example);
    return result;
  }
  // The coordinate of a row of (batch, head): its index in the whole batch.
  CAIRN_HD uint32_t row(int64_t batch_head) const { return uint32_t(first + uint64_t(batch_head)); }
  // Everything but the coordinates, hashed to a key.
  CAIRN_HD PhiloxKey key() const {
    const PhiloxWords name{{uint32_t(step), uint32_t(step >> 32), layer, uint32_t(purpose)}};
    const PhiloxWords mixed = philox({uint32_t(seed), uint32_t(seed >> 32)}, name);
    return {mixed.w[0], mixed.w[1]};
  }
};

// A normal number of mean 0 and variance 1 (to 2e-10; |x| <= 6): the sum of twelve 16-bit integers, centered and
// scaled. So it is exact in float and the same on every device. Its distribution is Irwin-Hall's with n = 12.
CAIRN_HD inline float normal(PhiloxKey key, uint32_t i, uint32_t j, uint32_t k = 0) {
  const PhiloxWords x = philox(key, {{i, j, 0, k}}), y = philox(key, {{i, j, 1, k}});
  int sum = 0;
  for (int word = 0; word < 4; ++word) sum += int(x.w[word] & 0xffff) + int(x.w[word] >> 16);
  for (int word = 0; word < 2; ++word) sum += int(y.w[word] & 0xffff) + int(y.w[word] >> 16);
  return float(sum - 6 * 65535) / 65536.0f;
}

// A whole number in [0, n), n >= 1, from 32 random bits. The bias is below n / 2^32.
CAIRN_HD inline uint32_t below(uint32_t bits, uint32_t n) { return uint32_t(uint64_t(bits) * n >> 32); }

// Dropout: each weight is kept with probability 1 - p and then scaled by 1 / (1 - p). p = 0 keeps all.
struct Dropout {
  float p = 0;
  Draw draw{};

  CAIRN_HD bool active() const { return p > 0; }
  CAIRN_HD float scale() const { return p < 1 ? 1 / (1 - p) : 0.0f; }
  // A weight is dropped where its 32 bits are below this. (p = 1 drops all but one in 2^32 of them, scaled by 0.)
  CAIRN_HD uint32_t threshold() const { return p < 1 ? uint32_t(double(p) * 4294967296.0) : 0xffffffffu; }
  // The four words that decide on keys 4 (j / 4) .. 4 (j / 4) + 3 of query i; `row` is draw.row(batch_head).
  CAIRN_HD static PhiloxWords words(PhiloxKey key, uint32_t row, uint32_t i, uint32_t j) {
    return philox(key, {{j / 4, i, row, 0}});
  }
  // The factor of the weight of key j: 0 or scale().
  CAIRN_HD float factor(PhiloxKey key, int64_t batch_head, uint32_t i, uint32_t j) const {
    return words(key, draw.row(batch_head), i, j).w[j % 4] < threshold() ? 0.0f : scale();
  }
};

}  // namespace cairn
