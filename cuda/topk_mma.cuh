#pragma once
// The kernels of cuda/topk_attention.cu on tensor cores. A block gathers 64 members and 32 top keys at a time (backward
// 16 where rows have 512 bytes). Each of its four warps has a warp tile, 16 of these members. Scores become weights in
// registers. Only for sums over members, whose rows are keys, do weights go through shared memory.
#include <cmath>

#include "cuda/attention_mma.cuh"
#include "cuda/topk_problem.cuh"

namespace cairn::gpu {

// Top keys in a tile, and bytes of dynamic shared memory.
template <class T, int columns>
struct TopShape {
  static constexpr int row_bytes = columns * int(sizeof(T));
  static constexpr int keys = 32, forward_bytes = row_bytes * (task_tile + 2 * keys + 1);
  static constexpr int gradient_keys = row_bytes <= 256 ? 32 : 16;
  static constexpr int backward_bytes =
      2 * row_bytes * (task_tile + gradient_keys) + 2 * task_tile * gradient_keys * int(sizeof(T));
  // Blocks of a multiprocessor, as many as have enough registers. once: the top keys fit into one tile of keys.
  static constexpr int forward_blocks(bool once) { return row_bytes < 256 ? 4 : once && sizeof(T) == 2 ? 3 : 2; }
  static constexpr int backward_blocks(bool once) {
    if (!once) return row_bytes > 128 || sizeof(T) == 4 ? 2 : 3;
    return row_bytes > 128 ? 2 : columns > 32 ? 4 : 3;
  }
};
// A multiprocessor with 100 KB, of which each block takes 1 KB, holds three blocks with their lists of members.
static_assert(3 * (TopShape<bfloat16, 64>::backward_bytes + task_tile * 4 + 1024) <= 100 * 1024);

// The tiles of a block's task: 64 members and `keys` top keys at a time.
template <class T, int columns, int keys>
struct GatheredTiles {
  using Tile = MmaTile<T, columns>;
  const TopKProblem<T>& p;
  const MemberTask& task;
  int32_t *members, *list;  // shared: indices of the gathered members, and this warp's list of the keys; -1: none
  BatchHead batch_head;
  TileDropout dropout;
  Tile q, k, v, g;  // g: gradients of the output, in the backward pass

  __device__ GatheredTiles(const TopKProblem<T>& problem, const MemberTask& member_task, int32_t* of_members,
                           int32_t* of_warp)
      : p(problem),
        task(member_task),
        members(of_members),
        list(of_warp),
        batch_head(p.size, Mask{}, task.batch_head),
        dropout(p.dropout, batch_head),
        q{dynamic_shared<T>()},
        k(q.row(task_tile)),
        v(k.row(keys)),
        g(v.row(keys)) {}

  // Gathers the members from m0 on and the top keys from l0 on. If all top keys fit into one tile, they are gathered
  // once for the task. On return all warps see the new rows, and no warp reads the old ones.
  __device__ void gather(int m0, int l0, const HeadView<const T>& dout) const {
    const bool new_members = l0 == 0, new_keys = l0 > 0 || task.k > keys || m0 == task.first;
    const int i = int(threadIdx.x), l = mma_lane();
    __syncthreads();
    if (i < task_tile) members[i] = m0 + i < task.end ? task.permutation[m0 + i] : -1;
    list[l] = l < keys ? task.key(p, l0 + l) : -1;
    __syncthreads();
    const auto copy = [&]<int rows>(const Tile& to, const HeadView<const T>& x, const int32_t* index, int width) {
      const int batch = optimization_barrier(int(batch_head.batch)), head = optimization_barrier(int(batch_head.head));
      to.template copy<rows>(x.batch_head(batch, head), x.row_stride, index, width);
    };
    if (new_members) copy.template operator()<task_tile>(q, p.q, members, p.D());
    if (new_members && dout) copy.template operator()<task_tile>(g, dout, members, p.M());
    if (new_keys) copy.template operator()<keys>(k, p.k, list, p.D());
    if (new_keys) copy.template operator()<keys>(v, p.v, list, p.M());
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
  }
  // Bit l: key l exists.
  __device__ unsigned keys_there() const { return __ballot_sync(full_warp, list[mma_lane()] >= 0); }
  __device__ static int warp_row() { return int(threadIdx.x / 32) * 16; }  // this warp's first member

  // Bit 4 n + e: dropout keeps the weight of element e of sums n.
  __device__ unsigned kept() const {
    if (!dropout.active) return ~0u;
    return score_bits<keys / 8>([&](int n) {
      unsigned bits = 0;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = members[warp_row() + mma_g() + 8 * (e / 2)], l = list[8 * n + 2 * mma_t() + e % 2];
        bits |= (dropout.keep(query, l & ~3) >> (l & 3) & 1) << e;
      }
      return bits;
    });
  }
  // Products of this warp's members with the gathered rows of the other side.
  __device__ static void products(const Tile& members, const Tile& others, float (&s)[keys / 8][4]) {
    mma_row_products(members.row(warp_row()), others, one_strip(s));
  }
  // Scores times log2 e; minus infinity for keys that do not exist.
  __device__ void scores(float (&s)[keys / 8][4], unsigned there) const {
    products(q, k, s);
    each_sum(s, [&](float& x, int bit) { x = has_key(bit, there) ? x * p.scale_2() : -INFINITY; });
  }
  __device__ static bool has_key(int bit, unsigned there) {
    return there >> 2 * mma_t() >> (bit / 4 * 8 + bit % 2) & 1;
  }
};

