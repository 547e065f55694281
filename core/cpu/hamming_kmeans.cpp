// Lloyd's algorithm on codes. Pieces of queries are assigned and their bits counted by different threads; counts are
// whole numbers, so their sums have no order.
#include "core/kernels/hamming_kmeans.h"

#include <algorithm>

#include "core/parallel.h"

namespace cairn::cpu {
namespace {

// labels[i] = the nearest of C centroids, ties to the lowest. Queries come in blocks: the loop over a block is a
// vector, and the smallest of (distance, cluster) as one number is what we look for.
void assign(const uint64_t* codes, int64_t n, const uint64_t* centroids, int64_t C, int32_t* labels) {
  constexpr int width = 64;
  for (int64_t i = 0; i < n; i += width) {
    const int count = int(std::min<int64_t>(width, n - i));
    uint64_t code[width] = {}, best[width];
    std::copy_n(codes + i, count, code);
    std::fill_n(best, width, ~uint64_t{0});
    for (int64_t c = 0; c < C; ++c) {
      const uint64_t centroid = centroids[c], cluster = uint64_t(c);
      for (int l = 0; l < width; ++l) {
        const uint64_t key = uint64_t(__builtin_popcountll(code[l] ^ centroid)) << 32 | cluster;
        best[l] = key < best[l] ? key : best[l];
      }
    }
    for (int l = 0; l < count; ++l) labels[i + l] = int32_t(best[l] & 0xffffffff);
  }
}

// The members of a cluster and how many of them have each bit.
struct Counters {
  int32_t bit[64];
  int32_t members;

  // In halves, because a vector shifts 32 bits by a lane's number twice as fast as 64.
  void add(uint64_t code) {
    const auto low = uint32_t(code), high = uint32_t(code >> 32);
    for (uint32_t j = 0; j < 32; ++j) bit[j] += int32_t(low >> j & 1);
    for (uint32_t j = 0; j < 32; ++j) bit[32 + j] += int32_t(high >> j & 1);
    ++members;
  }
  // The bits that more than half of the members have, and those that more than half have not.
  uint64_t set_in_majority() const {
    return collect([this](uint32_t j) { return 2 * bit[j] > members; });
  }
  uint64_t clear_in_majority() const {
    return collect([this](uint32_t j) { return 2 * bit[j] < members; });
  }
  template <class F>
  static uint64_t collect(F&& test) {
    uint32_t low = 0, high = 0;
    for (uint32_t j = 0; j < 32; ++j) low |= uint32_t(test(j)) << j;
    for (uint32_t j = 0; j < 32; ++j) high |= uint32_t(test(32 + j)) << j;
    return uint64_t(high) << 32 | low;
  }
  void add(const Counters& other) {
    for (int j = 0; j < 64; ++j) bit[j] += other.bit[j];
    members += other.members;
  }
};

}  // namespace

void hamming_kmeans(Stream, KMeansSize size, const uint64_t* codes, const int32_t* lengths, Draw draw,
                    Workspace& workspace, int32_t* labels) {
  const auto [B, H, N, C, bits, iterations] = size;
  if (B * H * N == 0) return;
  const PhiloxKey key = draw.key();
  const int64_t piece = 4096, pieces = (N + piece - 1) / piece;
  Counters* counts = workspace.take<Counters>(B * H * pieces * C);
  uint64_t* centroids = workspace.take<uint64_t>(B * H * C);

  const auto valid = [&, N = N, H = H](int64_t batch_head) { return lengths ? int64_t(lengths[batch_head / H]) : N; };
  const auto drawn = [&, N = N, C = C](int64_t batch_head, int64_t c, int iteration) {
    return codes[batch_head * N + draw_query(key, batch_head, c, C, valid(batch_head), iteration)];
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
    parallel_tasks(B * H * pieces, [&, N = N, C = C](int64_t task) {
      const int64_t batch_head = task / pieces, n = valid(batch_head);
      const int64_t first = task % pieces * piece, end = std::min(n, first + piece);
      if (C >= n || first >= end) return;
      const uint64_t* code = codes + batch_head * N;
      int32_t* label = labels + batch_head * N;
      assign(code + first, end - first, centroids + batch_head * C, C, label + first);
      if (last) return;
      Counters* count = counts + task * C;
      std::fill_n(count, C, Counters{});
      for (int64_t i = first; i < end; ++i) count[label[i]].add(code[i]);
    });
    if (last) break;
    parallel_tasks(B * H, [&, C = C](int64_t batch_head) {
      const int64_t n = valid(batch_head), used = (n + piece - 1) / piece;
      if (C >= n) return;
      Counters* total = counts + batch_head * pieces * C;
      for (int64_t p = 1; p < used; ++p)
        for (int64_t c = 0; c < C; ++c) total[c].add(total[p * C + c]);
      for (int64_t c = 0; c < C; ++c) {
        const Counters& count = total[c];
        uint64_t& centroid = centroids[batch_head * C + c];
        if (count.members == 0)
          centroid = drawn(batch_head, c, iteration);
        else
          centroid = (centroid | count.set_in_majority()) & ~count.clear_in_majority();
      }
    });
  }
}

}  // namespace cairn::cpu
