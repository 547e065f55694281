#include "core/ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/kernels/cross_entropy.h"
#include "core/ops/checks.h"

namespace cairn {

// Checks logits and targets; the rows of logits. Error (on the CPU): a target that is no class.
static Rows check_targets(const Tensor& logits, const Tensor& targets) {
  check_operands("cross_entropy", {{"logits", logits}});
  const Rows size = rows_of("cross_entropy", logits);
  check_tensor("cross_entropy", "targets", targets, DType::int32, logits.device(), logits.shape().without(-1));
  if (targets.device() != Device::cpu) return size;
  const int32_t* target = targets.data<int32_t>();
  for (int64_t i = 0; i < targets.elements(); ++i)
    check(target[i] < size.cols, "cross_entropy: target ", target[i], " at position ", i, " is no class (there are ",
          size.cols, "); a negative one is ignored");
  return size;
}

CrossEntropy cross_entropy(const Tensor& logits, const Tensor& targets) {
  const Rows size = check_targets(logits, targets);
  CrossEntropy result{Tensor({}, logits.dtype(), logits.device()),
                      Tensor({size.rows}, sums_of(logits), logits.device()), Tensor({}, DType::int32, logits.device())};
  CAIRN_RUN("cross_entropy", logits,
            cross_entropy_forward<T>(stream, size, logits.data<T>(), targets.data<int32_t>(),
                                     result.logsumexp.mutable_data<Accum<T>>(), result.loss.mutable_data<T>(),
                                     result.count.mutable_data<int32_t>()));
  return result;
}

Tensor cross_entropy_backward(const Tensor& logits, const Tensor& targets, const CrossEntropy& saved,
                              const Tensor& dloss) {
  const Rows size = check_targets(logits, targets);
  check_tensor("cross_entropy", "the saved logsumexp", saved.logsumexp, sums_of(logits), logits.device(), {size.rows});
  check_tensor("cross_entropy", "the saved count", saved.count, DType::int32, logits.device(), {});
  check_operands("cross_entropy", {{"logits", logits}, {"the gradient", dloss}});
  check_shape("cross_entropy", "the gradient", dloss, {});
  Tensor dlogits = like(logits);
  CAIRN_RUN("cross_entropy", logits,
            cross_entropy_backward<T>(stream, size, logits.data<T>(), targets.data<int32_t>(),
                                      saved.logsumexp.data<Accum<T>>(), saved.count.data<int32_t>(), dloss.data<T>(),
                                      dlogits.mutable_data<T>()));
  return dlogits;
}

}  // namespace cairn
