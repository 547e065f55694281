#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/centroid_topk.h"
#include "core/ops/attention_checks.h"

namespace cairn {

CentroidTopK centroid_topk(const Tensor& centroids, const Tensor& k, const Tensor& v, int64_t top, bool with_rest,
                           const AttentionOptions& options, const Tensor& given) {
  const AttentionSize size = attention_size("centroid_topk", centroids, k, v, options);
  check<UsageError>(top >= 1, "centroid_topk: k = ", top, ", expected at least 1");
  const Shape rows{size.B, size.H, size.N};
  CentroidTopK result{Tensor({size.B, size.H, size.N, top}, DType::int32, k.device()),
                      Tensor(rows, sums_of(k), k.device()), Tensor(rows, k.dtype(), k.device()), Tensor()};
  if (given.defined()) {
    check_top_keys("centroid_topk", "the given top keys", given, result.topk.shape(), size.S, k.device());
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
                                         const Tensor& dmass, const Tensor& drest) {
  const AttentionSize size = attention_size("centroid_topk", centroids, k, v, options);
  const Shape rows{size.B, size.H, size.N};
  check_saved("centroid_topk", size, k, saved.rest, {"the saved logsumexp", saved.logsumexp},
              {"the gradient of rest", drest});
  check_operands("centroid_topk", {{"k", k}, {"the saved mass", saved.mass}, {"the gradient of mass", dmass}});
  check_shape("centroid_topk", "the saved mass", saved.mass, rows);
  check_shape("centroid_topk", "the gradient of mass", dmass, rows);
  check(saved.topk.rank() == 4, "centroid_topk: expected saved top keys [B, H, C, k], got ", saved.topk.shape());
  check_top_keys("centroid_topk", "the saved top keys", saved.topk, {size.B, size.H, size.N, saved.topk.size(3)},
                 size.S, k.device());
  AttentionGradient g{like(centroids), like(k), like(v)};
  CAIRN_RUN("centroid_topk", k,
            centroid_topk_backward<T>(stream, operands<T>(visited(size, elements(g)), centroids, k, v, options),
                                      saved.topk.size(3), saved.topk.data<int32_t>(), saved.logsumexp.data<Accum<T>>(),
                                      saved.mass.data<T>(), head_view<T>(saved.rest), dmass.data<T>(),
                                      head_view<T>(drest), head_view<T>(g.dq), head_view<T>(g.dk), head_view<T>(g.dv)));
  return g;
}

}  // namespace cairn
