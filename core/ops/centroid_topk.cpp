#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/centroid_topk.h"
#include "core/ops/attention_checks.h"

namespace cairn {

CentroidTopK centroid_topk(const Tensor& centroids, const Tensor& k, const Tensor& v, int64_t top, bool with_rest,
                           const AttentionOptions& options, const Tensor& given) {
  check<UsageError>(top >= 1, "centroid_topk: k = ", top, ", expected at least 1");
  const Sizes s = expect_attention("centroid_topk", centroids, k, v, options,
                                   {optional(of_type(DType::int32, "the given top keys", given, "B H N T"))});
  const AttentionSize size = kernel_size(s, options);
  const Shape rows{size.B, size.H, size.N};
  CentroidTopK result{Tensor({size.B, size.H, size.N, top}, DType::int32, k.device()),
                      Tensor(rows, sums_of(k), k.device()), Tensor(rows, k.dtype(), k.device()), Tensor()};
  if (given.defined()) {
    check(s['T'] == top, "centroid_topk: k = ", top, ", but ", s['T'], " top keys are given");
    check_top_keys("centroid_topk", given, size.S);
    result.topk.copy_from(given);
  }
  if (with_rest) result.rest = Tensor({size.B, size.N, size.H, size.M}, k.dtype(), k.device());
  CAIRN_RUN(
      "centroid_topk", k,
      centroid_topk_forward<T>(stream, operands<T>(size, centroids, k, v, options), top, !given.defined(),
                               result.topk.mutable_data<int32_t>(), result.logsumexp.mutable_data<Accum<T>>(),
                               result.mass.mutable_data<T>(), with_rest ? head_view<T>(result.rest) : HeadView<T>{}));
  return result;
}

AttentionGradient centroid_topk_backward(const Tensor& centroids, const Tensor& k, const Tensor& v,
                                         const AttentionOptions& options, const CentroidTopK& saved,
                                         const Tensor& dmass, const Tensor& drest, const Tensor& dk, const Tensor& dv) {
  const Sizes s = expect_attention("centroid_topk", centroids, k, v, options,
                                   {of_type(DType::int32, "the saved top keys", saved.topk, "B H N T"),
                                    of_type(sums_of(k), "the saved logsumexp", saved.logsumexp, "B H N"),
                                    {"the saved mass", saved.mass, "B H N"},
                                    {"the saved rest", saved.rest, "B N H M"},
                                    {"the gradient of mass", dmass, "B H N"},
                                    {"the gradient of rest", drest, "B N H M"},
                                    optional({"dk", dk, "B S H D"}),
                                    optional({"dv", dv, "B S H M"})});
  const AttentionSize size = kernel_size(s, options);
  check_top_keys("centroid_topk", saved.topk, size.S);
  check(dk.defined() == dv.defined(), "centroid_topk: expected dk and dv, or neither");
  const bool add = dk.defined();
  AttentionGradient g{empty_like(centroids), add ? dk : empty_like(k), add ? dv : empty_like(v)};
  CAIRN_RUN(
      "centroid_topk", k,
      centroid_topk_backward<T>(stream, operands<T>(unless_empty(size, elements(g)), centroids, k, v, options), s['T'],
                                saved.topk.data<int32_t>(), saved.logsumexp.data<Accum<T>>(), saved.mass.data<T>(),
                                head_view<T>(saved.rest), dmass.data<T>(), head_view<T>(drest), head_view<T>(g.dq),
                                head_view<T>(g.dk), head_view<T>(g.dv), add));
  return g;
}

}  // namespace cairn
