// Lloyd's algorithm on queries. Centroids stand in blocks of 64, as columns, so that one step of the products of a
// query with all of a block runs along memory.
#include "core/kernels/euclidean_kmeans.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/cpu/vector.h"
#include "core/kernels/group.h"
#include "core/parallel.h"
#include "core/workspace.h"

namespace cairn::cpu {
namespace {

constexpr int width = 64;       // of a block of centroids
constexpr int64_t piece = 256;  // queries that one task assigns

template <class T>
struct Lloyd {
  EuclideanSize size;
  HeadView<const T> q;
  const int32_t* lengths;
  int32_t *labels, *permutation, *offsets;  // as group() has them
  T *columns, *squares;                     // [B H, blocks, D, 64] and [B H, blocks, 64]: centroids and their |c|^2

  int64_t batch_heads() const { return size.B * size.H; }
  int64_t blocks() const { return (size.C + width - 1) / width; }
  int64_t valid(int64_t batch_head) const { return lengths ? lengths[batch_head / size.H] : size.N; }
  const T* query(int64_t batch_head, int64_t i) const { return q.at(batch_head / size.H, i, batch_head % size.H); }

  void set_centroid(int64_t batch_head, int64_t c, const T* values) const {
    const int64_t block = batch_head * blocks() + c / width;
    T* column = columns + block * size.D * width + c % width;
    T square = 0;
    for (int64_t d = 0; d < size.D; ++d) {
      column[d * width] = values[d];
      square = std::fma(values[d], values[d], square);
    }
    squares[block * width + c % width] = square;
  }

  // Update number `iteration` of all centroids; number 0 is the start, when none has members.
  void update(const Draw& draw, PhiloxKey key, int iteration) const {
    const int64_t C = size.C, D = size.D;
    parallel_for(batch_heads() * C, 8, [=, this](int64_t begin, int64_t end) {
      std::vector<T> part_memory(size_t(mean_parts * D));
      for (int64_t cluster = begin; cluster < end; ++cluster) {
        const int64_t batch_head = cluster / C, c = cluster % C, n = valid(batch_head);
        if (C >= n) continue;
        const int32_t* offset = offsets + batch_head * (C + 1) + c;
        const int32_t members = iteration == 0 ? 0 : offset[1] - offset[0];
        if (members == 0) {
          set_centroid(batch_head, c, query(batch_head, draw_query(key, draw.row(batch_head), c, C, n, iteration)));
          continue;
        }
        T* parts = part_memory.data();
        std::fill_n(parts, mean_parts * D, T(0));
        const int32_t* member = permutation + batch_head * size.N + offset[0];
        for (int32_t m = 0; m < members; ++m)
          add_scaled(parts + m % mean_parts * D, D, T(1), query(batch_head, member[m]));
        for (int part = 1; part < mean_parts; ++part) add_scaled(parts, D, T(1), parts + part * D);
        for (int64_t d = 0; d < D; ++d) parts[d] /= T(members);
        set_centroid(batch_head, c, parts);
      }
    });
  }

  void assign() const {
    const int64_t N = size.N, D = size.D, C = size.C, pieces = (N + piece - 1) / piece;
    parallel_tasks(batch_heads() * pieces, [=, this](int64_t task) {
      const int64_t batch_head = task / pieces, first = task % pieces * piece, end = std::min(N, first + piece);
      const int64_t last = std::clamp(valid(batch_head), first, end);
      int32_t* label = labels + batch_head * N;
      std::fill(label + last, label + end, -1);
      if (C >= valid(batch_head)) {
        for (int64_t i = first; i < last; ++i) label[i] = int32_t(i);
        return;
      }
      T nearest[piece];
      std::fill_n(nearest, piece, -std::numeric_limits<T>::infinity());
      std::fill(label + first, label + last, 0);
      for (int64_t c = 0; c < C; c += width) {  // a block stays in the cache while all queries meet it
        const int64_t block = batch_head * blocks() + c / width;
        const T *column = columns + block * D * width, *square = squares + block * width;
        for (int64_t i = first; i < last; ++i) {
          T nearness[width] = {};
          add_fused_products(query(batch_head, i), D, column, nearness);
          for (int j = 0; j < width; ++j) nearness[j] = 2 * nearness[j] - square[j];
          const int64_t count = std::min<int64_t>(width, C - c);
          const T running_max = maximum(nearness, count);
          if (!(running_max > nearest[i - first])) continue;
          nearest[i - first] = running_max;
          label[i] = int32_t(c + (std::find(nearness, nearness + count, running_max) - nearness));
        }
      }
    });
  }
};

}  // namespace

template <class T>
void euclidean_kmeans(Stream stream, EuclideanSize size, HeadView<const T> q, const int32_t* lengths, Draw draw,
                      int32_t* labels) {
  Workspace workspace(Device::cpu);
  Lloyd<T> lloyd{size, q, lengths, labels, nullptr, nullptr, nullptr, nullptr};
  const int64_t batch_heads = lloyd.batch_heads(), blocks = batch_heads * lloyd.blocks();
  if (batch_heads * size.N == 0) return;
  lloyd.permutation = workspace.take<int32_t>(batch_heads * size.N);
  lloyd.offsets = workspace.take<int32_t>(batch_heads * (size.C + 1));
  lloyd.columns = workspace.take<T>(blocks * size.D * width);
  lloyd.squares = workspace.take<T>(blocks * width);
  // Columns beyond the last centroid are computed with.
  std::fill_n(lloyd.columns, blocks * size.D * width, T(0));
  std::fill_n(lloyd.squares, blocks * width, T(0));

  const PhiloxKey key = draw.key();
  lloyd.update(draw, key, 0);
  lloyd.assign();
  for (int iteration = 1; iteration <= size.iterations; ++iteration) {
    group(stream, {size.B, size.H, size.N, size.C}, labels, lloyd.permutation, lloyd.offsets);
    lloyd.update(draw, key, iteration);
    lloyd.assign();
  }
}

CAIRN_CPU_TYPES(euclidean_kmeans)

}  // namespace cairn::cpu
