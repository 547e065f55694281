// Queries against the top keys of their cluster. The keys and values of a cluster are gathered once, keys also as
// columns, so that every loop runs along memory.
#include "core/kernels/topk_attention.h"

#include "core/cpu/attention_tiles.h"

namespace cairn::cpu {
namespace {

// The top keys of one cluster.
template <class T>
struct TopBlock {
  int64_t count = 0;  // how many there are
  const int32_t* index = nullptr;
  T *keys, *keys_transposed, *values, *values_transposed;  // [count, D], [D, count], [count, M], [M, count]

  void gather(const AttentionSize& size, int64_t k, int64_t b, int64_t h, const int32_t* top, Heads<const T> key,
              Heads<const T> value, std::vector<T>& memory) {
    index = top;
    count = std::find(top, top + k, -1) - top;
    keys = room(memory, 2 * k * (size.D + size.M));
    keys_transposed = keys + k * size.D;
    values = keys_transposed + k * size.D;
    values_transposed = values + k * size.M;
    for (int64_t l = 0; l < count; ++l) {
      copy_row(key.at(b, top[l], h), size.D, l, keys, keys_transposed);
      copy_row(value.at(b, top[l], h), size.M, l, values, values_transposed);
    }
  }
  void copy_row(const T* from, int64_t n, int64_t l, T* rows, T* columns) const {
    for (int64_t d = 0; d < n; ++d) rows[l * n + d] = columns[d * count + l] = from[d];
  }
  // y [count] = factor X x, X given by columns, x [n].
  void times(const T* columns, int64_t n, const T* x, T factor, T* y) const {
    std::fill_n(y, count, T(0));
    for (int64_t d = 0; d < n; ++d) add_scaled(y, count, factor * x[d], columns + d * count);
  }
  // a = softmax over the top keys of scale q . k.
  void weights(const AttentionSize& size, const T* q, T* a) const {
    times(keys_transposed, size.D, q, T(size.scale), a);
    const T sum = exponentials(a, count, finite_shift(maximum(a, count)), a);
    scale(a, count, sum == 0 ? T(0) : 1 / sum);
  }
  // factor [count]: dropout by (query, key).
  void dropout_factors(const Dropout& dropout, PhiloxKey key, int64_t plane, int64_t query, T* factor) const {
    const T kept = T(dropout.scale());
    for (int64_t l = 0; l < count; ++l) {
      const auto words = Dropout::words(key, uint32_t(plane), uint32_t(query), uint32_t(index[l]));
      factor[l] = words.w[index[l] % 4] < dropout.threshold() ? T(0) : kept;
    }
  }
};

}  // namespace

template <class T>
void topk_attention_forward(Stream, AttentionSize size, int64_t C, int64_t k, Heads<const T> q, Heads<const T> keys,
                            Heads<const T> v, GroupView groups, const int32_t* topk, const T* mass, Heads<const T> rest,
                            Dropout dropout, Heads<T> out) {
  const auto [B, H, N, S, D, M, scale_] = size;
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  parallel_for(B * H * C, 4, [&, N = N, H = H, M = M](int64_t begin, int64_t end) {
    thread_local std::vector<T> block_memory, row_memory;
    TopBlock<T> block;
    T *a = room(row_memory, 2 * k), *factor = a + k;
    for (int64_t cluster = begin; cluster < end; ++cluster) {
      const int64_t plane = cluster / C, b = plane / H, h = plane % H, c = cluster % C;
      const int32_t* offsets = groups.offsets + plane * (C + 1) + c;
      if (offsets[0] == offsets[1]) continue;
      block.gather(size, k, b, h, topk + cluster * k, keys, v, block_memory);
      for (int32_t member = offsets[0]; member < offsets[1]; ++member) {
        const int64_t i = groups.permutation[plane * N + member];
        T* to = out.at(b, i, h);
        if (rest)
          std::copy_n(rest.at(b, c, h), M, to);
        else
          std::fill_n(to, M, T(0));
        block.weights(size, q.at(b, i, h), a);
        if (dropout.active()) {
          block.dropout_factors(dropout, key, plane, i, factor);
          for (int64_t l = 0; l < block.count; ++l) a[l] *= factor[l];
        }
        const T m = mass ? mass[cluster] : T(1);
        for (int64_t l = 0; l < block.count; ++l) add_scaled(to, M, m * a[l], block.values + l * M);
      }
    }
  });
  // Queries of no cluster stand behind the last one.
  parallel_tasks(B * H, [&, N = N, H = H, M = M](int64_t plane) {
    for (int64_t member = groups.offsets[plane * (C + 1) + C]; member < N; ++member)
      std::fill_n(out.at(plane / H, groups.permutation[plane * N + member], plane % H), M, T(0));
  });
}

template <class T>
void topk_attention_backward(Stream, AttentionSize size, int64_t C, int64_t k, Heads<const T> q, Heads<const T> keys,
                             Heads<const T> v, GroupView groups, const int32_t* topk, const T* mass, Dropout dropout,
                             Heads<const T> dout, Heads<T> dq, Heads<T> dk, Heads<T> dv, T* dmass, Heads<T> drest) {
  const auto [B, H, N, S, D, M, scale_] = size;
  const PhiloxKey key = dropout.active() ? dropout.draw.key() : PhiloxKey{};
  // One task a (batch element, head): clusters share keys, and their gradients are summed in order.
  parallel_tasks(B * H, [&, H = H, N = N, S = S, D = D, M = M](int64_t plane) {
    thread_local std::vector<T> block_memory, row_memory;
    const int64_t b = plane / H, h = plane % H;
    zero_rows(dk, b, h, 0, S, D);
    zero_rows(dv, b, h, 0, S, M);
    for (int64_t member = groups.offsets[plane * (C + 1) + C]; member < N; ++member)
      std::fill_n(dq.at(b, groups.permutation[plane * N + member], h), D, T(0));

    TopBlock<T> block;
    T* a = room(row_memory, 3 * k + k * (D + M));
    T *da = a + k, *factor = da + k, *block_dk = factor + k, *block_dv = block_dk + k * D;
    for (int64_t c = 0; c < C; ++c) {
      const int64_t cluster = plane * C + c;
      const int32_t* offsets = groups.offsets + plane * (C + 1) + c;
      if (dmass) dmass[cluster] = 0;
      if (drest) std::fill_n(drest.at(b, c, h), M, T(0));
      if (offsets[0] == offsets[1]) continue;
      block.gather(size, k, b, h, topk + cluster * k, keys, v, block_memory);
      std::fill_n(block_dk, block.count * (D + M), T(0));
      block_dv = block_dk + block.count * D;
      const T m = mass ? mass[cluster] : T(1);
      for (int32_t member = offsets[0]; member < offsets[1]; ++member) {
        const int64_t i = groups.permutation[plane * N + member];
        const T *query = q.at(b, i, h), *g = dout.at(b, i, h);
        block.weights(size, query, a);
        block.times(block.values_transposed, M, g, T(1), da);
        if (dropout.active()) {
          block.dropout_factors(dropout, key, plane, i, factor);
          for (int64_t l = 0; l < block.count; ++l) da[l] *= factor[l];
        }
        // g . (a V_T): the gradient of the mass, and the mean that softmax's gradient subtracts.
        const T mean = dot(a, da, block.count);
        if (dmass) dmass[cluster] += mean;
        if (drest) add_scaled(drest.at(b, c, h), M, T(1), g);
        T* out = dq.at(b, i, h);
        std::fill_n(out, D, T(0));
        for (int64_t l = 0; l < block.count; ++l) {
          const T ds = T(size.scale) * m * a[l] * (da[l] - mean);
          add_scaled(out, D, ds, block.keys + l * D);
          add_scaled(block_dk + l * D, D, ds, query);
          add_scaled(block_dv + l * M, M, m * a[l] * (dropout.active() ? factor[l] : T(1)), g);
        }
      }
      for (int64_t l = 0; l < block.count; ++l) {
        add_scaled(dk.at(b, block.index[l], h), D, T(1), block_dk + l * D);
        add_scaled(dv.at(b, block.index[l], h), M, T(1), block_dv + l * M);
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
