// Queries against the top keys of their cluster, and what their centroid gives them (the first case of the paper's
// equation 10, and equation 11; section 3.3), and the gradient. core/kernels/topk_attention.h has the definition.
//
//   out_i = m_j (z a_i V_T) + rest_j for query i of cluster j, a_i = softmax over T_j of scale q_i . k_l, z dropout
// With g_i the gradient of out_i:
//   da = z (g_i V_T^T);  delta_i = a_i . da;  dm_j = sum_i delta_i;  drest_j = sum_i g_i
//   dS = m_j a_i (da - delta_i);  dq_i = scale dS K_T;  dK_T += scale dS^T q_i;  dV_T += m_j (z a_i)^T g_i
//
// Launch. Clusters differ in size, so the work is cut into tasks of up to 64 members of a cluster. Task t of cluster c
// has the number offsets[c] / 64 + c + t. Some numbers have no task: their blocks return at once. So the host need not
// know the sizes of the clusters: it launches N / 64 + C + 1 blocks. The queries of no cluster are taken for a cluster
// C.
//   attend_top       a block of 128 threads has a task. It gathers the keys and values of 32 top keys, 64 columns at a
//                    time, into shared memory, and takes 32 members at a time, 8 a warp. A T of at most 32 keys is
//                    gathered once. A thread has the scores of 2 members and 4 keys, then 4 members and 4 columns of
//                    the output (8 of them if M > 64). With more than 32 top keys the scores are computed twice: for
//                    the maximum and the sum, and then for the output.
//   member_gradient  the same for dq. dK_T and dV_T of a task go to workspace memory [task, k, D + M] in float.
//   topk_key_gradient
//                    a block has 32 keys and 128 columns of dK and dV. It looks through the clusters, a lane a cluster,
//                    for those that have these among their top keys, and adds up their tasks' parts in order.
//   mass_gradient    a warp sums the deltas of one cluster. segment_reduce computes drest.
// member_gradient and topk_key_gradient process as many (batch, head) pairs at a time as fit into 64 MB of workspace.
// Each key's clusters are found by binary searches, C log k for every 32 keys, and not from lists that would have to be
// sorted first.
//
// Traffic: queries, outputs and their gradients once; a task's k rows of keys and values, from the L2 cache mostly;
// backward twice a task's k (D + M) floats. Floor: everything but those floats once. Bound by arithmetic; with clusters
// of a member or two (oracle-top) by the gathering.
// Registers (sm_75, 80 and 90; nothing spills): attend_top 122 (126 for 128 columns), member_gradient 158 (179),
// topk_key_gradient 32 to 100. Shared memory: 31, 44 and 16 KB.
//
// cost attend_top: e*B*H*(N+C*k)*(D+M) bytes, 2*B*H*N*k*(D+M) FLOPs, 30 KB shared
// size rounds: ceil(B*H/max(1,min(B*H,2**24//((N//64+C+1)*k*(D+M)))))
// cost member_gradient: B*H*(e*N*(2*D+M)+(e*C+4*C+N/16)*k*(D+M))/rounds bytes, 2*B*H*N*k*(3*D+2*M)/rounds FLOPs,
//     43 KB shared
// cost topk_key_gradient: B*H*(4*(N/64+C)*k+e*S)*(D+M)/rounds bytes, B*H*(N/64+C)*k*(D+M)/rounds FLOPs
// cost mass_gradient: 4*B*H*N bytes, B*H*N FLOPs
//
// If clusters have the same size, each has `tasks` tasks, and a task has `portions` portions of up to 32 members. Loops
// of attend_top and member_gradient: find the cluster, find the end of T, and for each portion, step and 32 keys:
// multiply 64 columns (gather members, gather keys, products), dropout, weighted sums (gather rows, add). Loops of
// topk_key_gradient, for 32 clusters at a time: two searches, then the clusters that have one of the block's keys among
// theirs (`hits` in all), their keys, and their tasks by 16 and by 4. (The model counts both sides of its branches: 212
// instructions for a key, of which about 70 run where a cluster has one task.)
// size tasks: ceil(N/C/64)
// size portions: ceil(N/C/tasks/32)
// size hits: C*(1-(1-min(1,32/S))**k)
// trips attend_top<bfloat16, 64>: B*H*C*tasks blocks, without LDG.E.U16,
//     loops 7 6 portions {1 {1 {1 {2 2/portions 16} 0 2/portions 32}}}
// trips attend_top<bfloat16, 128>: B*H*C*tasks blocks, without LDG.E.U16,
//     loops 7 6 portions {1 {1 {2 {2 2 16} 0 2 32 2 32}}}
// trips member_gradient<bfloat16, 64>: B*H*C*tasks/rounds blocks, rounds launches, without LDG.E.U16,
//     loops 7 6 portions {1 {1 {1 {2 2/portions 16} 1 {2 2/portions 16} 0 0 32 0 8 0 8}}}
// trips member_gradient<bfloat16, 128>: B*H*C*tasks/rounds blocks, rounds launches, without LDG.E.U16,
//     loops 7 6 portions {1 {1 {2 {2 2 16} 2 {2 2 16} 0 2 32 2 8 2 8 2 32 2 8 2 8}}}
// trips topk_key_gradient<bfloat16>: B*H*ceil(S/32)*ceil((D+M)/128)/rounds blocks, rounds launches,
//     loops ceil(C/32) {6 6 hits/ceil(C/32) {C*k*32/S/hits {tasks//16 tasks%16//4}}}
// trips mass_gradient<bfloat16>: ceil(B*H*C/4) blocks, loops 1 {N/C/32//16}
#include "core/kernels/topk_attention.h"

