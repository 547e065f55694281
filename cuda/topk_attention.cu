// Improved clustered attention and its gradient: each query attends by itself to the top keys of its cluster, and takes
// the rest from its centroid (the first case of the paper's equation 10, and equation 11; section 3.3).
// core/kernels/topk_attention.h has the definition.
//
//   out_i = m_j (z a_i V_top) + rest_j for query i of cluster j, a_i = softmax over top_j of scale q_i . k_l, z dropout
// With g_i the gradient of out_i:
//   da = z (g_i V_top^T);  delta_i = a_i . da;  dm_j = sum_i delta_i;  drest_j = sum_i g_i
//   dS = m_j a_i (da - delta_i + dz_i), dz the gradient of logsumexp;  dq_i = scale dS K_top;  dK_top += scale dS^T
//   q_i;  dV_top += m_j (z a_i)^T g_i
//
// Tasks. A task is up to t members of one cluster. Queries without a cluster are members of cluster C. Task i of
// cluster c has the number offsets[c] / t + c + i. The host does not know the cluster sizes, so it launches N / t + C +
// 1 blocks for each (batch, head), which is always enough. A block whose number has no task returns at once. For t =
// 64, N = 400:
//
//   offsets   0                     130        170                         400
//             |--- cluster 0 -------|-- 1 -----|--- cluster 2 -------------|
//   tasks     [ 0 ][ 1 ][2]         [ 3 ]      [ 4 ][ 5 ][ 6 ][ 7 ]             (8, 9: none)
//
// t is 64 times a power of two, about N / C, because the fewer tasks a cluster has, the fewer parts each key's gradient
// has. It is 64 where larger tasks would leave too few blocks, and where top has more than 32 keys (16 in float32),
// because a block has no registers for the gradients of more keys. A thread finds its task by bisection.
//
// Launch on tensor cores (cuda/topk_mma.cuh), under the conditions of cuda/attention.cu. A block of 128 threads has a
// task:
//   attend_top_mma      gathers 64 members and 32 top keys at a time, by asynchronous copies of whole rows. A warp has
//                       16 members and all their sums. Up to 32 top keys are gathered once for the task. More top keys
//                       are gathered in tiles, with a running softmax.
//   member_gradient_mma does so for dq. Weights and dS go through shared memory, to be multiplied with queries and
//                       gradients. Two warps sum up dK_top, 16 keys each, and two warps dV_top. If top has more than
//                       32 keys (16 where rows have 512 bytes), the scores are computed twice: for the softmax and
//                       delta, and for the gradients.
// Otherwise in float32 arithmetic. A block of 128 threads has a task and 64 columns (attend_top up to 128). It gathers
// rows for tiles of 64 members and 64 top keys (cuda/attention_tiles.cuh):
//   attend_top          has the tiles of full attention's forward pass (cuda/attention_simt.cuh)
//   member_gradient     computes the scores twice: for the softmax and delta, and for dq and the parts of dK_top and
//                       dV_top
// A part is what one task adds to dK_top and dV_top of one key, a row of D + M floats in the workspace. Both versions
// of member_gradient write the parts of their task and the key of each part. Then, after either version:
//   sort_by_label       sorts the parts by key (cuda/clusters.cu)
//   topk_key_gradient   sums up the parts of each key, in order. A warp has 8 keys and 128 columns (32 if rows do not
//                       move four columns at a time). If a key has more than 32 parts, the 8 warps of the block share
//                       them: each takes every eighth. Further blocks sum up dm; a warp takes a cluster.
// cluster_reduce computes drest. The other three kernels process as many (batch, head) pairs at a time as fit into 64
// MB of workspace.
//
// Traffic: queries, outputs and their gradients once; for each task k rows of keys and values, mostly from the L2
// cache; backward, for each task k (D + M) floats written and read. Floor: everything but those floats once. Bound by
// memory on tensor cores, otherwise by arithmetic. With clusters of one or two members (oracle-top), bound by gathering
// keys and values.
// Shared memory in KB (1024 bytes): attend_top_mma 8 to 65, member_gradient_mma 20 to 88, attend_top and
// member_gradient 27, topk_key_gradient 4.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/kernels/cluster_mean.h"
#include "core/kernels/clusters.h"
#include "core/workspace.h"
#include "cuda/topk_mma.cuh"

