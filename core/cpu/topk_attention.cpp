// Queries against the top keys of their cluster. A cluster's keys and values are gathered once, then its members come
// in blocks; all products are small matrix products in registers.
#include "core/kernels/topk_attention.h"

#include "core/cpu/attention_tiles.h"
#include "core/cpu/small_product.h"

namespace cairn::cpu {
namespace {

constexpr int64_t members_a_block = 32;

// Rounded up to whole vectors. The columns behind the last key hold leftovers that are never read.
int64_t padded(int64_t n) { return (n + Lanes<float>::count - 1) / Lanes<float>::count * Lanes<float>::count; }

// The members of one cluster, a block at a time, with its top keys.
template <class T>
struct Block {
  const AttentionSize& size;
  const Dropout& dropout;
  PhiloxKey dropout_key;
  int64_t k;         // top keys at most
  int64_t width;     // of rows over top keys
  int64_t top = 0;   // top keys there are
  int64_t rows = 0;  // members in this block
  int64_t batch = 0, head = 0, plane = 0;
  const int32_t* keys = nullptr;     // their indices
  const int32_t* members = nullptr;  // the members' indices

  std::vector<T> memory{};
  T *key_rows, *key_columns, *value_rows, *value_columns;  // [k, D], [D, width], [k, M], [M, width]
  T *query_rows, *gradient_rows;                           // [members, D], [members, M]
  T *weights, *factors, *dweights, *out, *dquery, *dk,
      *dv;  // [members, width] x3, [members, M], [members, D], [k, D], [k, M]

  Block(const AttentionSize& size_, const Dropout& dropout_, int64_t k_)
      : size(size_),
        dropout(dropout_),
        dropout_key(dropout_.active() ? dropout_.draw.key() : PhiloxKey{}),
        k(k_),
        width(padded(k_)) {
    const int64_t D = size.D, M = size.M, R = members_a_block;
    memory.resize(size_t(2 * k * (D + M) + width * (D + M) + 2 * R * (D + M) + 3 * R * width));
    T* next = memory.data();
    const auto take = [&next](int64_t n) { return std::exchange(next, next + n); };
    key_rows = take(k * D), key_columns = take(width * D), value_rows = take(k * M), value_columns = take(width * M);
    query_rows = take(R * D), gradient_rows = take(R * M);
    weights = take(R * width), factors = take(R * width), dweights = take(R * width);
    out = take(R * M), dquery = take(R * D), dk = take(k * D), dv = take(k * M);
  }

  // The keys and values of a cluster of (batch element, head) `of`.
  void begin_cluster(int64_t of, const int32_t* top_keys, Heads<const T> key, Heads<const T> value) {
    plane = of, batch = of / size.H, head = of % size.H;
    keys = top_keys;
    top = std::find(top_keys, top_keys + k, -1) - top_keys;
    for (int64_t l = 0; l < top; ++l) {
      copy_row(key.at(batch, keys[l], head), size.D, l, key_rows, key_columns);
      copy_row(value.at(batch, keys[l], head), size.M, l, value_rows, value_columns);
    }
  }
  void copy_row(const T* from, int64_t n, int64_t l, T* as_rows, T* as_columns) const {
    for (int64_t d = 0; d < n; ++d) as_rows[l * n + d] = as_columns[d * width + l] = from[d];
  }

  static void gather(const int32_t* index, int64_t count, int64_t b, int64_t h, int64_t n, Heads<const T> from, T* to) {
    for (int64_t i = 0; i < count; ++i) std::copy_n(from.at(b, index[i], h), n, to + i * n);
  }