#include <algorithm>
#include <cmath>

#include "core/kernels/segment_mean.h"
#include "core/workspace.h"
#include "cuda/attention_problem.cuh"

namespace cairn::gpu {
namespace {

constexpr int members_per_task = 64;
constexpr int portion = 32;       // of members, and of keys, at a time
constexpr int stride = tile + 4;  // of 64 columns of gathered rows
constexpr int row_floats = portion * stride;
constexpr int weight_stride = portion + 4;
constexpr int weight_floats = portion * weight_stride;

template <class T>
struct TopKProblem {
  AttentionSize size;
  int C, k;
  HeadView<const T> q, keys, v;
  GroupView groups;
  const int32_t* topk;
  const T* mass;  // null: 1
  Dropout dropout;
  float scale = 1;     // of the scores
  bool packs = false;  // can all rows be read and written four elements at a time?

  __device__ float scale_2() const { return scale * log2_e; }
  __device__ int D() const { return int(size.D); }
  __device__ int M() const { return int(size.M); }
};

CAIRN_HD int tasks_of_batch_head(int64_t N, int C) { return int(N / members_per_task) + C + 1; }
__device__ int first_task(const int32_t* offsets, int c) { return offsets[c] / members_per_task + c; }

// Members [first, end), as positions in the permutation, of a cluster; of none for cluster C.
struct MemberTask {
  int64_t batch_head;
  int number, cluster, column;  // the task's number within its batch_head
  int first, end;

  // `columns` columns of the result in pieces of `width`; batch_heads are counted from `first_batch_head`.
  template <class T>
  __device__ MemberTask(const TopKProblem<T>& p, int64_t first_batch_head, int64_t columns, int width) {
    const int64_t parts = TileTask::tile_parts(columns, width), tasks = tasks_of_batch_head(p.size.N, p.C);
    column = int(blockIdx.x % parts) * width;
    number = int(blockIdx.x / parts % tasks);
    batch_head = first_batch_head + blockIdx.x / parts / tasks;
    const int32_t* const offsets = p.groups.offsets + batch_head * (p.C + 1);
    int low = 0, high = p.C;  // the last cluster that starts no later
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first_task(offsets, middle) <= number)
        low = middle;
      else
        high = middle - 1;
    }
    cluster = low;
    const int last = cluster < p.C ? offsets[cluster + 1] : int(p.size.N);
    first = offsets[cluster] + (number - first_task(offsets, cluster)) * members_per_task;
    end = min(first + members_per_task, last);
  }
};

