// Queries against the top keys of their cluster, and what their centroid gives them (the first case of the paper's
// equation 10, and equation 11; section 3.3), and the gradient. core/kernels/topk_attention.h has the definition.
//
//   out_i = m_j (z a_i V_top) + rest_j for query i of cluster j, a_i = softmax over top_j of scale q_i . k_l, z dropout
// With g_i the gradient of out_i:
//   da = z (g_i V_top^T);  delta_i = a_i . da;  dm_j = sum_i delta_i;  drest_j = sum_i g_i
//   dS = m_j a_i (da - delta_i);  dq_i = scale dS K_top;  dK_top += scale dS^T q_i;  dV_top += m_j (z a_i)^T g_i
//
// Launch. Clusters differ in size, so the work is cut into tasks of up to t members of a cluster. Task i of cluster c
// has the number offsets[c] / t + c + i. Some numbers have no task: their blocks return at once. So the host need not
// know the sizes of the clusters: it launches N / t + C + 1 blocks for each (batch, head). Queries of no cluster count
// as members of a cluster C. A warp finds its task by probing 31 clusters at a time. t is 64 times a power of two. It
// is about N / C, so that few tasks have parts of the same keys' gradients. It is 64 where larger tasks would leave too
// few blocks, and where top has more than 32 keys (16 in float32): a block has no registers for the gradients of more.
//
// On tensor cores (cuda/topk_mma.cuh), under the conditions of cuda/attention.cu; a block of 128 threads has a task:
//   attend_top_mma      gathers 64 members and 32 top keys at a time, by asynchronous copies of whole rows. A warp has
//                       16 members and all their sums. At most 32 top keys are gathered once for the task. More go
//                       through the block in tiles, with a running softmax.
//   member_gradient_mma the same for dq. Weights and dS go through shared memory, to be multiplied with queries and
//                       gradients. Two warps sum up dK_top, 16 keys each, and two warps dV_top. If top has more than
//                       32 keys (16 where rows have 512 bytes), the scores are computed twice: for the softmax and
//                       delta, and for the gradients.
// In float32, on every GPU and for every D and M; a block of 128 threads has a task and 64 or 128 columns:
//   attend_top          gathers 32 top keys, 64 columns at a time, and takes 32 members at a time, 8 a warp. A thread
//                       has the scores of 2 members and 4 keys, then 4 members and 4 columns of the output (8 of them
//                       if M > 64). If top has more than 32 keys, the scores are computed twice.
//   member_gradient     the same for dq
// Either member_gradient writes the parts of dK_top and dV_top that its task has: rows of D + M floats in workspace
// memory. Two kernels, the same for both forms, make sums of them:
//   place_parts         runs first and decides where these rows go, so that the rows of a key stand together: a
//                       counting sort. A block has 1024 keys. It reads top of all clusters, each of its 8 warps an
//                       eighth of the clusters.
//   topk_key_gradient   sums up the rows of each key, in their order. A warp has 8 keys and 128 columns (32 if rows do
//                       not move four columns at a time). If a key has more than 32 rows, the 8 warps of the block
//                       share them: each takes every eighth. Further blocks sum up dm, a warp a cluster.
// segment_reduce computes drest. member_gradient and topk_key_gradient process as many (batch, head) pairs at a time
// as fit into 64 MB of workspace.
//
// Traffic: queries, outputs and their gradients once; a task's k rows of keys and values, from the L2 cache mostly;
// backward twice k (D + M) floats for a task. Floor: everything but those floats once. Tensor cores leave memory as the
// bound; in float32 it is arithmetic. With clusters of a member or two (oracle-top) it is the gathering. Nothing
// spills. Shared memory in KB (1024 bytes): attend_top_mma 8 to 65,
// member_gradient_mma 20 to 88, attend_top 30, member_gradient 43, place_parts 32, topk_key_gradient 4.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/kernels/segment_mean.h"
#include "core/workspace.h"
#include "cuda/topk_mma.cuh"

namespace cairn::gpu {
namespace {

constexpr int portion = 32;       // of members, and of keys, at a time
constexpr int stride = tile + 4;  // of 64 columns of gathered rows
constexpr int row_floats = portion * stride;
constexpr int weight_stride = portion + 4;
constexpr int weight_floats = portion * weight_stride;

// Some rows of a matrix, by their indices.
template <class T>
struct IndexedRows {
  using Element = T;
  const T* data;
  int64_t stride;
  const int32_t* index;
  int rows, columns;
  bool packs;

