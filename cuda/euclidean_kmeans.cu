// K-means of queries under the Euclidean distance (Lloyd 1982), started from one query of each of C strata.
// core/kernels/euclidean_kmeans.h has the definition. Its order of every sum is kept, so the labels are the CPU's.
//
// Shapes. A row is one (batch element, head): N queries of which the first n = lengths[b] are valid. R = B * H rows.
//   q [B, N, H, D] with any strides but of the last axis, float32 or bfloat16
//   labels [R, N], centroids [R, C, D] and their squared lengths [R, C] in float32
//   permutation [R, N], offsets [R, C + 1]: the members of a cluster, as group.cu sorts them
//
// Launch. Two kernels an iteration and those of group.cu; the host never waits.
//   assign_queries     a block takes 64 queries of a row, and all centroids, 64 at a time: the tiles of products of
//                      attention_tiles.cuh, of which each thread keeps the best of its columns, never an N x C matrix
//   update_centroids   a block takes a cluster, a warp every eighth member, a lane every 32nd element. (Not
//                      segment_mean.cu, whose order of sums depends on N, and so on the padding, and which would round
//                      means of bfloat16.) Warp 0 writes the mean, thread 0 adds up its squares in their order.
// Cost of an iteration: 2 R N C D FLOPs bound it. Memory: q twice, once to assign and once to add up, and the centroids
// once for every 64 queries, from the L2 cache. One cluster with all N queries waits for N / 8 loads in turn, four of
// them under way at a time.
#include "core/kernels/euclidean_kmeans.h"

#include <cmath>