// How many of k keys, rising and then -1, there are below `limit`.
__device__ int count_below(const int32_t* topk, int k, uint32_t limit) {
  int low = 0, high = k;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (uint32_t(topk[middle]) < limit)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

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

// ---- what a thread has. A warp has 8 members of the 32. Of the products of members and keys, 2 x 4: keys key_of(j).
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
  const int32_t* permutation;
  const int32_t* topk;
  int top;  // keys in T
  float mass;
  int m0 = 0;  // the first of 32 members
  Gathered queries, keys, values;

  __device__ Members(const TopKProblem<T>& problem, const MemberTask& member_task, float* workspace)
      : p(problem),
        task(member_task),
        batch_head(p.size, Mask{}, task.batch_head),
        dropout(p.dropout, batch_head),
        permutation(p.groups.permutation + task.batch_head * p.size.N),
        queries{workspace},
        keys{workspace + row_floats},
        values{workspace + 2 * row_floats} {
    const int64_t cluster = task.batch_head * p.C + task.cluster;
    const bool some = task.cluster < p.C;
    topk = p.topk + cluster * p.k;
    top = some ? count_below(topk, p.k, 0x80000000u) : 0;
    mass = some && p.mass ? float(p.mass[cluster]) : 1.0f;
  }

  __device__ int rows() const { return min(portion, task.end - m0); }
  __device__ bool warp_works() const { return warp_member() < rows(); }

  __device__ const float* query_rows(int column) {
    return queries.get(p.q, batch_head, permutation, m0, task.end, p.D(), column, p.packs);
  }
  __device__ const float* key_rows(int l0, int column) {
    return keys.get(p.keys, batch_head, topk, l0, top, p.D(), column, p.packs);
  }
  __device__ const float* value_rows(int l0, int column) {
    return values.get(p.v, batch_head, topk, l0, top, p.M(), column, p.packs);
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
        bits |= (dropout.keep(permutation[member], topk[l] & ~3) >> topk[l] % 4 & 1u) << n;
    }
    return bits;
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
__global__ void __launch_bounds__(tile_threads, 4)
    attend_top(TopKProblem<T> p, HeadView<const T> rest, HeadView<T> out) {
  const MemberTask task(p, 0, p.size.M, width);
  if (task.first >= task.end) return;
  float* const workspace = dynamic_shared<float>();
  float* const weights = workspace + 3 * row_floats;
  Members<T> block(p, task, workspace);
  const bool with_rest = rest && task.cluster < p.C;

  for (block.m0 = task.first; block.m0 < task.end; block.m0 += portion) {
    float sum[4][width / 16] = {};
    if (with_rest) {
      const T* const from = rest.at(block.batch_head.batch, task.cluster, block.batch_head.head);
#pragma unroll
      for (int c = 0; c < width / 16; ++c) {
        const int column = task.column + tile_column() + c % 4 + 64 * (c / 4);
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
          // [eq. 10] [eq. 13] The keys in T share the mass by the softmax of the query itself.
          const float factor = block.mass * block.dropout.scale * softmax.inverse(i);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            s[i][j] = keep >> (4 * i + j) & 1 ? exp2_approx(s[i][j] - softmax.shift(i)) * factor : 0.0f;
        }
        __syncwarp();  // all have read the weights that stood there
        store_by_key(weights, s);
        __syncwarp();
#pragma unroll
        for (int part = 0; part < width / 64; ++part) {
          const float* const rows = block.value_rows(l0, task.column + 64 * part);
          // [eq. 11] [eq. 15] [eq. 16] Weights times values, added to the rest.
          if (block.warp_works()) add_keys(weights, rows, block.top - l0, part, sum);
        }
      }
      if (step == 0) softmax.finish();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (row_of() + i >= block.rows()) continue;
      const int query = block.permutation[block.m0 + row_of() + i];
      write_row(sum[i], 1.0f, out.at(block.batch_head.batch, query, block.batch_head.head) + task.column,
                p.M() - task.column, p.packs);
    }
  }
}

