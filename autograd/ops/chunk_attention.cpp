#include "core/kernels/chunk_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"
#include "core/dispatch.h"
#include "core/kernels/attention.h"
#include "core/ops/attention_checks.h"

namespace cairn {
namespace {

ChunkSlots chunks_of(const AttentionSize& size, const Clusters& buckets, const Clusters& key_buckets,
                     const BucketOptions& options, Device device) {
  const bool own_keys = key_buckets.labels().defined();
  check<UsageError>(size.S == size.N || own_keys, "chunk_attention: ", size.N, " queries and ", size.S,
                    " keys, expected as many");
  check<UsageError>(options.chunk >= 1, "chunk_attention: chunk = ", options.chunk, ", expected at least 1");
  const int64_t length = std::max(size.N, size.S);
  check(size.B * length * size.H <= INT32_MAX, "chunk_attention: ", size.B * length * size.H,
        " rows of queries or keys, expected at most ", INT32_MAX);
  // The buckets have a row for each head and round. Without rows, buckets.check() finds what is wrong.
  const bool has_rows = buckets.labels().defined() && size.H > 0;
  const int64_t rounds = has_rows ? std::max<int64_t>(1, buckets.labels().size(1) / size.H) : 1;
  buckets.check("chunk_attention", {size.B, size.H * rounds, size.N}, device);
  if (own_keys) {
    key_buckets.check("chunk_attention", {size.B, size.H * rounds, size.S}, device);
    check(key_buckets.count() == buckets.count(), "chunk_attention: ", key_buckets.count(),
          " buckets of keys, expected ", buckets.count());
  }
  const int64_t chunk = std::min(options.chunk, std::max<int64_t>(1, length));
  ChunkSlots chunks{
      {chunk, options.bucket_mask}, size.B, size.H, size.N, size.S, rounds, buckets.count(), view(buckets)};
  if (own_keys) chunks.key_buckets = view(key_buckets);
  return chunks;
}

// [B, length, H, any]: the rows of x [B, N, H, any] where a query attends to itself alone, else zeros.
Tensor own_rows_of(const ChunkSlots& chunks, const Mask& mask, int64_t length, const Tensor& x,
                   const Tensor& logsumexp) {
  const Shape shape = x.shape().with(1, length);
  if (chunks.own_keys()) return Tensor::zeros(shape, sums_of(x), x.device());
  Tensor y(shape, sums_of(x), x.device());
  CAIRN_RUN("own_rows", x,
            own_rows<T>(stream, chunks, mask, x.size(3), data_or_null<Accum<T>>(logsumexp), x.data<T>(),
                        y.mutable_data<Accum<T>>()));
  return y;
}

// Some slots, as operands of the attention kernels: q [slots, chunk, 1, D], k [before + slots, chunk, 1, D], v alike.
// The keys of neighboring slots overlap, unless they are copied.
struct Part {
  ChunkSlots chunks;
  Tensor rows, queries, copied, allowed, q, k, v;

  Part(const ChunkSlots& some, const Mask& mask, const Tensor& all_q, const Tensor& all_k, const Tensor& all_v)
      : chunks(some),
        rows({some.before() + some.slots, some.chunk, 1}, DType::int32, all_q.device()),
        queries({some.before() + some.slots}, DType::int32, all_q.device()),
        allowed({some.slots, some.chunk, some.keys()}, DType::boolean, all_q.device()) {
    if (chunks.own_keys()) copied = Tensor({some.slots, some.keys(), 1}, DType::int32, all_q.device());
    int32_t* const copied_rows = copied.defined() ? copied.mutable_data<int32_t>() : nullptr;
    CAIRN_CALL("chunk_rows", rows,
               chunk_rows(stream, chunks, rows.mutable_data<int32_t>(), queries.mutable_data<int32_t>(), copied_rows));
    chunks.rows = rows.data<int32_t>(), chunks.queries = queries.data<int32_t>(), chunks.copied = copied_rows;
    CAIRN_CALL("chunk_mask", allowed, chunk_mask(stream, chunks, mask, allowed.mutable_data<bool>()));
    const Tensor& of_keys = copied.defined() ? copied : rows;
    q = of_queries(all_q), k = gathered(all_k, of_keys), v = gathered(all_v, of_keys);
  }

  static Tensor gathered(const Tensor& x, const Tensor& rows) {
    return gather_rows(x.reshape({x.size(0) * x.size(1) * x.size(2), x.size(3)}), rows);
  }
  Tensor of_queries(const Tensor& x) const { return gathered(x, rows.slice(chunks.before(), rows.size(0))); }

