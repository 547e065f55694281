#pragma once
// The kernels of cuda/attention.cu on tensor cores (Dao 2023). A warp keeps its sums and its weights in registers: the
// weights become the A fragments of the second product.
//
// A warp tile is 16 rows of a tile that one warp multiplies: a strip. warp_row is the warp's first row in the tile.
//
// With the flag `plain` a kernel is for problems where every query sees every key, all tiles are whole, and nothing is
// dropped (with_form). It does the same arithmetic without these tests. So the loop is one basic block, apart from the
// next copy, and the compiler may put products of one strip beside the softmax of the other. Instructions of a warp for
// two strips and a tile: forward 849, plain 678; dq 610, plain 369; dk and dv 645, plain 441.
#include <algorithm>
#include <cmath>

#include "core/workspace.h"
#include "cuda/attention_simt.cuh"
#include "cuda/attention_splits.cuh"
#include "cuda/mma_tiles.cuh"

namespace cairn::gpu {

// Tile sizes. They fit into shared memory (`launch` asserts that) and into registers (cuda/sass.tsv): with 128 columns,
// the gradient of the keys would spill some if it took 32 queries at a time. A warp has one or two strips of 16 rows.
// With two, it loads each fragment of the other side half as often.
template <class T, int columns, int strips, class Top = NoTop>
struct MmaShape {
  static constexpr int row_bytes = columns * int(sizeof(T));
  // own: rows of the block. The others: rows of a tile of the other side, forward and backward, of which shared memory
  // holds two. The gradient of the keys has twice the sums.
  static constexpr int own_warp = 16 * strips, own = own_warp * mma_warps;
  static constexpr int keys = columns <= 64 ? 64 : 32;
  static constexpr int forward_bytes = row_bytes * (own + 4 * keys);
  static constexpr int other_keys = strips == 2 ? 32 : row_bytes <= 128 ? 64 : row_bytes <= 256 ? 32 : 16;
  static constexpr int other_queries = strips == 2 ? 32 : row_bytes <= 64 ? 64 : columns <= 64 ? 32 : 16;
  static constexpr int query_gradient_bytes =
      row_bytes * (2 * own + 4 * other_keys) + own * int(sizeof(typename Top::State));
  static constexpr int key_gradient_bytes =
      row_bytes * (2 * own + 4 * other_queries) +
      2 * other_queries * (int(sizeof(typename Top::State)) + (Top::some ? 8 : 0));
  // Blocks of a multiprocessor, as many as have enough registers; 0: the compiler chooses.
  static constexpr int forward_blocks = sizeof(T) == 2 && strips == 1 ? 3 : 2;
  static constexpr int query_gradient_blocks = sizeof(T) == 2 ? 3 : 2;
  static constexpr int key_gradient_blocks = strips == 2 ? 2 : 0;
};

// ---- visibility and dropout of a warp tile: bit 4 n + e is for element e of sums n. The tile's rows are queries, or
// with key_rows keys; its first query and key are `query` and `key`.

template <int tiles, bool key_rows>
__device__ unsigned mma_visible(const BatchHead& batch_head, int query, int key) {
  return score_bits<tiles>([&](int n) {
    unsigned bits = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = mma_g() + 8 * (e / 2), column = 8 * n + 2 * mma_t() + e % 2;
      bits |= unsigned(batch_head.visible(query + (key_rows ? column : row), key + (key_rows ? row : column))) << e;
    }
    return bits;
  });
}