// ---------------------------------------------------------------------------------------------------------- backward

// A task's part of dK and dV: rows [k, D + M] of floats for each task of the batch_heads from first_batch_head on.
struct Parts {
  float* data;
  int64_t first_batch_head, batch_heads;

  template <class T>
  __device__ float* row(const TopKProblem<T>& p, int64_t batch_head, int64_t task, int64_t l) const {
    return data +
           (((batch_head - first_batch_head) * tasks_of_batch_head(p.size.N, p.C) + task) * p.k + l) * (p.D() + p.M());
  }
};

// Adds to a task's part, or sets it: the block's 32 top keys from l0 on, 64 columns of `columns`.
template <class T>
__device__ void write_part(const TopKProblem<T>& p, const Parts& parts, const MemberTask& task, int l0, int top,
                           bool add, int column, int columns, const float (&sum)[4][4]) {
  const int l = l0 + row_of(), step = p.D() + p.M();
  float* const to = parts.row(p, task.batch_head, task.number, l) + column + tile_column();
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (l + i < top && tile_column() + e < columns) to[i * step + e] = sum[i][e] + (add ? to[i * step + e] : 0.0f);
}

// deltas [B, H, N], in the order of the permutation.
template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 3 : 2)
    member_gradient(TopKProblem<T> p, HeadView<const T> dout, Parts parts, float* deltas, HeadView<T> dq) {
  const MemberTask task(p, parts.first_batch_head, max(p.size.D, p.size.M), width);
  if (task.first >= task.end) return;
  float* const workspace = dynamic_shared<float>();
  float* const score_gradients = workspace + 4 * row_floats;
  float* const weights = score_gradients + weight_floats;
  Members<T> block(p, task, workspace);
  Gathered gradients{workspace + 3 * row_floats};
  const auto gradient_rows = [&](int column) {
    return gradients.get(dout, block.batch_head, block.permutation, block.m0, task.end, p.M(), column, p.packs);
  };
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
          const float factor = member_of(i) < block.rows() ? block.mass * softmax.inverse(i) : 0.0f;
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float weight = exp2_approx(s[i][j] - softmax.shift(i)) * factor;
            // [grad. 10] dS over T: the softmax's gradient, times the mass
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
        for (int part = 0; part < width / 64; ++part) {
          const int column = task.column + 64 * part;
          if (column < p.D()) {
            const float* const rows = block.key_rows(l0, column);
            if (block.warp_works()) add_keys(score_gradients, rows, block.top - l0, part, sum);
            float of_keys[4][4] = {};
            add_members(score_gradients, block.query_rows(column), members, of_keys);
            write_part(p, parts, task, l0, block.top, later, column, p.D() - column, of_keys);
          }
          if (column < p.M()) {
            float of_values[4][4] = {};
            // [grad. 16] dV over T
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
      const int query = block.permutation[block.m0 + row_of() + i];
      write_row(sum[i], 1.0f, dq.at(block.batch_head.batch, query, block.batch_head.head) + task.column,
                p.D() - task.column, p.packs);
    }
    if (deltas && task.column == 0 && threadIdx.x % 8 == 0)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (member_of(i) < block.rows()) deltas[task.batch_head * p.size.N + block.m0 + member_of(i)] = delta[i];
  }
}

constexpr int key_columns = tile_threads;