// once: the top keys fit into one tile of keys.
template <class T, bool once, int columns>
__global__ void __launch_bounds__(mma_threads, TopShape<T, columns>::forward_blocks(once))
    attend_top_mma(TopKProblem<T> p, HeadView<const T> rest, HeadView<T> out, float* logsumexp) {
  wait_for_earlier_launches();
  constexpr int keys = TopShape<T, columns>::keys;
  __shared__ int32_t members[task_tile], lists[mma_warps][32];
  const MemberTask task(p, 0, blockIdx.x);
  if (task.first >= task.end) return;
  const GatheredTiles<T, columns, keys> block(p, task, members, lists[threadIdx.x / 32]);
  T* const rest_row = block.g.data;
  const int end_of_keys = once ? keys : task.k;
  if (const int c = int(threadIdx.x) * block.q.in_chunk; c < columns) {
    const bool there = rest && task.cluster < p.C && c < p.M();
    copy_async<16>(rest_row + c, there ? block.batch_head.row(rest, task.cluster) + c : p.q.data, there);
  }

  for (int m0 = task.first; m0 < task.end; m0 += task_tile) {
    const float mass = task.mass(p);
    WarpTileSoftmax softmax;
    float sums[columns / 8][4] = {};
    for (int l0 = 0; l0 == 0 || l0 < end_of_keys; l0 += keys) {
      block.gather(m0, l0, {});
      const unsigned there = block.keys_there();
      if (there == 0 || m0 + block.warp_row() >= task.end) continue;
      float s[keys / 8][4], correction[2];
      block.scores(s, there);
      raise(softmax, s, 1, correction);
      if (l0 > 0) each_sum(sums, [&](float& sum, int bit) { sum *= correction[bit / 2 % 2]; });
      // [eq. 10] The query's own softmax over the top keys; the mass is multiplied below.
      each_sum(s, [&](float& x, int bit) { x = softmax.weight(bit / 2 % 2, x); });
      if (block.dropout.active) {
        const unsigned keep = block.kept();
        each_sum(s, [&](float& weight, int bit) { weight = keep >> bit & 1 ? weight : 0.0f; });
      }
      // [eq. 11] [eq. 15] [eq. 16] Weights times values; the rest is added below.
      mma_weighted_rows(one_strip(s), block.v, one_strip(sums));
    }
    softmax.finish();
    const float mass_scale = mass * block.dropout.scale;
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) factor[half] = softmax.sum[half] == 0 ? 0.0f : mass_scale / softmax.sum[half];
#pragma unroll
    for (int n = 0; n < columns / 8; ++n) {
      const Pack<T, 2> two = pack<2>(rest_row, 4 * n + mma_t());
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][e] = fmaf(sums[n][e], factor[e / 2], float(two.element[e % 2]));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (const int query = members[block.warp_row() + mma_g() + 8 * half]; query >= 0) {
        write_sums(sums, half, 1.0f, block.batch_head.row(out, query), p.M());
        if (logsumexp && mma_t() == 0) logsumexp[task.batch_head * p.size.N + query] = softmax.logsumexp(half);
      }
  }
}

