// Attention of queries to the top keys of their cluster. A cluster's keys and values are gathered once for all of its
// members, which come in tiles.
#include "core/kernels/topk_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/cpu/attention_tiles.h"

namespace cairn::cpu {
namespace {

constexpr int64_t tile_members = 64;

// A tile: members of one cluster, with the cluster's top keys.
template <class T>
struct MemberTile {
  const AttentionSize& size;
  const Dropout& dropout;
  PhiloxKey dropout_key;
  int64_t k;         // most top keys
  int64_t top = 0;   // top keys of this cluster: the width of weights
  int64_t rows = 0;  // members in this tile
  int64_t batch = 0, head = 0, batch_head = 0;
  const int32_t* keys = nullptr;     // their indices
  const int32_t* members = nullptr;  // the members' indices

  T *key_rows, *value_rows;         // [k, D], [k, M]
  T *query_rows, *gradient_rows;    // [members, D], [members, M]
  T *weights, *factors, *dweights;  // [members, top] each
  T *out, *dquery, *dk, *dv;        // [members, M], [members, D], [k, D], [k, M]
  T logsumexp[tile_members];

  MemberTile(const AttentionSize& size_, const Dropout& dropout_, int64_t k_)
      : size(size_), dropout(dropout_), dropout_key(dropout_.active() ? dropout_.draw.key() : PhiloxKey{}), k(k_) {
    const int64_t D = size.D, M = size.M, R = tile_members;
    thread_local Scratch<T> memory;
    T* next = memory.take(2 * k * (D + M) + 2 * R * (D + M) + 3 * R * k);
    const auto take = [&next](int64_t n) { return std::exchange(next, next + n); };
    key_rows = take(k * D), value_rows = take(k * M);
    query_rows = take(R * D), gradient_rows = take(R * M);
    weights = take(R * k), factors = take(R * k), dweights = take(R * k);
    out = take(R * M), dquery = take(R * D), dk = take(k * D), dv = take(k * M);
  }

  // The keys and values of a cluster of (batch element, head) `of`.
  void begin_cluster(int64_t of, const int32_t* top_keys, HeadView<const T> key, HeadView<const T> value) {
    batch_head = of, batch = of / size.H, head = of % size.H;
    keys = top_keys;
    top = std::find(top_keys, top_keys + k, -1) - top_keys;
    gather_rows(key, batch, head, keys, top, size.D, key_rows);
    gather_rows(value, batch, head, keys, top, size.M, value_rows);
  }

