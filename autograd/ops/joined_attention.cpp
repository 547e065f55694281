// Attention over several sets of keys: each set has a kernel of its own, and the results are joined.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "autograd/ops.h"
#include "autograd/ops/improved_clustered.h"
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

// What the queries get from a set: o_r [B, N, H, M] and z_r [B, N, H, 1] (below), in the type of sums.
struct Share {
  Tensor out, logsumexp;
};

// A set of keys and its kernel. gradient() is that of q, k and v for the gradient g of the joined output `out`, with
// the joined logsumexp z.
struct Part {
  SavedTensor q, k, v;
  std::function<const AttentionOptions&()> options;
  AttentionSize size;
  DType sums;

  explicit Part(const KeySet& set)
      : q(set.q),
        k(set.k),
        v(set.v),
        options(saved_options(set.options)),
        size(kernel_size(expect_attention("joined_attention", set.q, set.k, set.v, set.options), set.options)),
        sums(sums_of(set.q)) {}
  virtual ~Part() = default;
  virtual Share share() = 0;
  virtual Gradients gradient(const Tensor& g, const Tensor& out, const Tensor& z) const = 0;
};

// All keys that the mask allows. Each residue class is a sequence of its own.
struct AllKeys : Part {
  int64_t classes;
  AttentionSize rows;  // of a class
  Mask mask;
  Dropout dropout;
  Tensor query_lengths, key_lengths;  // where zeros are appended, which are neither queries nor keys

  explicit AllKeys(const KeySet& set)
      : Part(set),
        classes(std::clamp<int64_t>(set.classes, 1, std::max<int64_t>({1, size.N, size.S}))),
        rows(size),
        mask(kernel_mask(set.options.mask, size)),
        dropout{set.options.dropout.p, set.options.dropout.draw.for_kernel(classes * size.H)} {
    check<UsageError>(set.classes >= 1, "joined_attention: classes = ", set.classes, ", expected at least 1");
    rows.H *= classes, rows.N = ceil_div(size.N, classes), rows.S = ceil_div(size.S, classes);
    const auto bound = [&](const int32_t*& lengths, int64_t n) {
      if (lengths || n % classes == 0) return Tensor();
      const Tensor all = Tensor::full({size.B}, double(n), DType::int32, q().device());
      lengths = all.data<int32_t>();
      return all;
    };
    query_lengths = bound(mask.query_lengths, size.N), key_lengths = bound(mask.key_lengths, size.S);
    mask.classes = classes, mask.heads = std::max<int64_t>(1, size.H);
    mask.allowed_class = mask.allowed_query + mask.allowed_key;
    mask.allowed_query *= classes, mask.allowed_key *= classes;
  }
  template <class T>
  AttentionOperands<T> operands(const AttentionSize& of, const Tensor& qs, const Tensor& ks, const Tensor& vs) const {
    return {of, head_view<T>(qs), head_view<T>(ks), head_view<T>(vs), mask, dropout};
  }
  Share share() override {
    const Tensor q_rows = in_classes(q(), classes), k_rows = in_classes(k(), classes),
                 v_rows = in_classes(v(), classes);
    Tensor x({size.B, rows.N, rows.H, size.M}, q_rows.dtype(), q_rows.device());
    Tensor z({size.B, rows.H, rows.N}, sums, q_rows.device());
    CAIRN_RUN("attention", x,
              attention_forward<T>(stream, operands<T>(rows, q_rows, k_rows, v_rows), head_view<T>(x),
                                   z.mutable_data<Accum<T>>()));
    return {in_order(x, classes, size.N).cast(sums), in_order(heads_last(z), classes, size.N)};
  }
  Gradients gradient(const Tensor& g, const Tensor& out, const Tensor& z) const override {
    const Tensor q_rows = in_classes(q(), classes), k_rows = in_classes(k(), classes),
                 v_rows = in_classes(v(), classes), out_rows = in_classes(out, classes),
                 g_rows = in_classes(g, classes), z_rows = heads_first(in_classes(z, classes));
    Tensor dq = empty_like(q_rows), dk = empty_like(k_rows), dv = empty_like(v_rows);
    const AttentionSize written = unless_empty(rows, dq.elements() + dk.elements() + dv.elements());
    CAIRN_RUN("attention", g,
              attention_backward<T>(stream, operands<T>(written, q_rows, k_rows, v_rows), head_view<T>(out_rows),
                                    z_rows.data<Accum<T>>(), head_view<T>(g_rows), head_view<T>(dq), head_view<T>(dk),
                                    head_view<T>(dv)));
    return {in_order(dq, classes, size.N), in_order(dk, classes, size.S), in_order(dv, classes, size.S)};
  }
};

// All of them but `without`: what centroid_topk calls the rest, with A the softmax over all of the set's keys and m the
// sum of A over `without`. So e^(z_r) = (1 - m) e^z, and o_r = rest / (1 - m).
struct OtherKeys : Part {
  SavedTensor without;