  // weights = softmax over the top keys of scale q . k for members [first, first + count); with dropout also factors.
  void begin_members(const int32_t* first, int64_t count, Heads<const T> q) {
    members = first, rows = count;
    gather(members, rows, batch, head, size.D, q, query_rows);
    // Whole vectors where the padding allows; what the last one adds beyond `top` is never read.
    small_product<T>(rows, padded(top), size.D, {query_rows, size.D, 1}, key_columns, width, false, weights, width);
    for (int64_t i = 0; i < rows; ++i) {
      T* a = weights + i * width;
      scale(a, top, T(size.scale));
      const T sum = exponentials(a, top, finite_shift(maximum(a, top)), a);
      scale(a, top, sum == 0 ? T(0) : 1 / sum);
      if (dropout.active()) draw_factors(members[i], factors + i * width);
    }
  }
  // Dropout by (query, key).
  void draw_factors(int64_t query, T* factor) const {
    for (int64_t l = 0; l < top; ++l)
      factor[l] = T(dropout.factor(dropout_key, uint32_t(plane), uint32_t(query), uint32_t(keys[l])));
  }
};

// f(first, count) for the members of a cluster, a block at a time.
template <class F>
void each_block(const int32_t* permutation, const int32_t* offsets, F&& f) {
  for (int64_t first = offsets[0]; first < offsets[1]; first += members_a_block)
    f(permutation + first, std::min<int64_t>(members_a_block, offsets[1] - first));
}

}  // namespace

template <class T>
void topk_attention_forward(Stream, AttentionSize size, int64_t C, int64_t k, Heads<const T> q, Heads<const T> keys,
                            Heads<const T> v, GroupView groups, const int32_t* topk, const T* mass, Heads<const T> rest,
                            Dropout dropout, Heads<T> out) {
  const int64_t H = size.H, N = size.N, M = size.M;
  parallel_for(size.B * H * C, 32, [&](int64_t begin, int64_t end) {
    Block<T> block(size, dropout, k);
    for (int64_t cluster = begin; cluster < end; ++cluster) {
      const int64_t plane = cluster / C, c = cluster % C, b = plane / H, h = plane % H;
      const int32_t* offsets = groups.offsets + plane * (C + 1) + c;
      if (offsets[0] == offsets[1]) continue;
      const T m = mass ? mass[cluster] : T(1);
      block.begin_cluster(plane, topk + cluster * k, keys, v);
      each_block(groups.permutation + plane * N, offsets, [&](const int32_t* members, int64_t rows) {
        block.begin_members(members, rows, q);
        for (int64_t i = 0; i < rows; ++i) {
          T* a = block.weights + i * block.width;
          for (int64_t l = 0; l < block.top; ++l) a[l] *= dropout.active() ? m * block.factors[i * block.width + l] : m;
          if (rest)
            std::copy_n(rest.at(b, c, h), M, block.out + i * M);
          else
            std::fill_n(block.out + i * M, M, T(0));
        }
        small_product<T>(rows, M, block.top, {block.weights, block.width, 1}, block.value_rows, M, true, block.out, M);
        for (int64_t i = 0; i < rows; ++i) std::copy_n(block.out + i * M, M, out.at(b, members[i], h));
      });
    }
  });
  // Queries of no cluster stand behind the last one.
  parallel_tasks(size.B * H, [&](int64_t plane) {
    for (int64_t member = groups.offsets[plane * (C + 1) + C]; member < N; ++member)
      std::fill_n(out.at(plane / H, groups.permutation[plane * N + member], plane % H), M, T(0));
  });
}

template <class T>
void topk_attention_backward(Stream, AttentionSize size, int64_t C, int64_t k, Heads<const T> q, Heads<const T> keys,
                             Heads<const T> v, GroupView groups, const int32_t* topk, const T* mass, Dropout dropout,
                             Heads<const T> dout, Heads<T> dq, Heads<T> dk, Heads<T> dv, T* dmass, Heads<T> drest) {
  const int64_t H = size.H, N = size.N, S = size.S, D = size.D, M = size.M;
  // One task a (batch element, head): clusters share keys, and their gradients are summed in order.
  parallel_tasks(size.B * H, [&](int64_t plane) {
    const int64_t b = plane / H, h = plane % H;
    zero_rows(dk, b, h, 0, S, D);
    zero_rows(dv, b, h, 0, S, M);
    for (int64_t member = groups.offsets[plane * (C + 1) + C]; member < N; ++member)
      std::fill_n(dq.at(b, groups.permutation[plane * N + member], h), D, T(0));

    Block<T> block(size, dropout, k);
    const int64_t width = block.width;
    for (int64_t c = 0; c < C; ++c) {
      const int64_t cluster = plane * C + c;
      const int32_t* offsets = groups.offsets + plane * (C + 1) + c;
      if (dmass) dmass[cluster] = 0;
      if (drest) std::fill_n(drest.at(b, c, h), M, T(0));
      if (offsets[0] == offsets[1]) continue;
      const T m = mass ? mass[cluster] : T(1);
      block.begin_cluster(plane, topk + cluster * k, keys, v);
      bool add = false;
      each_block(groups.permutation + plane * N, offsets, [&](const int32_t* members, int64_t rows) {
        block.begin_members(members, rows, q);
        Block<T>::gather(members, rows, b, h, M, dout, block.gradient_rows);
        // da = g V_T^T
        small_product<T>(rows, padded(block.top), M, {block.gradient_rows, M, 1}, block.value_columns, width, false,
                         block.dweights, width);
        for (int64_t i = 0; i < rows; ++i) {
          T *a = block.weights + i * width, *da = block.dweights + i * width;
          const T *factor = block.factors + i * width, *g = block.gradient_rows + i * M;
          if (dropout.active())
            for (int64_t l = 0; l < block.top; ++l) da[l] *= factor[l];
          // g . (a V_T): the gradient of the mass, and the mean that softmax's gradient subtracts.
          const T mean = dot(a, da, block.top);
          if (dmass) dmass[cluster] += mean;
          if (drest) add_scaled(drest.at(b, c, h), M, T(1), g);
          for (int64_t l = 0; l < block.top; ++l) {
            da[l] = T(size.scale) * m * a[l] * (da[l] - mean);
            a[l] *= dropout.active() ? m * factor[l] : m;
          }
        }
        // dq = dS K_T;  dK_T += dS^T q;  dV_T += (m a)^T g
        small_product<T>(rows, D, block.top, {block.dweights, width, 1}, block.key_rows, D, false, block.dquery, D);
        small_product<T>(block.top, D, rows, {block.dweights, 1, width}, block.query_rows, D, add, block.dk, D);
        small_product<T>(block.top, M, rows, {block.weights, 1, width}, block.gradient_rows, M, add, block.dv, M);
        for (int64_t i = 0; i < rows; ++i) std::copy_n(block.dquery + i * D, D, dq.at(b, members[i], h));
        add = true;
      });
      for (int64_t l = 0; l < block.top; ++l) {
        add_scaled(dk.at(b, block.keys[l], h), D, T(1), block.dk + l * D);
        add_scaled(dv.at(b, block.keys[l], h), M, T(1), block.dv + l * M);
      }
    }
  });
}

#define INSTANTIATE(T)                                                                                                \
  template void topk_attention_forward(Stream, AttentionSize, int64_t, int64_t, Heads<const T>, Heads<const T>,       \
                                       Heads<const T>, GroupView, const int32_t*, const T*, Heads<const T>, Dropout,  \
                                       Heads<T>);                                                                     \
  template void topk_attention_backward(Stream, AttentionSize, int64_t, int64_t, Heads<const T>, Heads<const T>,      \
                                        Heads<const T>, GroupView, const int32_t*, const T*, Dropout, Heads<const T>, \
                                        Heads<T>, Heads<T>, Heads<T>, T*, Heads<T>);
INSTANTIATE(float)
INSTANTIATE(double)

}  // namespace cairn::cpu
