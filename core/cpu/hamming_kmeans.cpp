// Lloyd's algorithm on codes. A task assigns a chunk of queries and counts the bits of its codes. Counts are whole
// numbers, so the order of their sums does not matter.
//
// Distances are bytes, so a vector holds those of as many queries as it has bytes. They are looked up four bits at a
// time: for four bits of the centroid, a table of 16 bytes has the distance to each four bits of a code, and one
// shuffle of bytes reads it for a whole vector (Mula, Kurz, Lemire, "Faster population counts using AVX2 instructions",
// 2018). This takes 2.2 instructions per query and centroid. std::popcount takes four times as long with AVX2, and is a
// fourth faster on processors with vector instructions for it (AVX-512 VPOPCNTDQ). Without AVX2 it is used: on 64-bit
// ARM it takes 11 instructions, and tables that are read byte by byte took 60.
#include "core/kernels/hamming_kmeans.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/parallel.h"
#include "core/workspace.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cairn::cpu {
namespace {

constexpr int width = 32;
using Bytes __attribute__((vector_size(width))) = uint8_t;
using Words __attribute__((vector_size(width))) = uint64_t;

// By reference: how a vector is passed by value depends on the processor that this is compiled for.
inline void load(Bytes& bytes, const uint8_t* from) { std::memcpy(&bytes, from, width); }

// count[j] += bit j of the code.
inline void add_bits(uint8_t* count, uint64_t code) {
  const Bytes bit = Bytes(Words{} + 0x8040201008040201);
  for (int half = 0; half < 2; ++half, count += width, code >>= 32) {
    const Bytes all = Bytes(Words{} + code);
    const Bytes byte = __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                               18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
    Bytes sum;
    load(sum, count);
    sum -= Bytes((byte & bit) == bit);  // a true comparison is -1
    std::memcpy(count, &sum, width);
  }
}

#if defined(__AVX2__)
// bytes = table[index], of 16 numbers.
inline void look_up(Bytes& bytes, const uint8_t* table, const Bytes& index) {
  const __m256i tables = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  bytes = Bytes(_mm256_shuffle_epi8(tables, __m256i(index)));
}

constexpr int digits = 16;  // of four bits each

// different[x][y]: the number of bits, of four, in which x and y differ.
constexpr auto different = [] {
  std::array<std::array<uint8_t, 16>, 16> table{};
  for (unsigned x = 0; x < 16; ++x)
    for (unsigned y = 0; y < 16; ++y) table[x][y] = uint8_t(std::popcount(x ^ y));
  return table;
}();

// labels[i] = the nearest of C centroids; ties go to the lowest.
void assign(const uint64_t* codes, int64_t n, const uint64_t* centroids, int64_t C, int32_t* labels) {
  constexpr int vectors = 4, queries = vectors * width, at_once = 256;  // clusters, so that their numbers are bytes
  for (int64_t i = 0; i < n; i += queries) {
    const int count = int(std::min<int64_t>(queries, n - i));
    uint64_t code[queries] = {};
    std::copy_n(codes + i, count, code);
    alignas(width) uint8_t digit[digits][queries];
    for (int b = 0; b < 8; ++b)
      for (int l = 0; l < queries; ++l) {
        const auto byte = uint8_t(code[l] >> 8 * b);
        digit[2 * b][l] = byte & 15, digit[2 * b + 1][l] = byte >> 4;
      }
    uint8_t nearest[queries];  // distances
    std::fill_n(nearest, queries, uint8_t{255});

    for (int64_t first = 0; first < C; first += at_once) {
      alignas(width) uint8_t of[queries];
      Bytes best[vectors], cluster[vectors];
      for (int v = 0; v < vectors; ++v) load(best[v], nearest + v * width), cluster[v] = Bytes{};
      for (int64_t c = first; c < std::min(first + at_once, C); ++c) {
        Bytes distance[vectors] = {};
        for (int d = 0; d < digits; ++d) {
          const uint8_t* const table = different[centroids[c] >> 4 * d & 15].data();
          for (int v = 0; v < vectors; ++v) {
            Bytes index, more;
            load(index, digit[d] + v * width);
            look_up(more, table, index);
            distance[v] += more;
          }
        }
        for (int v = 0; v < vectors; ++v) {
          cluster[v] = distance[v] < best[v] ? Bytes{} + uint8_t(c - first) : cluster[v];
          best[v] = distance[v] < best[v] ? distance[v] : best[v];
        }
      }
      alignas(width) uint8_t least[queries];
      std::memcpy(least, best, queries);
      std::memcpy(of, cluster, queries);
      for (int l = 0; l < count; ++l) labels[i + l] = least[l] < nearest[l] ? int32_t(first) + of[l] : labels[i + l];
      std::copy_n(least, queries, nearest);
    }
  }
}
#else
// The same.
void assign(const uint64_t* codes, int64_t n, const uint64_t* centroids, int64_t C, int32_t* labels) {
  for (int64_t i = 0; i < n; ++i) {
    int nearest = 65;
    for (int64_t c = 0; c < C; ++c) {
      const int distance = std::popcount(codes[i] ^ centroids[c]);
      if (distance < nearest) nearest = distance, labels[i] = int32_t(c);
    }
  }
}
#endif

// The number of members of a cluster, and of those that have each bit.
struct Counters {
  uint8_t few[64];  // counts of the latest members, at most 255
  int32_t bit[64];  // counts of all members before them
  int32_t members;

