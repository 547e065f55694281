// Attention over several sets of keys: the kernels of full attention run once for each, and the results are joined.
#include <algorithm>
#include <limits>
#include <vector>

#include "autograd/ops.h"
#include "autograd/ops/saved_options.h"
#include "core/kernels/attention.h"
#include "core/ops/attention_checks.h"

namespace cairn {
namespace {

int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }

// x [B, N, H, any] by residue classes of its positions: [B, ceil(N / classes), classes H, any], where row a of head
// c H + h is position a classes + c. This is the same memory; zeros are appended if classes does not divide N.
Tensor in_classes(const Tensor& x, int64_t classes) {
  const int64_t rows = ceil_div(x.size(1), classes), missing = rows * classes - x.size(1);
  const Tensor more = Tensor::zeros(x.shape().with(1, missing), x.dtype(), x.device());
  const Tensor whole = missing > 0 ? concat({x, more}, 1).value() : x;
  return whole.reshape({x.size(0), rows, classes * x.size(2), x.size(3)});
}
// Its inverse: the first N positions of x.
Tensor in_order(const Tensor& x, int64_t classes, int64_t N) {
  const Tensor whole = x.reshape({x.size(0), x.size(1) * classes, x.size(2) / classes, x.size(3)});
  return whole.size(1) > N ? slice(whole, 1, 0, N).value() : whole;
}
// [B, H, N] -> [B, N, H, 1], and back.
Tensor heads_last(const Tensor& x) {
  return permute(x, {0, 2, 1}).value().reshape({x.size(0), x.size(2), x.size(1), 1});
}
Tensor heads_first(const Tensor& x) { return permute(x.reshape({x.size(0), x.size(1), x.size(2)}), {0, 2, 1}); }

// A set of keys for the kernels, to which each residue class is a sequence of its own.
struct Part {
  int64_t classes;
  AttentionSize size;
  Mask mask;
  Dropout dropout;
  Tensor query_lengths, key_lengths;  // where zeros are appended, which are neither queries nor keys

  Part(const KeySet& set, const AttentionSize& whole, const AttentionOptions& options, Device device)
      : classes(std::clamp<int64_t>(set.classes, 1, std::max<int64_t>({1, whole.N, whole.S}))),
        size(whole),
        mask(kernel_mask(options.mask, whole)),
        dropout{set.dropout.p, set.dropout.draw.for_kernel(classes * whole.H)} {
    check<UsageError>(set.classes >= 1, "joined_attention: classes = ", set.classes, ", expected at least 1");
    size.H *= classes, size.N = ceil_div(whole.N, classes), size.S = ceil_div(whole.S, classes);
    const auto bound = [&](const int32_t*& lengths, int64_t n) {
      if (lengths || n % classes == 0) return Tensor();
      const Tensor all = Tensor::full({whole.B}, double(n), DType::int32, device);
      lengths = all.data<int32_t>();
      return all;
    };
    query_lengths = bound(mask.query_lengths, whole.N), key_lengths = bound(mask.key_lengths, whole.S);
    mask.pattern = set.pattern;
    mask.classes = classes, mask.heads = std::max<int64_t>(1, whole.H);
    mask.allowed_class = mask.allowed_query + mask.allowed_key;
    mask.allowed_query *= classes, mask.allowed_key *= classes;
  }
  template <class T>
  AttentionOperands<T> operands(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return {size, head_view<T>(q), head_view<T>(k), head_view<T>(v), mask, dropout};
  }
};

// out [B, N, H, M] and logsumexp [B, N, H, 1] become those of attention to their keys and to other ones.
void join(Tensor& out, Tensor& logsumexp, const Tensor& other, const Tensor& other_logsumexp) {
  const Tensor lowest = Tensor::full({}, std::numeric_limits<float>::lowest(), out.dtype(), out.device());
  const Variable shift = maximum(maximum(logsumexp, other_logsumexp), lowest);
  const Variable a = exp(logsumexp - shift), b = exp(other_logsumexp - shift);
  out = out * divide_or_zero(a, a + b) + other * divide_or_zero(b, a + b);
  logsumexp = shift + log(a + b);
}

}  // namespace