// One draw decides four neighboring keys of a query. Two lanes hold these scores, for the same two rows. The even lane
// draws for the first row, the odd lane for the second. Then they exchange bits.
template <int tiles>
__device__ unsigned mma_keep_query_rows(const TileDropout& dropout, int query, int key) {
  const TileDropout here = dropout.behind_barrier();
  const int odd = mma_t() % 2;
  const unsigned mine =
      score_bits<tiles>([&](int n) { return here.keep(query + mma_g() + 8 * odd, key + 8 * n + mma_t() / 2 * 4); });
  const unsigned theirs = __shfl_xor_sync(full_warp, mine, 1);
  const unsigned first = odd ? theirs : mine, second = odd ? mine : theirs;
  return (first >> 2 * odd & 0x33333333u) | (second >> 2 * odd & 0x33333333u) << 2;
}
// Where rows are keys, four lanes hold the four keys of a draw, and each of them needs one bit of four draws. Lane e of
// the four draws for element e.
template <int tiles>
__device__ unsigned mma_keep_key_rows(const TileDropout& dropout, int query, int key) {
  const TileDropout here = dropout.behind_barrier();
  const int me = mma_g() % 4;
  const unsigned mine = score_bits<tiles>(
      [&](int n) { return here.keep(query + 8 * n + 2 * mma_t() + me % 2, key + mma_g() / 4 * 4 + 8 * (me / 2)); });
  unsigned bits = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e)
    bits |= (__shfl_sync(full_warp, mine, mma_lane() % 4 + mma_lane() / 16 * 16 + 4 * e) >> me & 0x11111111u) << e;
  return bits;
}

// Calls f(sum, bit) for the elements of a warp tile.
template <int tiles, class F>
__device__ void each_sum(float (&sums)[tiles][4], F f) {
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) f(sums[n][e], 4 * n + e);
}

// Makes the scores of a warp tile, 16 queries from `query` on, minus infinity where masked.
template <int tiles>
__device__ void mask_scores(const BatchHead& batch_head, int query, int k0, float (&s)[tiles][4]) {
  if (!batch_head.masks_rows(query, query + 16, k0, k0 + 8 * tiles)) return;
  const unsigned visible = mma_visible<tiles, false>(batch_head, query, k0);
  each_sum(s, [&](float& score, int bit) { score = visible >> bit & 1 ? score : -INFINITY; });
}

// The scores of a warp tile, before the scale; minus infinity where masked.
template <int tiles, class T, int columns>
__device__ void warp_tile_scores(const BatchHead& batch_head, const MmaTile<T, columns>& queries, int query, int k0,
                                 const MmaTile<T, columns>& k, float (&s)[tiles][4]) {
  mma_row_products(queries, k, one_strip(s));
  mask_scores(batch_head, query, k0, s);
}

using WarpTileSoftmax = RunningSoftmax<2, 4>;

// Raises the running maxima of a warp tile to its new scores, times `scale`. The caller multiplies the sums of the two
// rows of this lane by `correction`.
template <int tiles>
__device__ void raise(WarpTileSoftmax& softmax, float (&s)[tiles][4], float scale, float (&correction)[2]) {
  float largest[2] = {-INFINITY, -INFINITY};
  each_sum(s, [&](float score, int bit) { largest[bit / 2 % 2] = fmaxf(largest[bit / 2 % 2], score); });
#pragma unroll
  for (int half = 0; half < 2; ++half) correction[half] = softmax.raise(half, largest[half] * scale);
}

// ---- tiles of keys

// The (batch element, head) of a block. A plain problem has no mask.
template <bool plain, class T>
__device__ BatchHead head_of(const AttentionProblem<T>& p, const TileTask& task) {
  return plain ? BatchHead(p.size, Mask{}, task.batch_head) : BatchHead(p.size, p.mask, task.batch_head);
}

// The tiles of keys and values of a split (first_key to end_key). Shared memory holds two of each: one is multiplied
// while the next is copied.
template <class T, int columns, int keys, bool plain = false>
struct KeyTiles {
  using Tile = MmaTile<T, columns>;
  const AttentionProblem<T>& p;
  const BatchHead& batch_head;
  Tile k, v;
  bool with_values = true;