  __device__ bool has(int r) const { return r < rows; }
  __device__ const T* row(int r) const { return data + index[r] * stride; }
};

// 64 columns of 32 gathered rows in shared memory, which are kept for as long as they are asked for.
struct Gathered {
  float* rows;
  int first = -1, column = -1;

  // Rows index[first], ... (of `count` indices) of x in a batch_head. The block has them all when this returns.
  template <class T>
  __device__ const float* get(const HeadView<const T>& x, const BatchHead& batch_head, const int32_t* index, int first_,
                              int count, int columns, int column_, bool packs) {
    if (first_ == first && column_ == column) return rows;
    first = first_, column = column_;
    __syncthreads();  // all have read what stood there
    IndexedRows<T> from{x.batch_head(batch_head.batch, batch_head.head) + column,
                        x.row_stride,
                        index + first,
                        count - first,
                        columns - column,
                        packs};
#pragma unroll 1
    for (int half = 0; half < portion; half += portion / 2) {  // more loads under way take too many registers
      load_rows<portion / 2, tile>(from, rows + half * stride, [](int r) { return r; });
      from.index += portion / 2, from.rows -= portion / 2;
    }
    __syncthreads();
    return rows;
  }
};

// ---- what a thread has. A warp has 8 of the 32 members. Of the products of members and keys, a thread has 2 x 4:
// those of members member_of(i) and keys key_of(j).
using Scores = float[2][4];
__device__ int warp_member() { return 8 * int(threadIdx.x / 32); }
__device__ int member_of(int i) { return warp_member() + 2 * int(threadIdx.x % 32 / 8) + i; }
__device__ int key_of(int j) { return int(threadIdx.x % 8) + 8 * j; }
// Of the products of weights and rows: rows row_of() + i, columns tile_column() and further ones.
__device__ int row_of() { return 4 * int(threadIdx.x / 16); }

// sum += members . keys over the first `columns` of 64 columns.
__device__ void add_products(const float* members, const float* keys, int columns, Scores& sum) {
  members += member_of(0) * stride;
  keys += key_of(0) * stride;
#pragma unroll 1
  for (int d = 0; d < min(columns, tile); d += 4) {
    Pack4 y[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) y[j] = pack<4>(keys + 8 * j * stride, d / 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Pack4 x = pack<4>(members + i * stride, d / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j] = fmaf(x.element[e], y[j].element[e], sum[i][j]);
    }
  }
}

// weights [key, member] of this warp's members.
__device__ void store_by_key(float* weights, const Scores& w) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) weights[key_of(j) * weight_stride + member_of(i)] = w[i][j];
}

// Columns 4 part, ... of sum[i] += over the first `keys` keys: weight of member row_of() + i times the key's row.
template <int items>
__device__ void add_keys(const float* weights, const float* rows, int keys, int part, float (&sum)[4][items]) {
#pragma unroll 1
  for (int l = 0; l < min(keys, portion); ++l) {
    const Pack4 w = pack<4>(weights + l * weight_stride, row_of() / 4);
    const Pack4 y = pack<4>(rows + l * stride, tile_column() / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][4 * part + e] = fmaf(w.element[i], y.element[e], sum[i][4 * part + e]);
  }
}

// sum[i] += over the first `members` members: weight of key row_of() + i times the member's row.
__device__ void add_members(const float* weights, const float* rows, int members, float (&sum)[4][4]) {
  weights += row_of() * weight_stride;
#pragma unroll 1
  for (int m = 0; m < members; m += 4) {
    Pack4 y[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) y[e] = pack<4>(rows + (m + e) * stride, tile_column() / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pack4 w = pack<4>(weights + i * weight_stride, m / 4);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[i][c] = fmaf(w.element[e], y[e].element[c], sum[i][c]);
    }
  }
}

// A block at work on a task.
template <class T>
struct Members {
  const TopKProblem<T>& p;
  const MemberTask& task;
  BatchHead batch_head;
  TileDropout dropout;
  int top = 0;  // top keys
  int m0 = 0;   // the first of 32 members
  Gathered queries, keys, values;

