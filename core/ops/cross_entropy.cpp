#include "core/ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/cross_entropy.h"
#include "core/ops/checks.h"

namespace cairn {

// Checks logits [..., C] and targets [...]. Error (on the CPU): a target is no class.
static Sizes check_targets(const Tensor& logits, const Tensor& targets) {
  const Sizes s =
      expect("cross_entropy", {{"logits", logits, "*R C"}, of_type(DType::int32, "targets", targets, "*R")});
  if (targets.device() != Device::cpu) return s;
  const int32_t* target = targets.data<int32_t>();
  for (int64_t i = 0; i < targets.elements(); ++i)
    check(target[i] < s['C'], "cross_entropy: target ", target[i], " at position ", i, " is no class (there are ",
          s['C'], "); a negative one is ignored");
  return s;
}

CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Sizes s = check_targets(logits, targets);
  CrossEntropy result{Tensor({}, logits.dtype(), logits.device()), Tensor({s['R']}, sums_of(logits), logits.device()),
                      Tensor({}, DType::int32, logits.device())};
  CAIRN_RUN("cross_entropy", logits,
            cross_entropy_forward<T>(stream, Rows{s['R'], s['C']}, logits.data<T>(), targets.data<int32_t>(),
                                     result.logsumexp.mutable_data<Accum<T>>(), result.loss.mutable_data<T>(),
                                     result.count.mutable_data<int32_t>()));
  return result;
}

Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets, const CrossEntropy& saved,
                              const Tensor& dloss) {
  const Sizes s = expect("cross_entropy",
                         {of_type(sums_of(logits), "the saved logsumexp", saved.logsumexp, "R"),
                          of_type(DType::int32, "the saved count", saved.count, ""),
                          {"the gradient", dloss, ""}},
                         check_targets(logits, targets));
  Tensor dlogits = empty_like(logits);
  CAIRN_RUN("cross_entropy", logits,
            cross_entropy_backward<T>(stream, Rows{s['R'], s['C']}, logits.data<T>(), targets.data<int32_t>(),
                                      saved.logsumexp.data<Accum<T>>(), saved.count.data<int32_t>(), dloss.data<T>(),
                                      dlogits.mutable_data<T>()));
  return dlogits;
}

}  // namespace cairn