#include "core/kernels/group.h"
#include "core/workspace.h"
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {
namespace {

constexpr int assign_bytes = 4 * 2 * tile * (tile_depth + 4);  // of shared memory

template <class T>
struct EuclideanProblem {
  EuclideanSize size;
  HeadView<const T> q;
  const int32_t* lengths = nullptr;
  float *centroids = nullptr, *squares = nullptr;
  int32_t *permutation = nullptr, *offsets = nullptr;
  bool packs = false;  // can rows of q be read four elements at a time?

  // Valid queries of a row.
  __device__ int64_t valid(int64_t row) const { return lengths ? lengths[row / size.H] : size.N; }
};

template <class T>
__global__ void __launch_bounds__(tile_threads) assign_queries(EuclideanProblem<T> p, int32_t* labels) {
  float* const workspace = dynamic_shared<float>();
  const int64_t tiles = ceil_div(p.size.N, tile), row = blockIdx.x / tiles, n = p.valid(row);
  const int N = int(p.size.N), C = int(p.size.C), D = int(p.size.D), q0 = int(blockIdx.x % tiles) * tile;
  int32_t* const label = labels + row * N;
  if (C >= n || q0 >= n) {  // all are their own clusters, or in none
    const int i = q0 + int(threadIdx.x);
    if (int(threadIdx.x) < tile && i < N) label[i] = i < n ? i : -1;
    return;
  }

  const RowBlock<T> queries{p.q.at(row / p.size.H, q0, row % p.size.H), p.q.row_stride, int(n) - q0, D, p.packs};
  float running_max[8];
  int32_t nearest[8];
  for (int i = 0; i < 8; ++i) running_max[i] = -INFINITY, nearest[i] = 0;
  for (int c0 = 0; c0 < C; c0 += tile) {
    const RowBlock<float> centroids{p.centroids + (row * C + c0) * D, D, C - c0, D, D % 4 == 0};
    TileOf products;
    row_products(queries, centroids, workspace, products);
    for (int j = 0; j < 4; ++j) {
      const int c = c0 + tile_column() + j;
      if (c >= C) break;
      const float square = p.squares[row * C + c];
      for (int i = 0; i < 8; ++i) {
        const float nearness = fmaf(2, products[i][j], -square);
        if (nearness > running_max[i]) running_max[i] = nearness, nearest[i] = c;
      }
    }
  }
  for (int i = 0; i < 8; ++i) {
    for (int distance = 8; distance > 0; distance /= 2) {  // the 16 threads of the tile's row
      const float other = __shfl_xor_sync(full_warp, running_max[i], distance);
      const int32_t its = __shfl_xor_sync(full_warp, nearest[i], distance);
      if (other > running_max[i] || (other == running_max[i] && its < nearest[i]))
        running_max[i] = other, nearest[i] = its;
    }
    const int query = q0 + tile_row(i);
    if (tile_column() == 0 && query < N) label[query] = query < n ? nearest[i] : -1;
  }
}

// Update number t of all centroids; number 0 is the start, when none has members.
template <class T>
__global__ void __launch_bounds__(32 * mean_parts) update_centroids(EuclideanProblem<T> p, Draw draw, int t) {
  __shared__ float of_part[mean_parts][32];
  const int64_t cluster = blockIdx.x, C = p.size.C, D = p.size.D, row = cluster / C, c = cluster % C, n = p.valid(row);
  if (C >= n) return;  // every query is its own cluster
  const int lane = int(threadIdx.x % 32), part = int(threadIdx.x / 32);
  const int32_t* const offset = p.offsets + row * (C + 1) + c;
  const int32_t begin = t == 0 ? 0 : offset[0], end = t == 0 ? 0 : offset[1];
  const int32_t* const members = p.permutation + row * p.size.N;
  const T* const rows = p.q.batch_head(row / p.size.H, row % p.size.H);
  const T* const drawn =
      begin == end ? rows + draw_query(draw.key(), draw.row(row), c, C, n, t) * p.q.row_stride : nullptr;
  float* const centroid = p.centroids + cluster * D;

  for (int64_t d = lane; d - lane < D; d += 32) {
    float sum = 0;
    if (d < D)
#pragma unroll 4
      for (int32_t m = begin + part; m < end; m += mean_parts) sum += float(rows[members[m] * p.q.row_stride + d]);
    of_part[part][lane] = sum;
    __syncthreads();
    if (part == 0 && d < D) {
      for (int other = 1; other < mean_parts; ++other) sum += of_part[other][lane];
      centroid[d] = drawn ? float(drawn[d]) : sum / float(end - begin);
    }
    __syncthreads();  // the parts are written again, and the centroid is there
  }
  if (threadIdx.x != 0) return;
  float square = 0;
  for (int64_t d = 0; d < D; ++d) square = fmaf(centroid[d], centroid[d], square);
  p.squares[cluster] = square;
}

}  // namespace

template <class T>
void euclidean_kmeans(Stream stream, EuclideanSize size, HeadView<const T> q, const int32_t* lengths, Draw draw,
                      int32_t* labels) {
  Workspace workspace(Device::cuda);
  const int64_t rows = size.B * size.H, clusters = rows * size.C;
  if (rows * size.N == 0) return;
  check(size.N < 0x7fffff00 && size.C < 0x7fffff00,
        "euclidean_kmeans on CUDA: expected fewer than 2^31 - 256 queries and clusters, got ", size.N, " and ", size.C);
  EuclideanProblem<T> problem{size, q, lengths};
  problem.centroids = workspace.take<float>(clusters * size.D);
  problem.squares = workspace.take<float>(clusters);
  problem.permutation = workspace.take<int32_t>(rows * size.N);
  problem.offsets = workspace.take<int32_t>(rows * (size.C + 1));
  problem.packs = size.D % 4 == 0 && aligned(q, 4 * sizeof(T));

  const auto update = [&](int t) {
    launch(update_centroids<T>, {clusters, 32 * mean_parts, 0, stream}, problem, draw, t);
  };
  const auto assign = [&] {
    launch(assign_queries<T>, {rows * ceil_div(size.N, tile), tile_threads, size_t(assign_bytes), stream}, problem,
           labels);
  };
  update(0);
  assign();
  for (int t = 1; t <= size.iterations; ++t) {
    group(stream, {size.B, size.H, size.N, size.C}, labels, problem.permutation, problem.offsets);
    update(t);
    assign();
  }
}

CAIRN_GPU_TYPES(euclidean_kmeans)

}  // namespace cairn::gpu