  __device__ Members(const TopKProblem<T>& problem, const MemberTask& member_task, float* workspace)
      : p(problem),
        task(member_task),
        batch_head(p.size, Mask{}, task.batch_head),
        dropout(p.dropout, batch_head),
        queries{workspace},
        keys{workspace + row_floats},
        values{workspace + 2 * row_floats} {
    for (int l = int(threadIdx.x % 32); l - int(threadIdx.x % 32) < task.k; l += 32)
      top += __popc(__ballot_sync(full_warp, l < task.k && task.topk[l] >= 0));
  }

  __device__ int rows() const { return min(portion, task.end - m0); }
  __device__ bool warp_works() const { return warp_member() < rows(); }

  __device__ const float* query_rows(int column) {
    return queries.get(p.q, batch_head, task.permutation, m0, task.end, p.D(), column, p.packs);
  }
  __device__ const float* key_rows(int l0, int column) {
    return keys.get(p.k, batch_head, task.topk, l0, top, p.D(), column, p.packs);
  }
  __device__ const float* value_rows(int l0, int column) {
    return values.get(p.v, batch_head, task.topk, l0, top, p.M(), column, p.packs);
  }

  // Scores times log2 e against top keys from l0 on; minus infinity behind the last.
  __device__ void scores(int l0, Scores& s) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = 0;
    for (int d0 = 0; d0 < p.D(); d0 += tile) {
      const float *const x = query_rows(d0), *const y = key_rows(l0, d0);
      if (warp_works()) add_products(x, y, p.D() - d0, s);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = l0 + key_of(j) < top ? s[i][j] * p.scale_2() : -INFINITY;
  }

  // Bit 4 i + j: that weight is not dropped.
  __device__ unsigned keep(int l0) const {
    if (!dropout.active || !warp_works()) return ~0u;
    unsigned bits = 0;
#pragma unroll 1
    for (int n = 0; n < 8; ++n) {
      const int member = m0 + member_of(n / 4), l = l0 + key_of(n % 4);
      if (member < task.end && l < top)
        bits |= (dropout.keep(task.permutation[member], task.topk[l] & ~3) >> task.topk[l] % 4 & 1u) << n;
    }
    return bits;
  }
};

// The block's share of the columns of a result, and of the tasks.
struct ColumnPart {
  int column;
  unsigned block;

  __device__ ColumnPart(int64_t columns, int width) {
    const unsigned parts = unsigned(TileTask::tile_parts(columns, width));
    column = int(blockIdx.x % parts) * width;
    block = blockIdx.x / parts;
  }
};

using MemberSoftmax = RunningSoftmax<2, 8>;

__device__ void add_scores(MemberSoftmax& softmax, const Scores& s) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    softmax.raise(i, fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])));
#pragma unroll
    for (int j = 0; j < 4; ++j) softmax.weight(i, s[i][j]);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 4 : 3)
    attend_top(TopKProblem<T> p, HeadView<const T> rest, HeadView<T> out) {
  const ColumnPart part(p.size.M, width);
  const MemberTask task(p, 0, part.block);
  if (task.first >= task.end) return;
  float* const workspace = dynamic_shared<float>();
  float* const weights = workspace + 3 * row_floats;
  Members<T> block(p, task, workspace);
  const bool with_rest = rest && task.cluster < p.C;
  const float mass = task.mass(p);

  for (block.m0 = task.first; block.m0 < task.end; block.m0 += portion) {
    float sum[4][width / 16] = {};
    if (with_rest) {
      const T* const from = rest.at(block.batch_head.batch, task.cluster, block.batch_head.head);
#pragma unroll
      for (int c = 0; c < width / 16; ++c) {
        const int column = part.column + tile_column() + c % 4 + 64 * (c / 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i][c] = column < p.M() ? float(from[column]) : 0.0f;
      }
    }
    Scores s;
    MemberSoftmax softmax;
    const bool twice = block.top > portion;
#pragma unroll 1
    for (int step = twice ? 0 : 1; step < 2; ++step) {
      for (int l0 = 0; l0 < block.top; l0 += portion) {
        block.scores(l0, s);
        if (step == 0 || !twice) add_scores(softmax, s);
        if (step == 0) continue;
        if (!twice) softmax.finish();
        const unsigned keep = block.keep(l0);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // [eq. 10] [eq. 13] The top keys share the mass by the softmax of the query itself.
          const float factor = mass * block.dropout.scale * softmax.inverse(i);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            s[i][j] = keep >> (4 * i + j) & 1 ? exp2_approx(s[i][j] - softmax.shift(i)) * factor : 0.0f;
        }
        __syncwarp();  // all have read the weights that stood there
        store_by_key(weights, s);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < width / 64; ++i) {
          const float* const rows = block.value_rows(l0, part.column + 64 * i);
          // [eq. 11] [eq. 15] [eq. 16] Weights times values, added to the rest.
          if (block.warp_works()) add_keys(weights, rows, block.top - l0, i, sum);
        }
      }
      if (step == 0) softmax.finish();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row_of() + i >= block.rows()) continue;
      const int query = task.permutation[block.m0 + row_of() + i];
      write_row(sum[i], 1.0f, out.at(block.batch_head.batch, query, block.batch_head.head) + part.column,
                p.M() - part.column, p.packs);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------- backward