// With s_ij = scale q_i . k_j and z_r the logsumexp of s_ij over set r, attention_forward computes o_r = sum over the
// set of e^(s_ij - z_r) v_j. The softmax over the keys of all sets is the weighted sum
//
//   z = logsumexp over r of z_r,  out_i = sum over r of e^(z_r - z) o_r = sum over all j of e^(s_ij - z) v_j
//
// As in chunk_attention.cpp, attention_backward of a set, given z and out instead of z_r and o_r, computes what
// the set adds to the gradients.
Variable joined_attention(const Variable& q, const Variable& k, const Variable& v, const std::vector<KeySet>& sets,
                          const AttentionOptions& options) {
  const AttentionSize size = kernel_size(expect_attention("joined_attention", q, k, v, options), options);
  check(!sets.empty() && options.mask.pattern.all() && !options.dropout.active(),
        "joined_attention: expected sets of keys, and no pattern or dropout but theirs");
  if (sets.size() == 1 && sets[0].classes == 1) {  // nothing to join
    AttentionOptions one = options;
    one.mask.pattern = sets[0].pattern;
    one.dropout = sets[0].dropout;
    return attention(q, k, v, one);
  }
  std::vector<Part> parts;
  for (const KeySet& set : sets) parts.emplace_back(set, size, options, q.device());
  const DType sums = sums_of(q);
  Tensor out, logsumexp;
  for (const Part& part : parts) {
    const Tensor q_rows = in_classes(q, part.classes), k_rows = in_classes(k, part.classes);
    const Tensor v_rows = in_classes(v, part.classes);
    Tensor x({size.B, part.size.N, part.size.H, size.M}, q.dtype(), q.device());
    Tensor z({size.B, part.size.H, part.size.N}, sums, q.device());
    CAIRN_RUN("attention", x,
              attention_forward<T>(stream, part.operands<T>(q_rows, k_rows, v_rows), head_view<T>(x),
                                   z.mutable_data<Accum<T>>()));
    x = in_order(x, part.classes, size.N).cast(sums), z = in_order(heads_last(z), part.classes, size.N);
    if (out.defined()) {
      join(out, logsumexp, x, z);
    } else {
      out = x, logsumexp = z;
    }
  }
  out = out.cast(q.dtype());
  return record("joined_attention", out, {q, k, v},
                [size, parts, q = SavedTensor(q), k = SavedTensor(k), v = SavedTensor(v), out = SavedTensor(out),
                 options = saved_options(options), logsumexp](const Tensor& g) -> Gradients {
                  options();
                  Gradients all;
                  for (const Part& part : parts) {
                    const auto rows = [&](const Tensor& x) { return in_classes(x, part.classes); };
                    const Tensor q_rows = rows(q()), k_rows = rows(k()), v_rows = rows(v()), out_rows = rows(out()),
                                 g_rows = rows(g), z = heads_first(rows(logsumexp));
                    Tensor dq = empty_like(q_rows), dk = empty_like(k_rows), dv = empty_like(v_rows);
                    Part written = part;
                    written.size = unless_empty(part.size, dq.elements() + dk.elements() + dv.elements());
                    CAIRN_RUN("attention", g,
                              attention_backward<T>(stream, written.operands<T>(q_rows, k_rows, v_rows),
                                                    head_view<T>(out_rows), z.data<Accum<T>>(), head_view<T>(g_rows),
                                                    head_view<T>(dq), head_view<T>(dk), head_view<T>(dv)));
                    const DType type = logsumexp.dtype();  // of the sums
                    const Gradients more{in_order(dq, part.classes, size.N).cast(type),
                                         in_order(dk, part.classes, size.S).cast(type),
                                         in_order(dv, part.classes, size.S).cast(type)};
                    if (all.empty()) {
                      all = more;
                    } else {
                      for (size_t i = 0; i < more.size(); ++i) accumulate(all[i], more[i]);
                    }
                  }
                  for (Tensor& x : all) x = x.cast(g.dtype());
                  return all;
                });
}

}  // namespace cairn