  __device__ void copy(int k0, int place) const {
    const int rows = plain ? keys : batch_head.keys - k0;
    const int D = plain ? columns : p.D(), M = plain ? columns : p.M();
    k.row(place).template copy<keys>(batch_head.row(p.k, k0), p.k.row_stride, rows, D);
    if (with_values) v.row(place).template copy<keys>(batch_head.row(p.v, k0), p.v.row_stride, rows, M);
    commit_copies();
  }
  // Calls f(k0, k, v) for the tile at `begin`, whose copy has been started, and for those after it. next_tile(from)
  // returns where the first tile at or after `from` begins.
  template <class Next, class F>
  __device__ void each(int begin, int end, Next next_tile, F f) const {
    for (int k0 = begin, next, place = 0; k0 < end; k0 = next, place ^= keys) {
      const Tile k_now = k.row(place), v_now = v.row(place);
      next = next_tile(k0 + keys);
      wait_for_copies<0>();
      __syncthreads();  // all see this tile, and no thread reads the other one any more
      if (next < end) copy(next, place ^ keys);
      f(k0, k_now, v_now);
    }
  }
};

// ---- forward

// Writes the output of a tile. If there are splits, it writes the unnormalized sums of its split, with their maximum
// and sum of exponentials.
template <class T, int columns, int strips, bool plain>
__global__ void __launch_bounds__(mma_threads, MmaShape<T, columns, strips>::forward_blocks)
    attend_mma(AttentionProblem<T> p, Splits splits, HeadView<T> out, float* logsumexp) {
  using Shape = MmaShape<T, columns, strips>;
  using Tile = MmaTile<T, columns>;
  constexpr int keys = Shape::keys;
  const Tile own{dynamic_shared<T>()}, all_k = own.row(Shape::own);
  const TileTask task(p.size.N, Shape::own, 0, 1, splits.count);
  const BatchHead batch_head = head_of<plain>(p, task);
  const TileDropout dropout(plain ? Dropout{} : p.dropout, batch_head);
  const KeyTiles<T, columns, keys, plain> tiles{p, batch_head, all_k, all_k.row(2 * keys)};
  const int begin = batch_head.next_key(task.row, Shape::own, task.first_key(p.size.S));
  const int end = min(batch_head.keys, task.end_key(p.size.S));
  const int warp_row = int(threadIdx.x / 32) * Shape::own_warp, query0 = task.row + warp_row;  // this warp's
  WarpTileSoftmax softmax[strips];
  float sums[strips][columns / 8][4] = {};

  if (begin < end) {
    own.template copy<Shape::own>(batch_head.row(p.q, task.row), p.q.row_stride, batch_head.queries - task.row, p.D());
    commit_copies();
    tiles.copy(begin, 0);

    const auto next_tile = [&](int from) {
      return plain ? from : batch_head.next_key(optimization_barrier(task.row), Shape::own, from);
    };
    tiles.each(begin, end, next_tile, [&](int k0, const Tile& k, const Tile& v) {
      if (!plain && batch_head.next_key(optimization_barrier(query0), Shape::own_warp, k0) >= min(k0 + keys, end))
        return;
      float s[strips][keys / 8][4];
      mma_row_products(own.row(warp_row), k, s);
#pragma unroll
      for (int i = 0; i < strips; ++i) {
        const int row = optimization_barrier(query0) + 16 * i;  // otherwise registers are spilled
        if (!plain) mask_scores(batch_head, row, k0, s[i]);
        // The scale is positive: it is applied to the maximum, and to the scores within the exponent.
        float correction[2];
        raise(softmax[i], s[i], p.scale_2(), correction);
        each_sum(sums[i], [&](float& sum, int bit) { sum *= correction[bit / 2 % 2]; });
        // [eq. 1] [eq. 4]
        const auto weigh = [&](float& x, int bit) { x = softmax[i].weight(bit / 2 % 2, x, p.scale_2()); };
        if (dropout.active) {
          const unsigned keep = mma_keep_query_rows<keys / 8>(dropout, row, k0);
          each_sum(s[i], [&](float& x, int bit) {
            weigh(x, bit);
            x = keep >> bit & 1 ? x : 0.0f;
          });
        } else {
          each_sum(s[i], weigh);
        }
      }
      // [eq. 2] [eq. 5]
      mma_weighted_rows(s, v, sums);
    });
  }
#pragma unroll
  for (int i = 0; i < strips; ++i) {
    softmax[i].finish();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query0 + 16 * i + mma_g() + 8 * half;
      if (query >= p.N()) continue;
      const int64_t place = batch_head.index * p.size.N + query;
      if (splits.partial) {
        const int64_t part = task.split * p.size.B * p.size.H * p.size.N + place;
        write_sums(sums[i], half, query < batch_head.queries ? 1.0f : 0.0f, splits.partial + part * p.size.M, p.M());
        if (mma_t() == 0) splits.softmax[part] = {softmax[i].running_max[half], softmax[i].sum[half]};
        continue;
      }
      write_sums(sums[i], half, softmax[i].inverse(half) * dropout.scale, batch_head.row(out, query), p.M());
      if (mma_t() == 0) logsumexp[place] = softmax[i].logsumexp(half);
    }
  }
}