// Adds to a task's part, or sets it: the block's 32 top keys from l0 on, 64 columns of `columns`.
template <class T>
__device__ void write_part(const TopKProblem<T>& p, const Parts& parts, const MemberTask& task, int l0, int top,
                           bool add, int column, int columns, const float (&sum)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int l = l0 + row_of() + i;
    if (l >= top) continue;
    const int place = parts.places[int64_t(task.of_cluster) * p.top + l] + task.in_cluster;
    float* const to = parts.row(p, task.batch_head, place) + column + tile_column();
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (tile_column() + e < columns) to[e] = sum[i][e] + (add ? to[e] : 0.0f);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 3 : 2)
    member_gradient(TopKProblem<T> p, HeadView<const T> dout, Parts parts, HeadView<T> dq) {
  const ColumnPart part(max(p.size.D, p.size.M), width);
  const MemberTask task(p, parts.first_batch_head, part.block);
  if (task.first >= task.end) return;
  float* const workspace = dynamic_shared<float>();
  float* const score_gradients = workspace + 4 * row_floats;
  float* const weights = score_gradients + weight_floats;
  Members<T> block(p, task, workspace);
  Gathered gradients{workspace + 3 * row_floats};
  const auto gradient_rows = [&](int column) {
    return gradients.get(dout, block.batch_head, task.permutation, block.m0, task.end, p.M(), column, p.packs);
  };
  const float mass = task.mass(p);
  float mass_gradient = 0;  // this thread's part
  // The scores and the gradients of the weights, as they are in the end.
  Scores s, da;
  const auto compute = [&](int l0) {
    block.scores(l0, s);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) da[i][j] = 0;
    for (int c0 = 0; c0 < p.M(); c0 += tile) {
      const float *const x = gradient_rows(c0), *const y = block.value_rows(l0, c0);
      if (block.warp_works()) add_products(x, y, p.M() - c0, da);
    }
    const unsigned keep = block.keep(l0);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) da[i][j] = keep >> (4 * i + j) & 1 ? da[i][j] * block.dropout.scale : 0.0f;
    return keep;
  };

  for (block.m0 = task.first; block.m0 < task.end; block.m0 += portion) {
    float sum[4][width / 16] = {};
    MemberSoftmax softmax;
    float delta[2] = {};
    const auto add = [&] {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        // [grad. 9] delta: a member's part of dm
        delta[i] *= softmax.raise(i, fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])));
#pragma unroll
        for (int j = 0; j < 4; ++j) delta[i] = fmaf(softmax.weight(i, s[i][j]), da[i][j], delta[i]);
      }
    };
    const auto finish = [&] {
      softmax.finish();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int distance = 4; distance > 0; distance /= 2) delta[i] += __shfl_xor_sync(full_warp, delta[i], distance);
        delta[i] *= softmax.inverse(i);
      }
    };
    const bool twice = block.top > portion;