namespace cairn::gpu {
namespace {

// ------------------------------------------------------------------------------------------ in float32 arithmetic

// Rows of a matrix by their indices. A row whose index is outside [0, limit) does not exist.
template <class T>
struct IndexedRows {
  using Element = T;
  const T* data;
  int64_t stride;
  const int32_t* index;
  int limit, rows, columns;

  __device__ bool has(int r) const { return r < rows && unsigned(index[r]) < unsigned(limit); }
  __device__ const T* row(int r) const { return data + index[r] * stride; }
  __device__ void skip_rows(int n) { index += n, rows -= n; }
};

// The operands of a block's task: tiles of members from m0 on and of top keys from l0 on.
template <class T>
struct Members {
  const TopKProblem<T>& p;
  const MemberTask& task;
  BatchHead batch_head;
  TileDropout dropout;

  __device__ Members(const TopKProblem<T>& problem, const MemberTask& member_task)
      : p(problem), task(member_task), batch_head(p.size, Mask{}, task.batch_head), dropout(p.dropout, batch_head) {}
  __device__ IndexedRows<T> members(const HeadView<const T>& x, int m0, int columns, int column = 0) const {
    return {batch_head.row(x, 0) + column, x.row_stride, task.permutation + m0, p.N(), task.end - m0, columns - column};
  }
  __device__ IndexedRows<T> keys(const HeadView<const T>& x, int l0, int columns, int column = 0) const {
    return {batch_head.row(x, 0) + column, x.row_stride, task.topk + l0, p.S(), task.k - l0, columns - column};
  }
  // Bit 4 i + j: member m0 + tile_row(i) and key l0 + tile_column() + j exist. kept: dropout keeps that weight.
  __device__ unsigned there(int m0, int l0) const {
    return pair_bits([&](int, int i, int j) { return m0 + i < task.end && task.key(p, l0 + j) >= 0; });
  }
  __device__ unsigned kept(int m0, int l0, unsigned there) const {
    if (!dropout.active) return ~0u;
    return pair_bits([&](int bit, int i, int j) {
      if (!(there >> bit & 1)) return false;
      const int key = task.topk[l0 + j];
      return bool(dropout.keep(task.permutation[m0 + i], key & ~3) >> key % 4 & 1);
    });
  }
};

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, 2)
    attend_top(TopKProblem<T> p, HeadView<const T> rest, HeadView<T> out, float* logsumexp) {
  float* const shared = dynamic_shared<float>();
  const unsigned column_tiles = unsigned(count_chunks(p.size.M, width));
  const int column = int(blockIdx.x % column_tiles) * width;
  const MemberTask task(p, 0, blockIdx.x / column_tiles);
  if (task.first >= task.end) return;
  const Members<T> block(p, task);
  const bool with_rest = rest && task.cluster < p.C;
  const float mass = task.mass(p);

  for (int m0 = task.first; m0 < task.end; m0 += tile) {
    RunningSoftmax<8, 16> softmax;
    float sum[8][width / 16] = {};
    for (int l0 = 0; l0 < task.k; l0 += tile) {
      TileOf s;
      row_products(block.members(p.q, m0, p.D()), block.keys(p.k, l0, p.D()), shared, s);
      const unsigned there = block.there(m0, l0), keep = block.kept(m0, l0, there);
      // [eq. 10] The query's own softmax over the top keys; the mass is multiplied below.
      weigh_products(s, p.scale_2(), there, keep, softmax, sum);
      store_weights(shared, s);
      add_weighted_rows<width>(block.keys(p.v, l0, p.M(), column), shared, sum);
    }
    softmax.finish();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (m0 + tile_row(i) >= task.end) continue;
      const float factor = mass * block.dropout.scale * softmax.inverse(i);
      // [eq. 11] [eq. 15] [eq. 16] Weights times values, added to the rest.
#pragma unroll
      for (int c = 0; c < width / 16; ++c) {
        const int at = column + tile_column() + c % 4 + 64 * (c / 4);
        const bool has_rest = with_rest && at < p.M();
        sum[i][c] = sum[i][c] * factor + (has_rest ? float(block.batch_head.row(rest, task.cluster)[at]) : 0.0f);
      }
      const int query = task.permutation[m0 + tile_row(i)];
      write_row(sum[i], 1.0f, block.batch_head.row(out, query) + column, p.M() - column);
      if (logsumexp && column == 0 && tile_column() == 0)
        logsumexp[task.batch_head * p.size.N + query] = softmax.logsumexp(i);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------- backward

template <class T>
__global__ void __launch_bounds__(tile_threads, 2)
    member_gradient(TopKProblem<T> p, HeadView<const T> dout, const float* dlogsumexp, Parts parts, HeadView<T> dq) {
  float* const shared = dynamic_shared<float>();
  const unsigned column_tiles = unsigned(count_chunks(max(p.size.D, p.size.M), tile));
  const int column = int(blockIdx.x % column_tiles) * tile;
  const MemberTask task(p, parts.first_batch_head, blockIdx.x / column_tiles);
  if (column == 0) parts.write_keys(p, task);
  if (task.first >= task.end) return;
  const Members<T> block(p, task);
  const float mass = task.mass(p);
  float mass_gradient = 0;  // what this thread's members add to dm

  for (int m0 = task.first; m0 < task.end; m0 += tile) {
    TileOf s, g;  // scores times log2 e, and the gradients of the weights
    // Returns which weights dropout keeps.
    const auto compute = [&](int l0) {
      row_products(block.members(p.q, m0, p.D()), block.keys(p.k, l0, p.D()), shared, s);
      row_products(block.members(dout, m0, p.M()), block.keys(p.v, l0, p.M()), shared, g);
      const unsigned there = block.there(m0, l0), keep = block.kept(m0, l0, there);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          s[i][j] = there >> (4 * i + j) & 1 ? s[i][j] * p.scale_2() : -INFINITY;
          g[i][j] = keep >> (4 * i + j) & 1 ? g[i][j] * block.dropout.scale : 0.0f;
        }
      return keep;
    };
    RunningSoftmax<8, 16> softmax;
    float delta[8] = {};
    for (int l0 = 0; l0 < task.k; l0 += tile) {
      compute(l0);
#pragma unroll
      for (int i = 0; i < 8; ++i) {  // [grad. 9] delta: what a member adds to dm
        delta[i] *= softmax.raise(i, fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])));
#pragma unroll
        for (int j = 0; j < 4; ++j) delta[i] = fmaf(softmax.weight(i, s[i][j]), g[i][j], delta[i]);
      }
    }
    softmax.finish();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      for (int distance = 8; distance > 0; distance /= 2) delta[i] += __shfl_xor_sync(full_warp, delta[i], distance);
      delta[i] *= softmax.inverse(i);
      if (m0 + tile_row(i) >= task.end) continue;
      if (tile_column() == 0) mass_gradient += delta[i];
      if (dlogsumexp) delta[i] -= dlogsumexp[task.batch_head * p.size.N + task.permutation[m0 + tile_row(i)]];
    }

    float sum[8][4] = {};
    for (int l0 = 0; l0 < task.k; l0 += tile) {
      const unsigned keep = compute(l0);
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float weight = exp2_approx(s[i][j] - softmax.shift(i)) * softmax.inverse(i);
          // [grad. 10] dS over the top keys: the softmax's gradient; the mass and the scale come at the end
          g[i][j] = weight * (g[i][j] - delta[i]);
          s[i][j] = keep >> (4 * i + j) & 1 ? weight * block.dropout.scale : 0.0f;
        }
      const auto write_part = [&](const TileOf& of_keys, float factor, int first_column, int columns) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (const int l = l0 + tile_row(i); l < task.k)
            write_row(of_keys[i], factor,
                      parts.rows + (parts.first(p, task) + l) * (p.size.D + p.size.M) + first_column + column,
                      columns - column, m0 > task.first);
      };
      if (column < p.D()) {
        store_weights(shared, g);
        add_weighted_rows<tile>(block.keys(p.k, l0, p.D(), column), shared, sum);
        TileOf of_keys = {};
        store_transposed(shared, g);
        add_weighted_rows<tile>(block.members(p.q, m0, p.D(), column), shared, of_keys);
        write_part(of_keys, mass * p.scale, 0, p.D());
      }
      if (column < p.M()) {  // [grad. 16] dV over the top keys
        TileOf of_keys = {};
        store_transposed(shared, s);
        add_weighted_rows<tile>(block.members(dout, m0, p.M(), column), shared, of_keys);
        write_part(of_keys, mass, p.D(), p.M());
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (m0 + tile_row(i) < task.end) {
        const int query = task.permutation[m0 + tile_row(i)];
        write_row(sum[i], mass * p.scale, block.batch_head.row(dq, query) + column, p.D() - column);
      }
  }
  if (column > 0) return;
  mass_gradient = block_reduce(mass_gradient, 0.0f, Sum{});
  if (threadIdx.x == 0) parts.deltas[int64_t(task.batch_head) * p.tasks() + task.number] = mass_gradient;
}