  // weights = softmax over the top keys of scale q . k for members [first, first + count); with dropout, factors too.
  void begin_members(const int32_t* first, int64_t count, HeadView<const T> q) {
    members = first, rows = count;
    gather_rows(q, batch, head, members, rows, size.D, query_rows);
    gemm_tile(false, true, rows, top, size.D, size.scale, query_rows, size.D, key_rows, size.D, 0.0, weights, top);
    for (int64_t i = 0; i < rows; ++i) {
      T* a = weights + i * top;
      const T shift = finite_shift(maximum(a, top)), sum = exponentials(a, top, shift, a);
      scale(a, top, sum == 0 ? T(0) : 1 / sum);
      logsumexp[i] = shift + std::log(sum);
      if (dropout.active()) draw_factors(members[i], factors + i * top);
    }
  }
  // Dropout by (query, key).
  void draw_factors(int64_t query, T* factor) const {
    for (int64_t l = 0; l < top; ++l)
      factor[l] = T(dropout.factor(dropout_key, uint32_t(batch_head), uint32_t(query), uint32_t(keys[l])));
  }
};

// Multiplies weights with the mass and, unless null, the factors of dropout. Two loops: in a single one, the compiler
// loads the factors with a mask, which is slow where their pages were never written.
template <class T>
void multiply_weights(T* weights, int64_t n, T mass, const T* factors) {
  if (!factors) return scale(weights, n, mass);
  for (int64_t l = 0; l < n; ++l) weights[l] *= mass * factors[l];
}

// Calls f(first, count) for the members of a cluster, a tile at a time.
template <class F>
void each_tile(const int32_t* permutation, const int32_t* offsets, F&& f) {
  for (int64_t first = offsets[0]; first < offsets[1]; first += tile_members)
    f(permutation + first, std::min<int64_t>(tile_members, offsets[1] - first));
}

}  // namespace

template <class T>
void topk_attention_forward(Stream, const AttentionOperands<T>& in, int64_t C, int64_t k, ClusterView clusters,
                            const int32_t* topk, const T* mass, HeadView<const T> rest, HeadView<T> out,
                            Accum<T>* logsumexp) {
  const AttentionSize& size = in.size;
  const Dropout& dropout = in.dropout;
  const int64_t H = size.H, N = size.N, M = size.M;
  parallel_for(size.B * H * C, 32, [&](int64_t begin, int64_t end) {
    MemberTile<T> tile(size, dropout, k);
    for (int64_t cluster = begin; cluster < end; ++cluster) {
      const int64_t batch_head = cluster / C, c = cluster % C, b = batch_head / H, h = batch_head % H;
      const int32_t* offsets = clusters.offsets + batch_head * (C + 1) + c;
      if (offsets[0] == offsets[1]) continue;
      const T m = mass ? mass[cluster] : T(1);
      tile.begin_cluster(batch_head, topk + cluster * k, in.k, in.v);
      each_tile(clusters.permutation + batch_head * N, offsets, [&](const int32_t* members, int64_t rows) {
        tile.begin_members(members, rows, in.q);
        for (int64_t i = 0; i < rows; ++i) {
          T* a = tile.weights + i * tile.top;
          // [eq. 10] The top keys share the mass by the softmax of the query itself.
          multiply_weights(a, tile.top, m, dropout.active() ? tile.factors + i * tile.top : nullptr);
          if (rest) std::copy_n(rest.at(b, c, h), M, tile.out + i * M);
        }
        // [eq. 11] [eq. 15] [eq. 16] Weights times values, added to the rest.
        gemm_tile(false, false, rows, M, tile.top, 1.0, tile.weights, tile.top, tile.value_rows, M, rest ? 1.0 : 0.0,
                  tile.out, M);
        for (int64_t i = 0; i < rows; ++i) {
          std::copy_n(tile.out + i * M, M, out.at(b, members[i], h));
          if (logsumexp) logsumexp[batch_head * N + members[i]] = tile.logsumexp[i];
        }
      });
    }
  });
  // Queries of no cluster come after the last cluster.
  parallel_tasks(size.B * H, [&](int64_t batch_head) {
    for (int64_t member = clusters.offsets[batch_head * (C + 1) + C]; member < N; ++member) {
      const int64_t query = clusters.permutation[batch_head * N + member];
      std::fill_n(out.at(batch_head / H, query, batch_head % H), M, T(0));
      if (logsumexp) logsumexp[batch_head * N + query] = -std::numeric_limits<Accum<T>>::infinity();
    }
  });
}

template <class T>
void topk_attention_backward(Stream, const AttentionOperands<T>& in, int64_t C, int64_t k, ClusterView clusters,
                             const int32_t* topk, const T* mass, HeadView<const T> dout, const Accum<T>* dlogsumexp,
                             HeadView<T> dq, HeadView<T> dk, HeadView<T> dv, T* dmass, HeadView<T> drest) {
  const AttentionSize& size = in.size;
  const Dropout& dropout = in.dropout;
  const int64_t H = size.H, N = size.N, S = size.S, D = size.D, M = size.M;
  // One task per (batch element, head): clusters share keys, so their gradients are added in order.
  parallel_tasks(size.B * H, [&](int64_t batch_head) {
    const int64_t b = batch_head / H, h = batch_head % H;
    zero_rows(dk, b, h, 0, S, D);
    zero_rows(dv, b, h, 0, S, M);
    for (int64_t member = clusters.offsets[batch_head * (C + 1) + C]; member < N; ++member)
      std::fill_n(dq.at(b, clusters.permutation[batch_head * N + member], h), D, T(0));

    MemberTile<T> tile(size, dropout, k);
    for (int64_t c = 0; c < C; ++c) {
      const int64_t cluster = batch_head * C + c;
      const int32_t* offsets = clusters.offsets + batch_head * (C + 1) + c;
      if (mass) {
        dmass[cluster] = 0;
        std::fill_n(drest.at(b, c, h), M, T(0));
      }
      if (offsets[0] == offsets[1]) continue;
      const T m = mass ? mass[cluster] : T(1);
      tile.begin_cluster(batch_head, topk + cluster * k, in.k, in.v);
      const int64_t top = tile.top;
      double before = 0;  // factor of dk and dv so far: the first tile writes, the others add
      each_tile(clusters.permutation + batch_head * N, offsets, [&](const int32_t* members, int64_t rows) {
        tile.begin_members(members, rows, in.q);
        gather_rows(dout, b, h, members, rows, M, tile.gradient_rows);
        // da = g V_top^T
        gemm_tile(false, true, rows, top, M, 1.0, tile.gradient_rows, M, tile.value_rows, M, 0.0, tile.dweights, top);
        for (int64_t i = 0; i < rows; ++i) {
          T *a = tile.weights + i * top, *da = tile.dweights + i * top;
          const T *factor = tile.factors + i * top, *g = tile.gradient_rows + i * M;
          if (dropout.active())
            for (int64_t l = 0; l < top; ++l) da[l] *= factor[l];
          // [grad. 9] delta = g . (a V_top): a member's part of dm, and what the softmax's gradient subtracts
          T delta = dot(a, da, top);
          if (mass) dmass[cluster] += delta;
          if (dlogsumexp) delta -= T(dlogsumexp[batch_head * N + members[i]]);
          // [grad. 11] dB_j: the sum over the cluster
          if (mass) add_scaled(drest.at(b, c, h), M, T(1), g);
          // [grad. 10] dS over the top keys: the softmax's gradient, times the mass and the scale
          for (int64_t l = 0; l < top; ++l) da[l] = T(size.scale) * m * a[l] * (da[l] - delta);
          multiply_weights(a, top, m, dropout.active() ? factor : nullptr);
        }
        // [grad. 16] dq = scale dS K_top;  dK_top += scale dS^T q;  dV_top += (m a)^T g
        gemm_tile(false, false, rows, D, top, 1.0, tile.dweights, top, tile.key_rows, D, 0.0, tile.dquery, D);
        gemm_tile(true, false, top, D, rows, 1.0, tile.dweights, top, tile.query_rows, D, before, tile.dk, D);
        gemm_tile(true, false, top, M, rows, 1.0, tile.weights, top, tile.gradient_rows, M, before, tile.dv, M);
        for (int64_t i = 0; i < rows; ++i) std::copy_n(tile.dquery + i * D, D, dq.at(b, members[i], h));
        before = 1;
      });
      for (int64_t l = 0; l < top; ++l) {
        add_scaled(dk.at(b, tile.keys[l], h), D, T(1), tile.dk + l * D);
        add_scaled(dv.at(b, tile.keys[l], h), M, T(1), tile.dv + l * M);
      }
    }
  });
}

CAIRN_CPU_TYPES(topk_attention_forward)
CAIRN_CPU_TYPES(topk_attention_backward)

}  // namespace cairn::cpu