#pragma unroll 1
    for (int step = twice ? 0 : 1; step < 2; ++step) {
      for (int l0 = 0; l0 < block.top; l0 += portion) {
        const unsigned keep = compute(l0);
        if (step == 0 || !twice) add();
        if (step == 0) continue;
        if (!twice) finish();
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float factor = member_of(i) < block.rows() ? mass * softmax.inverse(i) : 0.0f;
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float weight = exp2_approx(s[i][j] - softmax.shift(i)) * factor;
            // [grad. 10] dS over the top keys: the softmax's gradient, times the mass
            da[i][j] = p.scale * weight * (da[i][j] - delta[i]);
            s[i][j] = keep >> (4 * i + j) & 1 ? weight * block.dropout.scale : 0.0f;
          }
        }
        __syncthreads();  // all have read the weights that stood there
        store_by_key(score_gradients, da);
        store_by_key(weights, s);
        __syncthreads();
        const bool later = block.m0 > task.first;
        const int members = block.rows();
#pragma unroll
        for (int i = 0; i < width / 64; ++i) {
          const int column = part.column + 64 * i;
          if (column < p.D()) {
            const float* const rows = block.key_rows(l0, column);
            if (block.warp_works()) add_keys(score_gradients, rows, block.top - l0, i, sum);
            float of_keys[4][4] = {};
            add_members(score_gradients, block.query_rows(column), members, of_keys);
            write_part(p, parts, task, l0, block.top, later, column, p.D() - column, of_keys);
          }
          if (column < p.M()) {
            float of_values[4][4] = {};
            // [grad. 16] dV over the top keys
            add_members(weights, gradient_rows(column), members, of_values);
            write_part(p, parts, task, l0, block.top, later, p.D() + column, p.M() - column, of_values);
          }
        }
      }
      if (step == 0) finish();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row_of() + i >= block.rows()) continue;
      const int query = task.permutation[block.m0 + row_of() + i];
      write_row(sum[i], 1.0f, dq.at(block.batch_head.batch, query, block.batch_head.head) + part.column,
                p.D() - part.column, p.packs);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (threadIdx.x % 8 == 0 && member_of(i) < block.rows()) mass_gradient += delta[i];
  }
  if (!parts.deltas || part.column > 0) return;
  mass_gradient = block_reduce(mass_gradient, 0.0f, Sum{});
  if (threadIdx.x == 0) parts.deltas[int64_t(task.batch_head) * p.tasks() + task.number] = mass_gradient;
}

// ---- the order of the parts

constexpr int place_warps = 8, place_threads = 32 * place_warps, keys_each = 4, place_keys = keys_each * place_threads;

// A counting sort of the parts by key. The parts of one key are ordered by warp, then by piece of 32 top keys, then by
// cluster, then by task. The keys of one top differ, so a warp that takes one cluster after another needs neither
// atomics nor votes.
template <class T>
__global__ void __launch_bounds__(place_threads) place_parts(TopKProblem<T> p, Parts parts) {
  constexpr int at_once = 4;
  __shared__ __align__(16) int counts[place_warps][place_keys];
  __shared__ int of_warp[place_warps];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), S = int(p.size.S);
  const unsigned ranges = unsigned(max(ceil_div(p.size.S, place_keys), int64_t{1}));
  const int first_key = int(blockIdx.x % ranges) * place_keys, batch_head = int(blockIdx.x / ranges);
  const int32_t* const offsets = p.offsets(batch_head);
  const int64_t first_entry = int64_t(batch_head) * p.C * p.top;
  const int clusters = (p.C + place_warps - 1) / place_warps;  // of a warp
  const int first = min(warp * clusters, p.C), last = min(first + clusters, p.C);
  // Calls f(entry, key, tasks) for the top keys of the warp's clusters.
  const auto each_entry = [&](auto f) {
#pragma unroll 1
    for (int l = lane; l - lane < p.top; l += 32)
#pragma unroll 1
      for (int c0 = first; c0 < last; c0 += at_once) {
        int key[at_once], begin[at_once], end[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int c = min(c0 + i, last - 1);
          key[i] = p.topk[first_entry + c * p.top + min(l, p.top - 1)];
          begin[i] = offsets[c], end[i] = offsets[c + 1];
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int tasks = p.tasks_of(begin[i], end[i]);
          if (c0 + i < last && l < p.top && tasks > 0 && key[i] >= 0) f((c0 + i) * p.top + l, key[i], tasks);
          __syncwarp();  // the next cluster may have the same keys
        }
      }
  };
  using Keys = Pack<int, keys_each>;  // of this thread
  const int own = int(threadIdx.x);