// ---- backward

// Turns s = q . k and g = dout . v of a warp tile into z A and dS / scale. state(n, e) is the state of the score's
// query; in_top(n, e) says whether its key is a top key (cuda/centroid_topk.cu); visible() and keep() return bits.
template <class Top, int tiles, class State, class InTop, class Visible, class Kept>
__device__ void warp_tile_gradient(float (&s)[tiles][4], float (&g)[tiles][4], float scale_2, State state, InTop in_top,
                                   bool masks, Visible visible, const TileDropout& dropout, Kept keep) {
  const unsigned kept_bits = dropout.active ? keep() : ~0u;
  const auto drop = [&](float& x, int bit) { x *= kept_bits >> bit & 1 ? dropout.scale : 0.0f; };
  if (dropout.active) each_sum(g, drop);
#pragma unroll
  for (int n = 0; n < tiles; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const typename Top::State query = state(n, e);
      s[n][e] = exp2_approx(s[n][e] * scale_2 - query.lse2);
      // [grad. 1] [grad. 4] dS
      g[n][e] = s[n][e] * (query.weight_gradient(g[n][e], in_top(n, e)) - query.delta);
      if (in_top(n, e)) s[n][e] = 0;  // [grad. 17] dV has the other keys alone
    }
  if (dropout.active) each_sum(s, drop);
  if (masks) {
    const unsigned visible_bits = visible();
    const auto hide = [&](float& x, int bit) { x = visible_bits >> bit & 1 ? x : 0.0f; };
    each_sum(s, hide);
    each_sum(g, hide);
  }
}

