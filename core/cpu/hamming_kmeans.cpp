// Lloyd's algorithm on codes. Pieces of queries are assigned and their bits counted by different threads; counts are
// whole numbers, so their sums have no order.
#include "core/kernels/hamming_kmeans.h"

#include <algorithm>
#include <bit>

#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// labels[i] = the nearest of C centroids, ties to the lowest. Eight queries at a time: the loop over them is a vector.
void assign(const uint64_t* codes, int64_t n, const uint64_t* centroids, int64_t C, int32_t* labels) {
  constexpr int width = 8;
  for (int64_t i = 0; i < n; i += width) {
    const int count = int(std::min<int64_t>(width, n - i));
    uint64_t code[width] = {}, best[width], label[width] = {};
    std::copy_n(codes + i, count, code);
    for (uint64_t& distance : best) distance = 65;
    for (int64_t c = 0; c < C; ++c) {
      const uint64_t centroid = centroids[c];
      for (int l = 0; l < width; ++l) {
        const auto distance = uint64_t(std::popcount(code[l] ^ centroid));
        label[l] = distance < best[l] ? uint64_t(c) : label[l];
        best[l] = distance < best[l] ? distance : best[l];
      }
    }
    for (int l = 0; l < count; ++l) labels[i + l] = int32_t(label[l]);
  }
}

}  // namespace

void hamming_kmeans(Stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw, Scratch& scratch,
                    int32_t* labels) {
  const auto [B, H, N, C, bits, iterations] = size;
  if (B * H * N == 0) return;
  const PhiloxKey key = draw.key();
  const int64_t piece = 4096, pieces = (N + piece - 1) / piece;
  // For each piece and cluster: the members, then how many of them have each bit.
  const int64_t counters = 1 + bits;
  int32_t* counts = scratch.take<int32_t>(B * H * pieces * C * counters);
  uint64_t* centroids = scratch.take<uint64_t>(B * H * C);

  const auto valid = [&, N = N, H = H](int64_t plane) { return lengths ? int64_t(lengths[plane / H]) : N; };
  const auto drawn = [&](int64_t plane, int64_t cluster, int iteration, int64_t n) {
    return int64_t(
        below(philox(key, {{uint32_t(plane), uint32_t(cluster), uint32_t(iteration), 0}}).w[0], uint32_t(n)));
  };

  parallel_tasks(B * H, [&, N = N, C = C](int64_t plane) {
    const int64_t n = valid(plane);
    std::fill_n(labels + plane * N + n, N - n, -1);
    if (C >= n) {
      for (int64_t i = 0; i < n; ++i) labels[plane * N + i] = int32_t(i);
      return;
    }
    for (int64_t c = 0; c < C; ++c) {
      const int64_t low = c * n / C, high = (c + 1) * n / C;
      centroids[plane * C + c] = codes[plane * N + low + drawn(plane, c, 0, high - low)];
    }
  });

  for (int iteration = 1; iteration <= iterations + 1; ++iteration) {
    const bool last = iteration > iterations;
    parallel_tasks(B * H * pieces, [&, N = N, C = C, bits = bits](int64_t task) {
      const int64_t plane = task / pieces, n = valid(plane);
      const int64_t first = task % pieces * piece, end = std::min(n, first + piece);
      if (C >= n || first >= end) return;
      const uint64_t* code = codes + plane * N;
      int32_t* label = labels + plane * N;
      assign(code + first, end - first, centroids + plane * C, C, label + first);
      if (last) return;
      int32_t* count = counts + task * C * counters;
      std::fill_n(count, C * counters, 0);
      for (int64_t i = first; i < end; ++i) {
        int32_t* of = count + label[i] * counters;
        ++of[0];
        for (int j = 0; j < bits; ++j) of[1 + j] += int32_t(code[i] >> j & 1);
      }
    });
    if (last) break;
    parallel_tasks(B * H, [&, N = N, C = C, bits = bits](int64_t plane) {
      const int64_t n = valid(plane), used = (n + piece - 1) / piece;
      if (C >= n) return;
      int32_t* total = counts + plane * pieces * C * counters;
      for (int64_t p = 1; p < used; ++p)
        for (int64_t i = 0; i < C * counters; ++i) total[i] += total[p * C * counters + i];
      for (int64_t c = 0; c < C; ++c) {
        const int32_t* of = total + c * counters;
        uint64_t& centroid = centroids[plane * C + c];
        if (of[0] == 0) centroid = codes[plane * N + drawn(plane, c, iteration, n)];
        for (int j = 0; j < bits && of[0] > 0; ++j) {
          const uint64_t bit = uint64_t{1} << j;
          if (2 * of[1 + j] > of[0]) centroid |= bit;
          if (2 * of[1 + j] < of[0]) centroid &= ~bit;
        }
      }
    });
  }
}

}  // namespace cairn::cpu