#pragma unroll
  for (int w = 0; w < place_warps; ++w) pack<keys_each>(counts[w], own) = Keys{};
  __syncthreads();
  int before = 0;  // parts of keys before this range
  each_entry([&](int, int key, int tasks) {
    if (key < first_key) before += tasks;
    if (unsigned(key - first_key) < unsigned(place_keys)) counts[warp][key - first_key] += tasks;
  });
  before = block_reduce(before, 0, Sum{});
  int total = 0;
#pragma unroll
  for (int w = 0; w < place_warps; ++w) {
    const Keys count = pack<keys_each>(counts[w], own);
    for (int i = 0; i < keys_each; ++i) total += count.element[i];
  }
  const int sum = warp_scan(total);
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  int start = before + sum - total;
#pragma unroll
  for (int w = 0; w < place_warps; ++w) start += w < warp ? of_warp[w] : 0;
  int32_t* const starts = parts.starts + int64_t(batch_head) * (S + 1);
#pragma unroll
  for (int i = 0; i < keys_each; ++i) {
    const int key = first_key + keys_each * own + i;
    if (key < S) starts[key] = start;
#pragma unroll
    for (int w = 0; w < place_warps; ++w) {
      int& place = counts[w][keys_each * own + i];
      const int count = place;
      place = start;
      start += count;
    }
    if (key == S - 1) starts[S] = start;
  }
  __syncthreads();
  each_entry([&](int entry, int key, int tasks) {
    if (unsigned(key - first_key) >= unsigned(place_keys)) return;
    parts.places[first_entry + entry] = counts[warp][key - first_key];
    counts[warp][key - first_key] += tasks;
  });
}

// ---- their sums

constexpr int sum_warps = 8, keys_of_warp = 8, sum_keys = sum_warps * keys_of_warp;
constexpr int sum_rows = 4;    // loads under way at a time
constexpr int most_rows = 32;  // of a key that a warp sums up by itself

// sum += every `step`th of a batch_head's parts from `begin` on. They are `columns` apart.
template <int width>
__device__ void add_parts(const float* parts, int64_t columns, int begin, int end, int step, float (&sum)[width]) {
#pragma unroll 1
  for (int row = begin; row < end; row += sum_rows * step) {
    Pack<float, width> x[sum_rows] = {};
#pragma unroll
    for (int i = 0; i < sum_rows; ++i) {
      const Pack<float, width>& part = pack<width>(parts + (row + i * step) * columns, 0);
      if (row + i * step < end) x[i] = part;
    }
#pragma unroll
    for (int i = 0; i < sum_rows; ++i)
#pragma unroll
      for (int e = 0; e < width; ++e) sum[e] += x[i].element[e];
  }
}