// ------------------------------------------------------------------------------- sums of the parts, on every device

constexpr int sum_warps = 8, keys_of_warp = 8, sum_keys = sum_warps * keys_of_warp;
constexpr int sum_rows = 4;           // loads in flight
constexpr int max_rows_of_warp = 32;  // of a key that a warp sums up by itself

// sum += every `step`th of the parts order[begin .. end), one after another. A part has `columns` floats. Each lane
// loads the index of one of 32 parts.
template <int width>
__device__ void add_parts(const float* parts, int64_t columns, const int32_t* order, int begin, int end, int step,
                          float (&sum)[width]) {
#pragma unroll 1
  for (int base = begin; base < end; base += 32 * step) {
    const int mine = base + int(threadIdx.x % 32) * step, part = mine < end ? order[mine] : 0;
#pragma unroll 1
    for (int first = 0; first < 32 && base + first * step < end; first += sum_rows) {
      Pack<float, width> x[sum_rows] = {};
#pragma unroll
      for (int i = 0; i < sum_rows; ++i) {
        const float* const row = parts + __shfl_sync(full_warp, part, first + i) * columns;
        if (base + (first + i) * step < end) x[i] = pack<width>(row, 0);
      }
#pragma unroll
      for (int i = 0; i < sum_rows; ++i)
#pragma unroll
        for (int e = 0; e < width; ++e) sum[e] += x[i].element[e];
    }
  }
}