template <class T, int columns, int strips, bool plain, class Top>
__global__ void __launch_bounds__(mma_threads, MmaShape<T, columns, strips, Top>::query_gradient_blocks)
    query_gradient_mma(AttentionProblem<T> p, Splits splits, HeadView<const T> dout, const typename Top::State* states,
                       Top top, HeadView<T> dq) {
  using Shape = MmaShape<T, columns, strips, Top>;
  using Tile = MmaTile<T, columns>;
  using State = typename Top::State;
  constexpr int keys = Shape::other_keys;
  const Tile q{dynamic_shared<T>()}, g = q.row(Shape::own), all_k = g.row(Shape::own);
  State* const own_states = reinterpret_cast<State*>(all_k.row(4 * keys).data);
  const TileTask task(p.size.N, Shape::own, 0, 1, splits.count);
  const BatchHead batch_head = head_of<plain>(p, task);
  const TileDropout dropout(plain ? Dropout{} : p.dropout, batch_head);
  const KeyTiles<T, columns, keys, plain> tiles{p, batch_head, all_k, all_k.row(2 * keys)};
  // The bits of the top keys are read as 64-bit words. So with top keys, tiles begin at multiples of `keys`, and none
  // is skipped.
  const auto next_tile = [&](int from) {
    return Top::some || plain ? from : batch_head.next_key(optimization_barrier(task.row), Shape::own, from);
  };
  const int begin = next_tile(task.first_key(p.size.S));
  const int end = min(batch_head.end_of_keys(task.row + Shape::own), task.end_key(p.size.S));
  const int warp_row = int(threadIdx.x / 32) * Shape::own_warp, query0 = task.row + warp_row;  // this warp's
  float sums[strips][columns / 8][4] = {};

  if (begin < end && task.row < batch_head.queries) {
    const int rows = batch_head.queries - task.row;
    q.template copy<Shape::own>(batch_head.row(p.q, task.row), p.q.row_stride, rows, p.D());
    g.template copy<Shape::own>(batch_head.row(dout, task.row), dout.row_stride, rows, p.M());
    if (const int i = int(threadIdx.x); i < Shape::own)
      copy_async<sizeof(State)>(own_states + i, states + batch_head.index * p.size.N + task.row + min(i, rows - 1),
                                true);
    commit_copies();
    tiles.copy(begin, 0);

    tiles.each(begin, end, next_tile, [&](int k0, const Tile& k, const Tile& v) {
      if (!plain && batch_head.next_key(optimization_barrier(query0), Shape::own_warp, k0) >= k0 + keys) return;
      float s[strips][keys / 8][4], ds[strips][keys / 8][4];
      mma_row_products(q.row(warp_row), k, s);
      mma_row_products(g.row(optimization_barrier(warp_row)), v, ds);  // otherwise registers are spilled
#pragma unroll
      for (int i = 0; i < strips; ++i) {
        const int own_row = warp_row + 16 * i;
        uint64_t top_bits[2];  // from this lane's first key on, for rows g and g + 8
#pragma unroll
        for (int half = 0; half < 2; ++half)
          top_bits[half] = top.bits_from(p.size, batch_head, query0 + 16 * i + mma_g() + 8 * half, k0 + 2 * mma_t());
        const State state[2] = {own_states[own_row + mma_g()], own_states[own_row + mma_g() + 8]};
        const int row = (plain ? query0 : optimization_barrier(query0)) + 16 * i;  // otherwise registers are spilled
        warp_tile_gradient<Top>(
            s[i], ds[i], p.scale_2(), [&](int, int e) { return state[e / 2]; },
            [&](int n, int e) { return top_bits[e / 2] >> (8 * n + e % 2) & 1; },
            !plain && batch_head.masks_rows(row, row + 16, k0, k0 + keys),
            [&] { return mma_visible<keys / 8, false>(batch_head, row, k0); }, dropout,
            [&] { return mma_keep_query_rows<keys / 8>(dropout, row, k0); });
      }
      mma_weighted_rows(ds, k, sums);
    });
  }
#pragma unroll
  for (int i = 0; i < strips; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query0 + 16 * i + mma_g() + 8 * half;
      if (query >= p.N()) continue;
      const float scale = query < batch_head.queries ? p.scale : 0.0f;
      if (splits.partial)
        write_sums(
            sums[i], half, scale,
            splits.partial + ((task.split * p.size.B * p.size.H + batch_head.index) * p.size.N + query) * p.size.D,
            p.D());
      else
        write_sums(sums[i], half, scale, batch_head.row(dq, query), p.D());
    }
}