// width: of the columns that move as one.
template <class T, int width>
__global__ void __launch_bounds__(32 * sum_warps)
    topk_key_gradient(TopKProblem<T> p, Parts parts, HeadView<T> dk, HeadView<T> dv, T* dmass) {
  __shared__ float shares[sum_warps][32 * width];
  __shared__ int starts[sum_keys + 1];
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const unsigned S = unsigned(p.size.S), C = unsigned(p.C), H = unsigned(p.size.H), heads = unsigned(parts.batch_heads);
  const unsigned column_parts = unsigned(ceil_div(p.size.D + p.size.M, 32 * width));
  const unsigned key_blocks = (S + sum_keys - 1) / sum_keys * column_parts;
  if (blockIdx.x >= key_blocks * heads) {  // dm: a warp sums up what a cluster's tasks found
    const unsigned row = (blockIdx.x - key_blocks * heads) * sum_warps + unsigned(warp);
    if (row >= C * heads) return;
    const int64_t batch_head = parts.first_batch_head + row / C;
    const int c = int(row % C), *const offsets = p.offsets(batch_head), tasks = p.tasks_of(offsets[c], offsets[c + 1]);
    const float* const deltas = parts.deltas + batch_head * p.tasks() + p.first_task(offsets, c);
    float sum = 0;
#pragma unroll 1
    for (int task = lane; task < tasks; task += 32) sum += deltas[task];
    sum = warp_reduce(sum, Sum{});
    if (lane == 0) dmass[batch_head * C + c] = T(sum);  // dm_j
    return;
  }
  const unsigned batch_head = unsigned(parts.first_batch_head) + blockIdx.x / key_blocks;
  const int first_key = int(blockIdx.x % key_blocks / column_parts) * sum_keys;
  const int column = int(blockIdx.x % column_parts) * 32 * width + lane * width;
  const int64_t columns = p.size.D + p.size.M;
  const bool has_column = column < columns;
  const float* const rows = parts.row(p, batch_head, 0) + (has_column ? column : 0);
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
    starts[threadIdx.x] = parts.starts[int64_t(batch_head) * (S + 1) + min(first_key + int(threadIdx.x), int(S))];
  __syncthreads();

  const int keys = min(sum_keys, int(S) - first_key);
  int popular = 0;
#pragma unroll 1
  for (int key = warp * keys_of_warp; key < min((warp + 1) * keys_of_warp, keys); ++key) {
    const int begin = starts[key], end = starts[key + 1];
    if (end - begin > most_rows) {
      popular = 1;
      continue;
    }
    float sum[width] = {};
    add_parts(rows, columns, begin, end, 1, sum);
    write(key, sum);
  }
  if (!__syncthreads_or(popular)) return;
#pragma unroll 1
  for (int key = 0; key < keys; ++key) {  // all warps share the rows of a popular key
    if (starts[key + 1] - starts[key] <= most_rows) continue;
    float sum[width] = {};
    add_parts(rows, columns, starts[key] + warp, starts[key + 1], sum_warps, sum);
#pragma unroll
    for (int e = 0; e < width; ++e) shares[warp][lane * width + e] = sum[e];
    __syncthreads();
    if (warp == 0) {
      for (int w = 1; w < sum_warps; ++w)
#pragma unroll
        for (int e = 0; e < width; ++e) sum[e] += shares[w][lane * width + e];
      write(key, sum);
    }
    __syncthreads();  // they are written again
  }
}

// --------------------------------------------------------------------------------------------------- the host's part

// Floats of parts in one round, if a batch_head needs no more.
constexpr int64_t max_parts = int64_t{1} << 24;

// The logarithm of the members of a task. A task has about as many as a cluster, so that a cluster has few parts. It
// has fewer where there would be fewer than 512 tasks. If top has more keys than a block sums up at once, a task is one
// tile; this limit is that of 128 columns, whatever D is. The shape alone decides, and with it the order of sums.
template <class T>
int task_bits(const AttentionSize& size, int64_t C, int64_t k) {
  if (k > TopShape<T, 128>::gradient_keys) return std::countr_zero(unsigned(task_tile));
  const auto tiles = uint64_t(ceil_div(size.N, task_tile)), clusters = std::max(uint64_t(C), uint64_t{1});
  const uint64_t of_cluster = (tiles + clusters - 1) / clusters, most = uint64_t(size.B * size.H) * tiles / 512;
  return std::countr_zero(unsigned(task_tile) *
                          std::min(std::bit_ceil(of_cluster), std::bit_floor(std::max(most, uint64_t{1}))));
}

template <class T, class... More>
TopKProblem<T> problem(const AttentionOperands<T>& in, int64_t C, int64_t k, const GroupView& groups,
                       const int32_t* topk, const T* mass, const More&... more) {
  const AttentionSize& size = in.size;
  constexpr int64_t maximum = 0x7fffff00 / 2;  // positions, tasks, top keys and their parts are ints
  check(size.N < maximum && size.S < maximum && C < maximum && k < maximum && (size.N / task_tile + C) * k < maximum,
        "topk_attention on CUDA: expected fewer than 2^30 queries, keys, clusters and top keys of all clusters, got ",
        size.N, ", ", size.S, ", ", C, " and ", C, " x ", k);
  return {
      attention_problem("topk_attention", in, more...), int(C), int(k), groups, topk, mass, task_bits<T>(size, C, k)};
}

}  // namespace

