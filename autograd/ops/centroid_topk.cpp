#include "core/kernels/centroid_topk.h"

#include "autograd/ops/improved_clustered.h"
#include "core/ops/attention_checks.h"

namespace cairn {

// A^c = softmax(scale Q^c K^T), m = sum of A^c over the top keys, B = sum of A^c V over the other keys.
CentroidTopK centroid_topk(const Tensor& centroids, const Tensor& k, const Tensor& v, int64_t top, bool with_rest,
                           const AttentionOptions& options, const Tensor& given) {
  check<UsageError>(top >= 1, "centroid_topk: top = ", top, ", expected at least 1");
  const Sizes s = expect_attention("centroid_topk", centroids, k, v, options,
                                   {optional(of_type(DType::int32, "the given top keys", given, "B H N T"))});
  const AttentionSize size = kernel_size(s, options);
  const Shape rows{size.B, size.H, size.N};
  CentroidTopK result{Tensor({size.B, size.H, size.N, top}, DType::int32, k.device()),
                      Tensor(rows, sums_of(k), k.device()), Tensor(rows, k.dtype(), k.device()), Tensor()};
  if (given.defined()) {
    check(s['T'] == top, "centroid_topk: top = ", top, ", but ", s['T'], " top keys are given");
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

// For fixed top keys:
//   dA^c_l = dm for l in top, else dB . V_l;   dS^c = A^c (dA^c - m dm - B . dB)
//   dQ^c = scale dS^c K,  dK = scale dS^c^T Q^c,  dV_l = sum over centroids of A^c_l dB for l outside top
Tensor centroid_topk_backward(const Tensor& centroids, const Tensor& k, const Tensor& v,
                              const AttentionOptions& options, const CentroidTopK& saved, const Tensor& dmass,
                              const Tensor& drest, Tensor& dk, Tensor& dv) {
  const Sizes s =
      expect_attention("centroid_topk", centroids, k, v, options,
                       {{"the gradient of mass", dmass, "B H N"}, {"the gradient of rest", drest, "B N H M"}});
  const AttentionSize size = kernel_size(s, options);
  Tensor dq = empty_like(centroids);
  const int64_t any = dq.elements() + dk.elements() + dv.elements();
  CAIRN_RUN("centroid_topk", k,
            centroid_topk_backward<T>(stream, operands<T>(unless_empty(size, any), centroids, k, v, options),
                                      saved.topk.size(-1), saved.topk.data<int32_t>(), saved.logsumexp.data<Accum<T>>(),
                                      saved.mass.data<T>(), head_view<T>(saved.rest), dmass.data<T>(),
                                      head_view<T>(drest), head_view<T>(dq), head_view<T>(dk), head_view<T>(dv)));
  return dq;
}

Tensor top_keys(const Tensor& q, const Tensor& k, int64_t top, const AttentionOptions& options) {
  return centroid_topk(q, k, k, top, false, options).topk;
}

}  // namespace cairn