// width: columns in one load.
template <class T, int width>
__global__ void __launch_bounds__(32 * sum_warps)
    topk_key_gradient(TopKProblem<T> p, Parts parts, HeadView<T> dk, HeadView<T> dv, T* dmass) {
  __shared__ float shares[sum_warps][32 * width];
  __shared__ int starts[sum_keys + 1];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const unsigned S = unsigned(p.size.S), C = unsigned(p.C), H = unsigned(p.size.H), heads = unsigned(parts.batch_heads);
  const unsigned column_parts = unsigned(ceil_div(p.size.D + p.size.M, 32 * width));
  const unsigned key_blocks = (S + sum_keys - 1) / sum_keys * column_parts;
  if (blockIdx.x >= key_blocks * heads) {  // dm: a warp adds the deltas of a cluster's tasks
    const unsigned row = (blockIdx.x - key_blocks * heads) * sum_warps + unsigned(warp);
    if (row >= C * heads) return;
    const int64_t batch_head = parts.first_batch_head + row / C;
    const int c = int(row % C), *const offsets = p.offsets(batch_head), tasks = p.tasks_of(offsets[c], offsets[c + 1]);
    const float* const deltas = parts.deltas + batch_head * p.tasks() + p.first_task(offsets, c);
    float sum = 0;
#pragma unroll 1
    for (int task = lane; task < tasks; task += 32) sum += deltas[task];
    sum = warp_reduce(sum, Sum{});
    if (lane == 0 && dmass) dmass[batch_head * C + c] = T(sum);  // dm_j
    return;
  }
  const unsigned batch_head = unsigned(parts.first_batch_head) + blockIdx.x / key_blocks;
  const int first_key = int(blockIdx.x % key_blocks / column_parts) * sum_keys;
  const int column = int(blockIdx.x % column_parts) * 32 * width + lane * width;
  const int64_t columns = p.size.D + p.size.M;
  const bool has_column = column < columns;
  const unsigned in_round = batch_head - unsigned(parts.first_batch_head);
  const float* const rows = parts.rows + in_round * parts.each * columns + (has_column ? column : 0);
  const int32_t* const order = parts.order + in_round * parts.each;
  const bool of_values = column >= p.D();
  T* const to = of_values ? dv.at(batch_head / H, first_key, batch_head % H) + column - p.D()
                          : dk.at(batch_head / H, first_key, batch_head % H) + column;
  const int64_t row_stride = of_values ? dv.row_stride : dk.row_stride;
  const auto write = [&](int key, const float(&sum)[width]) {
    Pack<T, width> result;
#pragma unroll
    for (int e = 0; e < width; ++e) result.element[e] = T(sum[e]);
    if (has_column) pack<width>(to + key * row_stride, 0) = result;
  };
  if (threadIdx.x <= sum_keys)
    starts[threadIdx.x] = parts.starts[int64_t(in_round) * (S + 1) + min(first_key + int(threadIdx.x), int(S))];
  __syncthreads();

  const int keys = min(sum_keys, int(S) - first_key);
  int popular = 0;
#pragma unroll 1
  for (int key = warp * keys_of_warp; key < min((warp + 1) * keys_of_warp, keys); ++key) {
    const int begin = starts[key], end = starts[key + 1];
    if (end - begin > max_rows_of_warp) {
      popular = 1;
      continue;
    }
    float sum[width] = {};
    add_parts(rows, columns, order, begin, end, 1, sum);
    write(key, sum);
  }
  if (!__syncthreads_or(popular)) return;
#pragma unroll 1
  for (int key = 0; key < keys; ++key) {  // all warps share the rows of a popular key
    if (starts[key + 1] - starts[key] <= max_rows_of_warp) continue;
    float sum[width] = {};
    add_parts(rows, columns, order, starts[key] + warp, starts[key + 1], sum_warps, sum);
#pragma unroll
    for (int e = 0; e < width; ++e) shares[warp][lane * width + e] = sum[e];
    __syncthreads();
    if (warp == 0) {
      for (int w = 1; w < sum_warps; ++w)
#pragma unroll
        for (int e = 0; e < width; ++e) sum[e] += shares[w][lane * width + e];
      write(key, sum);
    }
    __syncthreads();  // before `shares` is written again
  }
}