template <class T>
void topk_attention_forward(Stream stream, const AttentionOperands<T>& in, int64_t C, int64_t k, GroupView groups,
                            const int32_t* topk, const T* mass, HeadView<const T> rest, HeadView<T> out) {
  const AttentionSize& size = in.size;
  if (size.B * size.H * size.N * size.M == 0) return;
  const TopKProblem<T> p = problem(in, C, k, groups, topk, mass, out);
  const int64_t tasks = size.B * size.H * p.tasks();
  if (suits_mma(p, rest, out)) {
    with_mma_shape<T>(size, [&]<int columns>(auto) {
      using Shape = TopShape<T, columns>;
      launch(k <= Shape::keys ? attend_top_mma<T, true, columns> : attend_top_mma<T, false, columns>,
             {tasks, mma_threads, Shape::forward_bytes, stream}, p, rest, out);
    });
    return;
  }
  const int width = size.M <= 64 ? 64 : 128;
  const Launch shape{tasks * TileTask::tile_parts(size.M, width), tile_threads,
                     sizeof(float) * (3 * row_floats + weight_floats), stream};
  if (width == 64)
    launch(attend_top<T, 64>, shape, p, rest, out);
  else
    launch(attend_top<T, 128>, shape, p, rest, out);
}

template <class T>
void topk_attention_backward(Stream stream, const AttentionOperands<T>& in, int64_t C, int64_t k, GroupView groups,
                             const int32_t* topk, const T* mass, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk,
                             HeadView<T> dv, T* dmass, HeadView<T> drest) {
  const AttentionSize& size = in.size;
  const TopKProblem<T> p = problem(in, C, k, groups, topk, mass, dout, dq, dk, dv);
  const int64_t batch_heads = size.B * size.H, columns = size.D + size.M;
  if (batch_heads == 0) return;
  Workspace workspace(Device::cuda);
  Parts parts{};
  parts.rows_each = std::min<int64_t>(size.N, (size.N >> p.task_bits) + C) * k;
  const int64_t round =
      std::clamp<int64_t>(max_parts / std::max<int64_t>(1, parts.rows_each * columns), 1, batch_heads);
  parts.rows = workspace.take<float>(round * parts.rows_each * columns);
  parts.places = workspace.take<int32_t>(batch_heads * C * k);
  parts.starts = workspace.take<int32_t>(batch_heads * (size.S + 1));
  if (dmass) parts.deltas = workspace.take<float>(batch_heads * p.tasks());
  launch(place_parts<T>, {batch_heads * std::max<int64_t>(1, ceil_div(size.S, place_keys)), place_threads, 0, stream},
         p, parts);

  const bool on_mma = suits_mma(p, dout, dq, dk, dv);
  const int64_t widest = std::max(size.D, size.M), width = widest <= 64 ? 64 : 128;
  for (; parts.first_batch_head < batch_heads; parts.first_batch_head += round) {
    parts.batch_heads = std::min(round, batch_heads - parts.first_batch_head);
    const int64_t tasks = parts.batch_heads * p.tasks();
    const Launch shape{tasks * TileTask::tile_parts(widest, int(width)), tile_threads,
                       sizeof(float) * (4 * row_floats + 2 * weight_floats), stream};
    if (size.N > 0 && on_mma)
      with_mma_shape<T>(size, [&]<int columns>(auto) {
        using Shape = TopShape<T, columns>;
        launch(
            k <= Shape::gradient_keys ? member_gradient_mma<T, true, columns> : member_gradient_mma<T, false, columns>,
            {tasks, mma_threads, Shape::backward_bytes, stream}, p, dout, parts, dq);
      });
    else if (size.N > 0 && width == 64)
      launch(member_gradient<T, 64>, shape, p, dout, parts, dq);
    else if (size.N > 0)
      launch(member_gradient<T, 128>, shape, p, dout, parts, dq);
    const auto sum_up = [&]<int pack> {
      const int64_t blocks = parts.batch_heads * ceil_div(size.S, sum_keys) * ceil_div(columns, 32 * pack) +
                             (dmass ? ceil_div(parts.batch_heads * C, sum_warps) : 0);
      if (blocks > 0) launch(topk_key_gradient<T, pack>, {blocks, 32 * sum_warps, 0, stream}, p, parts, dk, dv, dmass);
    };
    if (p.packs)
      sum_up.template operator()<4>();
    else
      sum_up.template operator()<1>();
  }
  // [grad. 11] dB_j: the sum over the cluster
  if (drest) segment_reduce<T>(stream, Segment::sum, {size.B, size.H, size.N, C}, size.M, groups, dout, drest);
}

CAIRN_GPU_TYPES(topk_attention_forward)
CAIRN_GPU_TYPES(topk_attention_backward)

}  // namespace cairn::gpu