// The tile's rows are keys here.
template <class T, int columns, int strips, bool plain, class Top>
__global__ void __launch_bounds__(mma_threads, MmaShape<T, columns, strips, Top>::key_gradient_blocks)
    key_gradient_mma(AttentionProblem<T> p, HeadView<const T> dout, const typename Top::State* states, Top top,
                     HeadView<T> dk, HeadView<T> dv) {
  using Shape = MmaShape<T, columns, strips, Top>;
  using Tile = MmaTile<T, columns>;
  using State = typename Top::State;
  constexpr int queries = Shape::other_queries;
  const Tile k{dynamic_shared<T>()}, v = k.row(Shape::own);
  const Tile all_q = v.row(Shape::own), all_g = all_q.row(2 * queries);  // two tiles each
  State* const all_states = reinterpret_cast<State*>(all_g.row(2 * queries).data);
  uint32_t* const all_bits = reinterpret_cast<uint32_t*>(all_states + 2 * queries);  // of top: two words a query
  const TileTask task(p.size.S, Shape::own, 0, 1);
  const BatchHead batch_head = head_of<plain>(p, task);
  const TileDropout dropout(plain ? Dropout{} : p.dropout, batch_head);
  const int warp_row = int(threadIdx.x / 32) * Shape::own_warp, key0 = task.row + warp_row;  // this warp's
  const int begin = batch_head.next_query(task.row, Shape::own, 0);
  float sums_k[strips][columns / 8][4] = {}, sums_v[strips][columns / 8][4] = {};

  const auto copy_queries = [&](int q0, int place) {
    const int rows = plain ? queries : batch_head.queries - q0;
    const Tile q = all_q.row(place), g = all_g.row(place);
    // (Without this barrier, registers are spilled.)
    const int64_t batch = plain ? optimization_barrier(int(batch_head.batch)) : batch_head.batch;
    q.template copy<queries>(p.q.at(batch, q0, batch_head.head), p.q.row_stride, rows, plain ? columns : p.D());
    g.template copy<queries>(dout.at(batch, q0, batch_head.head), dout.row_stride, rows, plain ? columns : p.M());
    const int i = int(threadIdx.x);
    const State* const from = states + batch_head.index * p.size.N + q0;
    if (i < queries) copy_async<sizeof(State)>(all_states + place + i, i < rows ? from + i : from, i < rows);
    if constexpr (Top::some)
      if (i < queries)
        copy_async<8>(all_bits + 2 * (place + i), top.row(p.size, batch_head, q0 + (i < rows ? i : 0)) + task.row / 32,
                      i < rows);
    commit_copies();
  };
  if (begin < batch_head.queries && task.row < batch_head.keys) {
    const int rows = batch_head.keys - task.row;
    k.template copy<Shape::own>(batch_head.row(p.k, task.row), p.k.row_stride, rows, p.D());
    v.template copy<Shape::own>(batch_head.row(p.v, task.row), p.v.row_stride, rows, p.M());
    copy_queries(begin, 0);

    for (int q0 = begin, next, place = 0; q0 < batch_head.queries; q0 = next, place ^= queries) {
      const Tile q = all_q.row(place), g = all_g.row(place);
      next = plain ? q0 + queries : batch_head.next_query(optimization_barrier(task.row), Shape::own, q0 + queries);
      wait_for_copies<0>();
      __syncthreads();  // all see this tile, and no thread reads the other one any more
      if (next < batch_head.queries) copy_queries(next, place ^ queries);
      if (!plain && batch_head.next_query(optimization_barrier(key0), Shape::own_warp, q0) >=
                        min(q0 + queries, batch_head.queries))
        continue;

      float s[strips][queries / 8][4], ds[strips][queries / 8][4];
      mma_row_products(k.row(warp_row), q, s);
      mma_row_products(v.row(warp_row), g, ds);
      const State* const state = all_states + place + 2 * mma_t();
#pragma unroll
      for (int i = 0; i < strips; ++i) {
        const int own_row = warp_row + 16 * i, row = key0 + 16 * i;
        const uint32_t* const bits = all_bits + 2 * (place + 2 * mma_t()) + own_row / 32;  // the strip's keys
        warp_tile_gradient<Top>(
            s[i], ds[i], p.scale_2(), [&](int n, int e) { return state[8 * n + e % 2]; },
            [&](int n, int e) {
              return Top::some && bits[2 * (8 * n + e % 2)] >> (own_row % 32 + mma_g() + 8 * (e / 2)) & 1;
            },
            !plain && batch_head.masks(q0, q0 + queries, row, row + 16),
            [&] { return mma_visible<queries / 8, true>(batch_head, q0, row); }, dropout,
            [&] { return mma_keep_key_rows<queries / 8>(dropout, q0, row); });
      }
      // [grad. 2] [grad. 5] dV, then dK
      mma_weighted_rows(s, g, sums_v);
      mma_weighted_rows(ds, q, sums_k);
    }
  }
#pragma unroll
  for (int i = 0; i < strips; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = key0 + 16 * i + mma_g() + 8 * half;
      if (key >= p.S()) continue;
      const bool valid = key < batch_head.keys;
      write_sums(sums_k[i], half, valid ? p.scale : 0.0f, batch_head.row(dk, key), p.D(), top.add);
      write_sums(sums_v[i], half, valid ? 1.0f : 0.0f, batch_head.row(dv, key), p.M(), top.add);
    }
}