template <class T>
__global__ void __launch_bounds__(tile_threads)
    topk_key_gradient(TopKProblem<T> p, Parts parts, HeadView<T> dk, HeadView<T> dv) {
  __shared__ float sum[portion][key_columns];  // a thread has a column
  const int column = int(threadIdx.x), lane = int(threadIdx.x % 32), D = p.D();
  const int64_t column_parts = ceil_div(p.size.D + p.size.M, key_columns), tiles = ceil_div(p.size.S, portion);
  const int c0 = int(blockIdx.x % column_parts) * key_columns + column;
  const int k0 = int(blockIdx.x / column_parts % tiles) * portion;
  const int64_t batch_head = parts.first_batch_head + blockIdx.x / column_parts / tiles, b = batch_head / p.size.H,
                h = batch_head % p.size.H;
  const int32_t* const offsets = p.groups.offsets + batch_head * (p.C + 1);
  const bool counts = c0 < D + p.M();
  for (int l = 0; l < portion; ++l) sum[l][column] = 0;

  for (int base = 0; base < p.C; base += 32) {
    // Each lane looks for these keys in the top keys of one cluster.
    const int own = base + lane;
    int first = 0, end = 0;
    if (own < p.C && offsets[own] < offsets[own + 1]) {
      const int32_t* const topk = p.topk + (batch_head * p.C + own) * p.k;
      first = count_below(topk, p.k, uint32_t(k0));
      end = first + count_below(topk + first, min(portion, p.k - first), uint32_t(k0 + portion));
    }
    for (unsigned left = __ballot_sync(full_warp, first < end); left != 0; left &= left - 1) {
      const int from = __ffs(int(left)) - 1, c = base + from;
      const int l0 = __shfl_sync(full_warp, first, from), l1 = __shfl_sync(full_warp, end, from);
      const int32_t* const topk = p.topk + (batch_head * p.C + c) * p.k;
      const int task = first_task(offsets, c), tasks = int(ceil_div(offsets[c + 1] - offsets[c], members_per_task));
      if (!counts) continue;
      for (int l = l0; l < l1; ++l)
        for (int t = 0; t < tasks; ++t) sum[topk[l] - k0][column] += parts.row(p, batch_head, task + t, l)[c0];
    }
  }
  if (!counts) return;
  for (int l = 0; l < portion && k0 + l < p.size.S; ++l)
    if (c0 < D)
      dk.at(b, k0 + l, h)[c0] = T(sum[l][column]);
    else
      dv.at(b, k0 + l, h)[c0 - D] = T(sum[l][column]);
}

template <class T>
__global__ void __launch_bounds__(32 * rows_per_block) mass_gradient(TopKProblem<T> p, const float* deltas, T* dmass) {
  for (int64_t row = first_row(); row < p.size.B * p.size.H * p.C; row += row_step()) {
    const int64_t batch_head = row / p.C;
    const int32_t* const offsets = p.groups.offsets + batch_head * (p.C + 1) + row % p.C;
    float sum = 0;
    for (int i = offsets[0] + int(threadIdx.x % 32); i < offsets[1]; i += 32) sum += deltas[batch_head * p.size.N + i];
    sum = warp_reduce(sum, Sum{});
    if (threadIdx.x % 32 == 0) dmass[row] = T(sum);  // dm_j
  }
}

// --------------------------------------------------------------------------------------------------- the host's part

constexpr int64_t max_parts =
    int64_t{1} << 24;  // floats of workspace memory in one round, if a batch_head needs no more

template <class T, class... More>
TopKProblem<T> problem(const AttentionSize& size, int64_t C, int64_t k, HeadView<const T> q, HeadView<const T> keys,
                       HeadView<const T> v, const GroupView& groups, const int32_t* topk, const T* mass,
                       const Dropout& dropout, const More&... more) {
  constexpr int64_t maximum = 0x7fffff00 / 2;  // positions and tasks are ints
  check(size.N < maximum && size.S < maximum && C < maximum && k < maximum,
        "topk_attention on CUDA: expected fewer than 2^30 queries, keys and clusters, got ", size.N, ", ", size.S, ", ",
        C);
  const bool packs = size.D % 4 == 0 && size.M % 4 == 0 && aligned(q, 4 * sizeof(T)) && aligned(keys, 4 * sizeof(T)) &&
                     aligned(v, 4 * sizeof(T)) && (aligned(more, 4 * sizeof(T)) && ...);
  return {size, int(C), int(k), q, keys, v, groups, topk, mass, dropout, float(size.scale), packs};
}

}  // namespace