// --------------------------------------------------------------------------------------------------- the host's part

// Floats of parts in one round, unless a single batch_head needs more.
constexpr int64_t max_parts = int64_t{1} << 24;

// The binary logarithm of the members of a task. A task has about as many as a cluster, so that a cluster has few
// tasks. It has fewer where there would be fewer than 512 tasks. If top has more keys than a block sums up at once, a
// task is one tile; the limit is that of 128 columns, whatever D is. Depends on the shape alone, and so does the order
// of sums.
template <class T>
int task_bits(const AttentionSize& size, int64_t C, int64_t k) {
  if (k > TopShape<T, 128>::gradient_keys) return std::countr_zero(unsigned(task_tile));
  const auto tiles = uint64_t(ceil_div(size.N, task_tile)), clusters = std::max(uint64_t(C), uint64_t{1});
  const uint64_t of_cluster = (tiles + clusters - 1) / clusters, most = uint64_t(size.B * size.H) * tiles / 512;
  return std::countr_zero(unsigned(task_tile) *
                          std::min(std::bit_ceil(of_cluster), std::bit_floor(std::max(most, uint64_t{1}))));
}

template <class T>
TopKProblem<T> problem(const AttentionOperands<T>& in, int64_t C, int64_t k, const ClusterView& clusters,
                       const int32_t* topk, const T* mass) {
  const AttentionSize& size = in.size;
  check(C < max_count && k < max_count && (size.N / task_tile + C + 1) * k < max_count,
        "topk_attention on CUDA: expected C, k and (N / 64 + C + 1) k below 2^30, got C = ", C, ", k = ", k,
        ", N = ", size.N);
  return {{"topk_attention", in}, int(C), int(k), clusters, topk, mass, task_bits<T>(size, C, k)};
}

}  // namespace