// once: the top keys fit into one tile of keys. Otherwise step 0 computes the softmax and delta, step 1 the gradients,
// and the task is one tile of members (task_bits).
template <class T, bool once, int columns>
__global__ void __launch_bounds__(mma_threads, TopShape<T, columns>::backward_blocks(once))
    member_gradient_mma(TopKProblem<T> p, HeadView<const T> dout, Parts parts, HeadView<T> dq) {
  constexpr int keys = TopShape<T, columns>::gradient_keys;
  // A warp sums up 16 keys of dK_top or dV_top: all columns, or half of them if a tile has only 16 keys.
  constexpr int key_tiles = keys / 16, width = columns * key_tiles / 2;
  const int warp = int(threadIdx.x / 32), key_row = warp % key_tiles * 16;
  const int first_column = warp / key_tiles % (2 / key_tiles) * width;
  const bool of_values = warp >= 2;
  __shared__ int32_t members[task_tile];
  const MemberTask task(p, parts.first_batch_head, blockIdx.x);
  parts.write_keys(p, task);
  if (task.first >= task.end) return;
  // A warp's list of keys lies where its rows of score_gradients are stored later.
  const MmaTile<T, keys> score_gradients{dynamic_shared<T>() + 2 * (task_tile + keys) * columns};
  const MmaTile<T, keys> weights = score_gradients.row(task_tile);
  const GatheredTiles<T, columns, keys> block(p, task, members,
                                              reinterpret_cast<int32_t*>(score_gradients.row(warp * 16).data));
  const int end_of_keys = once ? keys : task.k;
  float key_sums[width / 8][4] = {}, mass_gradient = 0, mass = 0;

  for (int m0 = task.first; m0 == task.first || (once && m0 < task.end); m0 += task_tile) {
    const int first =
        optimization_barrier(m0) + block.warp_row();  // this warp's; without the barrier, registers are spilled
    WarpTileSoftmax softmax;
    float sums[columns / 8][4] = {}, delta[2] = {};
    const auto finish = [&] {
      softmax.finish();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        delta[half] += __shfl_xor_sync(full_warp, delta[half], 1);
        delta[half] += __shfl_xor_sync(full_warp, delta[half], 2);
        delta[half] *= softmax.inverse(half);
        if (mma_t() == 0 && first + mma_g() + 8 * half < task.end) mass_gradient += delta[half];
      }
    };
#pragma unroll 1
    for (int step = once ? 1 : 0; step < 2; ++step) {
      for (int l0 = 0; l0 == 0 || l0 < end_of_keys; l0 += keys) {
        block.gather(m0, l0, dout);
        const unsigned keys_there = block.keys_there();
        if (keys_there == 0) continue;
        if (first < task.end) {
          float s[keys / 8][4], ds[keys / 8][4];
          block.scores(s, keys_there);
          block.products(block.g, block.v, ds);
          const unsigned keep = block.kept();
          each_sum(ds, [&](float& x, int bit) { x = keep >> bit & 1 ? x * block.dropout.scale : 0.0f; });
          if (once || step == 0) {
            float correction[2];
            raise(softmax, s, 1, correction);
            delta[0] *= correction[0], delta[1] *= correction[1];
#pragma unroll
            for (int n = 0; n < keys / 8; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) {  // [grad. 9] delta: what a member adds to dm
                const float weight = softmax.weight(e / 2, s[n][e]);
                delta[e / 2] = fmaf(weight, ds[n][e], delta[e / 2]);
                if (once) s[n][e] = weight;
              }
          }
          if (once) finish();
          if (step == 1) {
            const float inverse[2] = {softmax.inverse(0), softmax.inverse(1)};
#pragma unroll
            for (int n = 0; n < keys / 8; ++n)
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float weight = (once ? s[n][e] : exp2_approx(s[n][e] - softmax.shift(e / 2))) * inverse[e / 2];
                const bool there = first + mma_g() + 8 * (e / 2) < task.end && block.has_key(4 * n + e, keys_there);
                // [grad. 10] dS over the top keys: the softmax's gradient; the mass and the scale come at the end
                ds[n][e] = there ? weight * (ds[n][e] - delta[e / 2]) : 0.0f;
                s[n][e] = keep >> (4 * n + e) & 1 ? weight * block.dropout.scale : 0.0f;
              }
            if (!once)
              __syncwarp();  // all lanes have read the list of keys; if once, they have met to join the softmax
            weights.row(block.warp_row()).store_sums(s);
            score_gradients.row(block.warp_row()).store_sums(ds);
            mma_weighted_rows(one_strip(ds), block.k, one_strip(sums));
          }
        }
        if (step == 0) continue;
        __syncthreads();
        mass = task.mass(p);  // loaded late, to save registers
        const MmaTile<T, keys> by_key{of_values ? weights.data : score_gradients.data};
        const MmaTile<T, columns> rows{of_values ? block.g.data : block.q.data};
        const int height = min(task.end - m0 + 15, task_tile) / 16 * 16;  // whole warp tiles
#pragma unroll 1
        for (int m = 0; m < height / mma_depth<T>; ++m) {
          uint32_t a[1][4];
          by_key.load_a_transposed(key_row, m, a[0]);
          // [grad. 16] dK and dV over the top keys
          mma_add_rows(a, rows, m, first_column / 8, one_strip(key_sums));
        }
        if (once && m0 + task_tile < task.end) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int l = key_row + mma_g() + 8 * half;
          if (!(keys_there >> l & 1)) continue;
          float* const to = parts.rows + (parts.first(p, task) + l0 + l) * (p.size.D + p.size.M) + first_column;
          const int columns_there = of_values ? p.M() : p.D();
          write_sums(key_sums, half, mass * (of_values ? 1 : p.scale), of_values ? to + p.D() : to,
                     columns_there - first_column);
        }
        if (!once) each_sum(key_sums, [](float& sum, int) { sum = 0; });
      }
      if (step == 0 && first < task.end) finish();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = members[block.warp_row() + mma_g() + 8 * half];
      if (query >= 0) write_sums(sums, half, p.scale * mass, block.batch_head.row(dq, query), p.D());
    }
  }
  // No warp reads values after the last barrier.
  mass_gradient = block_reduce(mass_gradient, 0.0f, Sum{}, reinterpret_cast<float*>(block.v.data));
  if (threadIdx.x == 0) parts.deltas[int64_t(task.batch_head) * p.tasks() + task.number] = mass_gradient;
}

}  // namespace cairn::gpu