template <class T>
void topk_attention_forward(Stream stream, AttentionSize size, int64_t C, int64_t k, HeadView<const T> q,
                            HeadView<const T> keys, HeadView<const T> v, GroupView groups, const int32_t* topk,
                            const T* mass, HeadView<const T> rest, Dropout dropout, HeadView<T> out) {
  if (size.B * size.H * size.N * size.M == 0) return;
  const TopKProblem<T> p = problem(size, C, k, q, keys, v, groups, topk, mass, dropout, out);
  const int width = size.M <= 64 ? 64 : 128;
  const int64_t blocks = size.B * size.H * tasks_of_batch_head(size.N, p.C) * TileTask::tile_parts(size.M, width);
  const Launch shape{blocks, tile_threads, sizeof(float) * (3 * row_floats + weight_floats), stream};
  if (width == 64)
    launch(attend_top<T, 64>, shape, p, rest, out);
  else
    launch(attend_top<T, 128>, shape, p, rest, out);
}

template <class T>
void topk_attention_backward(Stream stream, AttentionSize size, int64_t C, int64_t k, HeadView<const T> q,
                             HeadView<const T> keys, HeadView<const T> v, GroupView groups, const int32_t* topk,
                             const T* mass, Dropout dropout, HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk,
                             HeadView<T> dv, T* dmass, HeadView<T> drest) {
  const TopKProblem<T> p = problem(size, C, k, q, keys, v, groups, topk, mass, dropout, dout, dq);
  const int64_t batch_heads = size.B * size.H, columns = size.D + size.M, tasks = tasks_of_batch_head(size.N, p.C);
  if (batch_heads == 0) return;
  Workspace workspace(Device::cuda);
  float* const deltas = dmass ? workspace.take<float>(batch_heads * size.N) : nullptr;

  const int64_t round = std::clamp<int64_t>(max_parts / std::max<int64_t>(1, tasks * k * columns), 1, batch_heads);
  Parts parts{workspace.take<float>(round * tasks * k * columns), 0, 0};
  const int64_t widest = std::max(size.D, size.M), width = widest <= 64 ? 64 : 128;
  for (; parts.first_batch_head < batch_heads; parts.first_batch_head += round) {
    parts.batch_heads = std::min(round, batch_heads - parts.first_batch_head);
    const int64_t blocks = parts.batch_heads * tasks * TileTask::tile_parts(widest, int(width));
    const Launch shape{blocks, tile_threads, sizeof(float) * (4 * row_floats + 2 * weight_floats), stream};
    if (size.N > 0 && width == 64) launch(member_gradient<T, 64>, shape, p, dout, parts, deltas, dq);
    if (size.N > 0 && width == 128) launch(member_gradient<T, 128>, shape, p, dout, parts, deltas, dq);
    const int64_t key_blocks = parts.batch_heads * ceil_div(size.S, portion) * ceil_div(columns, key_columns);
    if (key_blocks > 0) launch(topk_key_gradient<T>, {key_blocks, tile_threads, 0, stream}, p, parts, dk, dv);
  }
  if (dmass && C > 0)
    launch(mass_gradient<T>, {gpu::blocks(ceil_div(batch_heads * C, rows_per_block)), 32 * rows_per_block, 0, stream},
           p, deltas, dmass);
  // [grad. 11] dB_j: the sum over the cluster
  if (drest) segment_reduce<T>(stream, Segment::sum, {size.B, size.H, size.N, C}, size.M, groups, dout, drest);
}

#define INSTANTIATE(T)                                                                                                 \
  template void topk_attention_forward(Stream, AttentionSize, int64_t, int64_t, HeadView<const T>, HeadView<const T>,  \
                                       HeadView<const T>, GroupView, const int32_t*, const T*, HeadView<const T>,      \
                                       Dropout, HeadView<T>);                                                          \
  template void topk_attention_backward(Stream, AttentionSize, int64_t, int64_t, HeadView<const T>, HeadView<const T>, \
                                        HeadView<const T>, GroupView, const int32_t*, const T*, Dropout,               \
                                        HeadView<const T>, HeadView<T>, HeadView<T>, HeadView<T>, T*, HeadView<T>);
INSTANTIATE(float)
INSTANTIATE(bfloat16)

}  // namespace cairn::gpu
