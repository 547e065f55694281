#include "core/kernels/cross_entropy.h"

#include <cstdint>

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

// dlogits = (softmax(logits) - one-hot(target)) / number of rows with a target
Variable cross_entropy(const Variable& logits, const Tensor& targets) {
  const Sizes s =
      expect("cross_entropy", {{"logits", logits, "*R C"}, of_type(DType::int32, "targets", targets, "*R")});
  if (targets.device() == Device::cpu) {
    const int32_t* const target = targets.data<int32_t>();
    for (int64_t i = 0; i < targets.elements(); ++i)
      check(target[i] < s['C'], "cross_entropy: target ", target[i], " at position ", i, " is no class (there are ",
            s['C'], "); a negative one is ignored");
  }
  const Rows size{s['R'], s['C']};
  const Device device = logits.device();
  Tensor loss({}, logits.dtype(), device), logsumexp({size.rows}, sums_of(logits), device);
  Tensor count({}, DType::int32, device);
  CAIRN_RUN("cross_entropy", loss,
            cross_entropy_forward<T>(stream, size, logits.data<T>(), targets.data<int32_t>(),
                                     logsumexp.mutable_data<Accum<T>>(), loss.mutable_data<T>(),
                                     count.mutable_data<int32_t>()));
  return record("cross_entropy", loss, {logits},
                [size, logits = SavedTensor(logits), targets = SavedTensor(targets), logsumexp,
                 count](const Tensor& g) -> Gradients {
                  Tensor dlogits = empty_like(logits());
                  CAIRN_RUN("cross_entropy", g,
                            cross_entropy_backward<T>(stream, size, logits().data<T>(), targets().data<int32_t>(),
                                                      logsumexp.data<Accum<T>>(), count.data<int32_t>(), g.data<T>(),
                                                      dlogits.mutable_data<T>()));
                  return {dlogits};
                });
}

}  // namespace cairn