  explicit OtherKeys(const KeySet& set) : Part(set), without(set.without) {}
  Share share() override {
    const CentroidTopK split = centroid_topk(q(), k(), v(), without().size(-1), true, options(), without());
    const Tensor left = maximum(1 - heads_last(split.mass.cast(sums)), Tensor::zeros({}, sums, q().device()));
    return {divide_or_zero(split.rest.cast(sums), left), heads_last(split.logsumexp) + log(left)};
  }
  // centroid_topk_backward computes dS_l = A (dA_l - m dm - rest . g), where dA_l = dm for l in `without`. With z in
  // place of its logsumexp, A has the joined weights. With m = 1, rest = 0 and dm = g . out, dS is 0 for l in
  // `without`, and A (g . v_l - g . out) for the others.
  Gradients gradient(const Tensor& g, const Tensor& out, const Tensor& z) const override {
    const Shape per_query{size.B, size.H, size.N};
    const Tensor dm = heads_first(sum(g.cast(sums) * out.cast(sums), {3}, true)).cast(g.dtype());
    const CentroidTopK saved{without(), heads_first(z), Tensor::full(per_query, 1, g.dtype(), g.device()),
                             Tensor::zeros(g.shape(), g.dtype(), g.device())};
    Tensor dk = Tensor::zeros(k().shape(), g.dtype(), g.device()),
           dv = Tensor::zeros(v().shape(), g.dtype(), g.device());
    const Tensor dq = centroid_topk_backward(q(), k(), v(), options(), saved, dm, g, dk, dv);
    return {dq, dk, dv};
  }
};

// Only the keys `only` of the query's cluster.
struct ListedKeys : Part {
  Clusters clusters;
  SavedTensor only;
  Share given;

  explicit ListedKeys(const KeySet& set) : Part(set), clusters(set.clusters), only(set.only) {}
  Share share() override {
    Tensor z;
    const Tensor x = topk_attention_forward(q(), k(), v(), clusters, only(), {}, {}, options(), &z);
    return given = {x.cast(sums), heads_last(z)};
  }
  // The weights of the set are w = e^(z_r - z) of all. So o_r has the gradient w g, and z_r has w (g . o_r - g . out).
  Gradients gradient(const Tensor& g, const Tensor& out, const Tensor& z) const override {
    const Tensor w = exp(given.logsumexp - z), g_sums = g.cast(sums);
    const Tensor dz = w * sum(g_sums * (given.out - out.cast(sums)), {3}, true);
    const auto d = topk_attention_backward(q(), k(), v(), clusters, only(), {}, options(),
                                           Tensor(w * g_sums).cast(g.dtype()), heads_first(dz));
    return {d.dq, d.dk, d.dv};
  }
};

// out and logsumexp become those of attention to their keys and to other ones.
void join(Share& all, const Share& other) {
  const Tensor lowest = Tensor::full({}, std::numeric_limits<float>::lowest(), all.out.dtype(), all.out.device());
  const Variable shift = maximum(maximum(all.logsumexp, other.logsumexp), lowest);
  const Variable a = exp(all.logsumexp - shift), b = exp(other.logsumexp - shift);
  all.out = all.out * divide_or_zero(a, a + b) + other.out * divide_or_zero(b, a + b);
  all.logsumexp = shift + log(a + b);
}

}  // namespace

// With s_ij = scale q_i . k_j and z_r the logsumexp of s_ij over set r, the set's kernel computes o_r = sum over the
// set of e^(s_ij - z_r) v_j. The softmax over the keys of all sets is the weighted sum
//
//   z = logsumexp over r of z_r,  out_i = sum over r of e^(z_r - z) o_r = sum over all j of e^(s_ij - z) v_j
//
// As in chunk_attention.cpp, attention_backward of a set, given z and out instead of z_r and o_r, computes what
// the set adds to the gradients.
Variable joined_attention(const std::vector<KeySet>& sets) {
  check(!sets.empty(), "joined_attention: expected sets of keys, got none");
  const KeySet& first = sets[0];
  if (sets.size() == 1 && first.classes == 1 && !first.without.defined() && !first.only.defined())  // nothing to join
    return attention(first.q, first.k, first.v, first.options);
  std::vector<std::shared_ptr<Part>> parts;
  std::vector<Variable> inputs;
  Share all;
  for (const KeySet& set : sets) {
    if (set.only.defined())
      parts.push_back(std::make_shared<ListedKeys>(set));
    else if (set.without.defined())
      parts.push_back(std::make_shared<OtherKeys>(set));
    else
      parts.push_back(std::make_shared<AllKeys>(set));
    const Share share = parts.back()->share();
    check(!all.out.defined() || (share.out.shape() == all.out.shape() && set.q.dtype() == first.q.dtype()),
          "joined_attention: a set gives ", share.out.shape(), " of ", name(set.q.dtype()), ", expected ",
          all.out.shape(), " of ", name(first.q.dtype()), ", as the first");
    if (all.out.defined())
      join(all, share);
    else
      all = share;
    inputs.insert(inputs.end(), {set.q, set.k, set.v});
  }
  const Tensor out = all.out.cast(first.q.dtype());
  return record("joined_attention", out, inputs,
                [parts, out = SavedTensor(out), z = all.logsumexp](const Tensor& g) -> Gradients {
                  Gradients gradients;
                  for (const auto& part : parts) {
                    part->options();  // has the mask changed?
                    for (const Tensor& x : part->gradient(g, out(), z)) gradients.push_back(x);
                  }
                  return gradients;
                });
}

}  // namespace cairn
