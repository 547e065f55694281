#include "core/kernels/ctc_loss.h"

#include "core/dispatch.h"
#include "core/ops.h"
#include "core/ops/checks.h"

namespace cairn {
namespace {

// The sizes B, T, K and U.
Sizes check_operands(const Tensor& logits, const Tensor& targets, const Tensor& frames, const Tensor& target_lengths,
                     int blank) {
  const Sizes s = expect("ctc_loss", {{"logits", logits, "B T K"},
                                      of_type(DType::int32, "targets", targets, "B U"),
                                      of_type(DType::int32, "frames", frames, "B"),
                                      of_type(DType::int32, "target_lengths", target_lengths, "B")});
  check(blank >= 0 && blank < s['K'], "ctc_loss: blank ", blank, " is no class (there are ", s['K'], ")");
  check_values("ctc_loss", "frames", frames, 0, s['T']);
  check_values("ctc_loss", "target_lengths", target_lengths, 0, s['U']);
  if (targets.device() != Device::cpu) return s;
  for (int64_t b = 0; b < s['B']; ++b)
    for (int64_t u = 0; u < target_lengths.data<int32_t>()[b]; ++u) {
      const int32_t label = targets.data<int32_t>()[b * s['U'] + u];
      check(label >= 0 && label < s['K'] && label != blank, "ctc_loss: label ", label, " at position ", u,
            " of sequence ", b, " is ", label == blank ? "the blank" : concat("no class (there are ", s['K'], ")"));
    }
  return s;
}

CtcSize size_of(const Sizes& s, int blank) { return {s['B'], s['T'], s['K'], s['U'], blank}; }

}  // namespace

CtcLoss ctc_loss(const Tensor& logits, const Tensor& targets, const Tensor& frames, const Tensor& target_lengths,
                 int blank) {
  const Sizes s = check_operands(logits, targets, frames, target_lengths, blank);
  const CtcSize size = size_of(s, blank);
  const CtcTargets what{targets.data<int32_t>(), frames.data<int32_t>(), target_lengths.data<int32_t>()};
  CtcLoss result{Tensor({size.batch}, logits.dtype(), logits.device()),
                 Tensor({size.batch, size.frames}, sums_of(logits), logits.device()),
                 Tensor({size.batch, size.frames, size.states()}, sums_of(logits), logits.device())};
  CAIRN_RUN("ctc_loss", logits,
            ctc_loss_forward<T>(stream, size, what, logits.data<T>(), result.logsumexp.mutable_data<Accum<T>>(),
                                result.alpha.mutable_data<Accum<T>>(), result.loss.mutable_data<T>()));
  return result;
}

Tensor ctc_loss_backward(const Tensor& logits, const Tensor& targets, const Tensor& frames,
                         const Tensor& target_lengths, int blank, const CtcLoss& saved, const Tensor& dloss) {
  const Sizes s = expect("ctc_loss",
                         {of_type(sums_of(logits), "the saved logsumexp", saved.logsumexp, "B T"),
                          of_type(sums_of(logits), "the saved alpha", saved.alpha, "B T S"),
                          {"the gradient", dloss, "B"}},
                         check_operands(logits, targets, frames, target_lengths, blank));
  const CtcSize size = size_of(s, blank);
  check(s['S'] == size.states(), "ctc_loss: expected the saved alpha of ", size.states(), " states, got ", s['S']);
  const CtcTargets what{targets.data<int32_t>(), frames.data<int32_t>(), target_lengths.data<int32_t>()};
  Tensor dlogits = empty_like(logits);
  CAIRN_RUN("ctc_loss", logits,
            ctc_loss_backward<T>(stream, size, what, logits.data<T>(), saved.logsumexp.data<Accum<T>>(),
                                 saved.alpha.data<Accum<T>>(), dloss.data<T>(), dlogits.mutable_data<T>()));
  return dlogits;
}

}  // namespace cairn