// ---- the host's part

// Whether tensor cores can take this problem: rows consist of whole 16-byte chunks and at most 128 elements, the scale
// is positive, and the GPU has the instructions. (On RTX cards TF32 products have the peak of float32 arithmetic, and a
// float32 product takes three. So float32 may be faster there without tensor cores; nobody has measured it.)
template <class T, class... More>
bool suits_mma(const AttentionProblem<T>& p, const More&... more) {
  constexpr int chunk = 16 / sizeof(T);
  return fit_tiles<T>(p.size.D) && fit_tiles<T>(p.size.M) && p.scale > 0 && holds_packs<chunk>(p.q) &&
         holds_packs<chunk>(p.k) && holds_packs<chunk>(p.v) && (holds_packs<chunk>(more) && ...) && has_mma();
}

// Whether every query sees every key, and there is no dropout.
template <class T>
bool sees_everything(const AttentionProblem<T>& p) {
  return p.mask.all() && !p.mask.allowed && !p.mask.query_lengths && !p.mask.key_lengths && !p.dropout.active();
}

// Calls f<strips, plain>() for blocks that take `rows` queries or keys of a head. Two strips a warp where registers
// have room for them and the rows fill them. Plain where the problem is, and there would be as many strips without the
// flag.
template <class T, int columns, class Top, class F>
void with_form(const AttentionProblem<T>& p, int64_t rows, F f) {
  constexpr int strips = sizeof(T) == 2 && columns <= 64 && !Top::some ? 2 : 1;
  if constexpr (sizeof(T) == 2 && !Top::some) {
    constexpr int own = MmaShape<T, columns, strips>::own;  // no tile of the other side has more rows
    const AttentionSize& size = p.size;
    if (sees_everything(p) && size.N % own == 0 && size.S % own == 0 && size.D == columns && size.M == columns)
      return f.template operator()<strips, true>();
  }
  if (rows > 16 * mma_warps) return f.template operator()<strips, false>();
  f.template operator()<1, false>();
}

// The gradients of attention, on tensor cores or in float32 arithmetic.
template <class T, class Top>
void attention_gradients(Stream stream, const AttentionProblem<T>& p, HeadView<const T> dout,
                         const typename Top::State* states, Top top, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = p.size;
  const int64_t heads = size.B * size.H;
  if (!suits_mma(p, dout, dq, dk, dv)) return gradients_simt(stream, p, dout, states, top, dq, dk, dv);
  with_mma_columns(std::max(size.D, size.M), [&]<int columns> {
    if (heads * size.N > 0)
      with_form<T, columns, Top>(p, size.N, [&]<int strips, bool plain> {
        using Shape = MmaShape<T, columns, strips, Top>;
        Workspace workspace(Device::cuda);
        const Splits splits = split_keys(p, Shape::own, size.D, workspace);
        const int64_t blocks = heads * ceil_div(size.N, Shape::own) * splits.count;
        launch<query_gradient_mma<T, columns, strips, plain, Top>, Shape::query_gradient_bytes>(
            {blocks, mma_threads, 0, stream}, p, splits, dout, states, top, dq);
        add_up(stream, size, splits, size.D, dq);
      });
    if (heads * size.S > 0)
      with_form<T, columns, Top>(p, size.S, [&]<int strips, bool plain> {
        using Shape = MmaShape<T, columns, strips, Top>;
        launch<key_gradient_mma<T, columns, strips, plain, Top>, Shape::key_gradient_bytes>(
            {heads * ceil_div(size.S, Shape::own), mma_threads, 0, stream}, p, dout, states, top, dk, dv);
      });
  });
}

}  // namespace cairn::gpu