template <class T>
void topk_attention_forward(Stream stream, const AttentionOperands<T>& in, int64_t C, int64_t k, ClusterView clusters,
                            const int32_t* topk, const T* mass, HeadView<const T> rest, HeadView<T> out,
                            Accum<T>* logsumexp) {
  const AttentionSize& size = in.size;
  if (size.B * size.H * size.N == 0) return;
  const TopKProblem<T> p = problem(in, C, k, clusters, topk, mass);
  const int64_t tasks = size.B * size.H * p.tasks();
  if (suits_mma(p, rest, out)) {
    with_mma_columns(std::max(size.D, size.M), [&]<int columns> {
      using Shape = TopShape<T, columns>;
      const auto run = [&]<bool once> {
        launch<attend_top_mma<T, once, columns>, Shape::forward_bytes>(overlapped({tasks, mma_threads, 0, stream}), p,
                                                                       rest, out, logsumexp);
      };
      k <= Shape::keys ? run.template operator()<true>() : run.template operator()<false>();
    });
    return;
  }
  with_tile_width(size.M, [&]<int width> {
    launch<attend_top<T, width>, tile_bytes>(tile_blocks(stream, tasks, size.M, width), p, rest, out, logsumexp);
  });
}

template <class T>
void topk_attention_backward(Stream stream, const AttentionOperands<T>& in, int64_t C, int64_t k, ClusterView clusters,
                             const int32_t* topk, const T* mass, HeadView<const T> dout, const Accum<T>* dlogsumexp,
                             HeadView<T> dq, HeadView<T> dk, HeadView<T> dv, T* dmass, HeadView<T> drest) {
  const AttentionSize& size = in.size;
  const TopKProblem<T> p = problem(in, C, k, clusters, topk, mass);
  const int64_t batch_heads = size.B * size.H, columns = size.D + size.M;
  if (batch_heads == 0) return;
  Workspace workspace(Device::cuda);
  Parts parts{};
  parts.each = p.tasks() * k;
  const int64_t round = std::clamp<int64_t>(max_parts / std::max<int64_t>(1, parts.each * columns), 1, batch_heads);
  parts.rows = workspace.take<float>(round * parts.each * columns);
  parts.keys = workspace.take<int32_t>(round * parts.each);
  parts.order = workspace.take<int32_t>(round * parts.each);
  parts.starts = workspace.take<int32_t>(round * (size.S + 1));
  parts.deltas = workspace.take<float>(batch_heads * p.tasks());

  const bool on_mma = !dlogsumexp && suits_mma(p, dout, dq, dk, dv);  // its kernel has no register for dlogsumexp
  for (; parts.first_batch_head < batch_heads; parts.first_batch_head += round) {
    parts.batch_heads = std::min(round, batch_heads - parts.first_batch_head);
    const int64_t tasks = parts.batch_heads * p.tasks();
    if (on_mma)
      with_mma_columns(std::max(size.D, size.M), [&]<int columns> {
        using Shape = TopShape<T, columns>;
        const auto run = [&]<bool once> {
          launch<member_gradient_mma<T, once, columns>, Shape::backward_bytes>({tasks, mma_threads, 0, stream}, p, dout,
                                                                               parts, dq);
        };
        k <= Shape::gradient_keys ? run.template operator()<true>() : run.template operator()<false>();
      });
    else
      launch<member_gradient<T>, tile_bytes>(tile_blocks(stream, tasks, std::max(size.D, size.M), tile), p, dout,
                                             dlogsumexp, parts, dq);
    sort_by_label(stream, {parts.batch_heads, 1, parts.each, size.S}, parts.keys, parts.order, parts.starts);
    const auto sum_up = [&]<int pack> {
      const int64_t blocks = parts.batch_heads * ceil_div(size.S, sum_keys) * ceil_div(columns, 32 * pack) +
                             ceil_div(parts.batch_heads * C, sum_warps);
      if (blocks > 0) launch(topk_key_gradient<T, pack>, {blocks, 32 * sum_warps, 0, stream}, p, parts, dk, dv, dmass);
    };
    if (on_mma)
      sum_up.template operator()<4>();
    else
      sum_up.template operator()<1>();
  }
  // [grad. 11] dB_j: the sum over the cluster
  if (drest) cluster_reduce<T>(stream, Reduce::sum, {size.B, size.H, size.N, C}, size.M, clusters, dout, drest);
}

CAIRN_GPU_TYPES(topk_attention_forward)
CAIRN_GPU_TYPES(topk_attention_backward)

}  // namespace cairn::gpu