  void add(uint64_t code) {
    add_bits(few, code);
    if (++members % 255 == 0) flush();
  }
  void flush() {
    for (int j = 0; j < 64; ++j) bit[j] += few[j], few[j] = 0;
  }
  // Both must be flushed.
  void add(const Counters& other) {
    for (int j = 0; j < 64; ++j) bit[j] += other.bit[j];
    members += other.members;
  }
  // The bits that are 1 in more than half of the members, and those that are 0 in more than half.
  uint64_t set_in_majority() const {
    return collect([this](uint32_t j) { return 2 * bit[j] > members; });
  }
  uint64_t clear_in_majority() const {
    return collect([this](uint32_t j) { return 2 * bit[j] < members; });
  }
  // In halves, because vectors shift 32-bit elements twice as fast as 64-bit ones.
  template <class F>
  static uint64_t collect(F&& test) {
    uint32_t low = 0, high = 0;
    for (uint32_t j = 0; j < 32; ++j) low |= uint32_t(test(j)) << j;
    for (uint32_t j = 0; j < 32; ++j) high |= uint32_t(test(32 + j)) << j;
    return uint64_t(high) << 32 | low;
  }
};

}  // namespace

void hamming_kmeans(Stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw,
                    int32_t* labels) {
  Workspace workspace(Device::cpu);
  const auto [B, H, N, C, iterations] = size;
  if (B * H * N == 0) return;
  const PhiloxKey key = draw.key();
  const int64_t chunk = 4096, chunks = (N + chunk - 1) / chunk;
  Counters* counts = workspace.take<Counters>(B * H * chunks * C);
  uint64_t* centroids = workspace.take<uint64_t>(B * H * C);

  const auto valid = [&, N = N, H = H](int64_t batch_head) { return lengths ? int64_t(lengths[batch_head / H]) : N; };
  const auto drawn = [&, N = N, C = C](int64_t batch_head, int64_t c, int iteration) {
    return codes[batch_head * N + draw_query(key, batch_head % size.H, c, C, valid(batch_head), iteration)];
  };

  parallel_tasks(B * H, [&, N = N, C = C](int64_t batch_head) {
    const int64_t n = valid(batch_head);
    std::fill_n(labels + batch_head * N + n, N - n, -1);
    if (C >= n) {
      for (int64_t i = 0; i < n; ++i) labels[batch_head * N + i] = int32_t(i);
      return;
    }
    for (int64_t c = 0; c < C; ++c) centroids[batch_head * C + c] = drawn(batch_head, c, 0);
  });

  for (int iteration = 1; iteration <= iterations + 1; ++iteration) {
    const bool last = iteration > iterations;
    parallel_tasks(B * H * chunks, [&, N = N, C = C](int64_t task) {
      const int64_t batch_head = task / chunks, n = valid(batch_head);
      const int64_t first = task % chunks * chunk, end = std::min(n, first + chunk);
      if (C >= n || first >= end) return;
      const uint64_t* code = codes + batch_head * N;
      int32_t* label = labels + batch_head * N;
      assign(code + first, end - first, centroids + batch_head * C, C, label + first);
      if (last) return;
      Counters* count = counts + task * C;
      std::fill_n(count, C, Counters{});
      for (int64_t i = first; i < end; ++i) count[label[i]].add(code[i]);
      for (int64_t c = 0; c < C; ++c) count[c].flush();
    });
    if (last) break;
    parallel_tasks(B * H, [&, C = C](int64_t batch_head) {
      const int64_t n = valid(batch_head), used = (n + chunk - 1) / chunk;
      if (C >= n) return;
      Counters* total = counts + batch_head * chunks * C;
      for (int64_t p = 1; p < used; ++p)
        for (int64_t c = 0; c < C; ++c) total[c].add(total[p * C + c]);
      for (int64_t c = 0; c < C; ++c) {
        const Counters& count = total[c];
        uint64_t& centroid = centroids[batch_head * C + c];
        const uint64_t ties = draw_ties(key, batch_head % size.H, c, iteration);
        if (count.members == 0)
          centroid = drawn(batch_head, c, iteration);
        else
          centroid = (ties | count.set_in_majority()) & ~count.clear_in_majority();
      }
    });
  }
}

}  // namespace cairn::cpu