  template <class T>
  AttentionOperands<T> operands(double scale) const {
    Mask mask;
    mask.query_lengths = chunks.queries + chunks.before();
    mask.allowed = reinterpret_cast<const uint8_t*>(allowed.data<bool>());
    mask.allowed_batch = chunks.chunk * chunks.keys(), mask.allowed_query = chunks.keys(), mask.allowed_key = 1;
    const AttentionSize size{chunks.slots, 1, chunks.chunk, chunks.keys(), q.size(3), v.size(3), scale};
    return {size, head_view<T>(q), head_view<T>(k), head_view<T>(v), mask, {}};
  }
};

// Calls f(part) for all parts of all rounds, one after another. They bound the memory: on the CPU, a part fits into the
// caches; on CUDA, it fills the device.
template <class F>
void each_part(ChunkSlots chunks, const Mask& mask, const Tensor& q, const Tensor& k, const Tensor& v, F&& f) {
  const int64_t scores = q.device() == Device::cpu ? 1 << 17 : 1 << 24;
  const int64_t end = chunks.B * chunks.H * chunks.slots_a_head();
  for (chunks.round = 0; chunks.round < chunks.rounds; ++chunks.round)
    for (chunks.first = chunks.before(); chunks.first < end; chunks.first += chunks.slots) {
      chunks.slots = std::clamp<int64_t>(scores / (chunks.chunk * chunks.keys()), 1, end - chunks.first);
      f(Part(chunks, mask, q, k, v));
    }
}

}  // namespace

// The keys of query i are those of its chunks in all rounds: sets K_r, in which a key may occur several times. With
// s_ij = scale q_i . k_j and z_r the logsumexp of s_ij over K_r, attention_forward computes o_r = sum over K_r of
// e^(s_ij - z_r) v_j. The softmax over all these keys is their weighted sum:
//
//   z = logsumexp over r of z_r,  out_i = sum over r of e^(z_r - z) o_r = sum over r and j in K_r of e^(s_ij - z) v_j
//
// The gradient of a softmax needs from the other keys only z and g . out_i: with A_ij = e^(s_ij - z),
//
//   dv_j += A_ij g,  ds_ij = A_ij (g . v_j - g . out_i)
//
// So attention_backward of one round, given z and out instead of z_r and o_r, adds the terms of this round's keys. A
// query without keys: out_i = 0 if keys have buckets of their own. Else out_i = v_i if it may see itself, and then
// dv_i += g.
Variable chunk_attention(const Variable& q, const Variable& k, const Variable& v, const Clusters& buckets,
                         const BucketOptions& bucket_options, const AttentionOptions& options,
                         const Clusters& key_buckets) {
  const Sizes s = expect_attention("chunk_attention", q, k, v, options);
  if (const Dropout& drop = options.dropout; drop.active()) {  // of a key in all its places
    const Tensor ones = Tensor::full(v.shape().with(-1, 1), 1, v.dtype(), v.device());
    return chunk_attention(q, k, v * dropout(ones, drop.p, drop.draw), buckets, bucket_options,
                           {options.mask, {}, options.scale}, key_buckets);
  }
  const AttentionSize size = kernel_size(s, options);
  const ChunkSlots chunks = chunks_of(size, buckets, key_buckets, bucket_options, q.device());
  const Mask mask = kernel_mask(options.mask, size);
  Tensor out = own_rows_of(chunks, mask, size.N, v, {});
  Tensor logsumexp = Tensor::full({size.B, size.N, size.H, 1}, -INFINITY, out.dtype(), q.device());
  each_part(chunks, mask, q, k, v, [&](const Part& part) {
    Tensor x({part.chunks.slots, chunks.chunk, 1, size.M}, q.dtype(), q.device());
    Tensor logsumexp_of_x({part.chunks.slots, chunks.chunk}, out.dtype(), q.device());
    CAIRN_RUN("attention", x,
              attention_forward<T>(stream, part.operands<T>(size.scale), head_view<T>(x),
                                   logsumexp_of_x.mutable_data<Accum<T>>()));
    CAIRN_RUN(
        "add_chunks", x,
        add_chunks<T>(stream, part.chunks, false, {chunks.chunk, size.M}, x.data<T>(), logsumexp_of_x.data<Accum<T>>(),
                      out.mutable_data<Accum<T>>(), logsumexp.mutable_data<Accum<T>>()));
  });
  out = out.cast(q.dtype());
  return record(
      "chunk_attention", out, {q, k, v},
      [size, chunks, mask, buckets, key_buckets, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v),
       out = SavedTensor(out), options = saved_options(options), logsumexp](const Tensor& g) -> Gradients {
        buckets.check("chunk_attention", {size.B, size.H * chunks.rounds, size.N}, g.device());
        if (chunks.own_keys())
          key_buckets.check("chunk_attention", {size.B, size.H * chunks.rounds, size.S}, g.device());
        options();
        const DType sums = logsumexp.dtype();
        Tensor dq = Tensor::zeros(q().shape(), sums, g.device()), dk = Tensor::zeros(k().shape(), sums, g.device());
        Tensor dv = own_rows_of(chunks, mask, size.S, g, logsumexp);
        each_part(chunks, mask, q(), k(), v(), [&](const Part& part) {
          const Tensor out_rows = part.of_queries(out()), g_rows = part.of_queries(g);
          const Tensor logsumexp_rows = part.of_queries(logsumexp);
          const int64_t slots = part.chunks.slots, keys = part.chunks.keys();
          Tensor dq_rows = empty_like(part.q), dk_rows({slots, keys, 1, size.D}, g.dtype(), g.device());
          Tensor dv_rows({slots, keys, 1, size.M}, g.dtype(), g.device());
          CAIRN_RUN("attention", g,
                    attention_backward<T>(stream, part.operands<T>(size.scale), head_view<T>(out_rows),
                                          logsumexp_rows.data<Accum<T>>(), head_view<T>(g_rows), head_view<T>(dq_rows),
                                          head_view<T>(dk_rows), head_view<T>(dv_rows)));
          const auto add = [&](const Tensor& x, bool first_chunk, Tensor& to) {
            CAIRN_RUN("add_chunks", g,
                      add_chunks<T>(stream, part.chunks, first_chunk, {x.size(1), x.size(3)}, x.data<T>(), nullptr,
                                    to.mutable_data<Accum<T>>(), nullptr));
          };
          add(dq_rows, false, dq), add(dk_rows, false, dk), add(dv_rows, false, dv);
          if (keys > chunks.chunk) add(dk_rows, true, dk), add(dv_rows, true, dv);
        });
        return {dq.cast(g.dtype()), dk.cast(g.dtype()), dv.cast(g.dtype())};
      });
}

}  // namespace cairn
