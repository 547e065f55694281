#include "core/kernels/ctc_loss.h"

#include <cstdint>

#include "autograd/ops.h"
#include "core/ops/checks.h"

namespace cairn {

// Error (on the CPU): a label that counts is no class or is the blank.
static void check_labels(const Tensor& targets, const Tensor& target_lengths, int64_t classes, int blank) {
  if (targets.device() != Device::cpu) return;
  for (int64_t b = 0; b < targets.size(0); ++b)
    for (int64_t u = 0; u < target_lengths.data<int32_t>()[b]; ++u) {
      const int32_t label = targets.data<int32_t>()[b * targets.size(1) + u];
      check(label >= 0 && label < classes && label != blank, "ctc_loss: label ", label, " at position ", u,
            " of sequence ", b, " is ", label == blank ? "the blank" : concat("no class (there are ", classes, ")"));
    }
}

// dlogits_tk = dloss (softmax(logits)_tk - the share of alignments that emit label k at frame t)
Variable ctc_loss(const Variable& logits, const Tensor& targets, const Tensor& frames, const Tensor& target_lengths,
                  int blank) {
  const Sizes s = expect("ctc_loss", {{"logits", logits, "B T K"},
                                      of_type(DType::int32, "targets", targets, "B U"),
                                      of_type(DType::int32, "frames", frames, "B"),
                                      of_type(DType::int32, "target_lengths", target_lengths, "B")});
  check(blank >= 0 && blank < s['K'], "ctc_loss: blank ", blank, " is no class (there are ", s['K'], ")");
  check_values("ctc_loss", "frames", frames, 0, s['T']);
  check_values("ctc_loss", "target_lengths", target_lengths, 0, s['U']);
  check_labels(targets, target_lengths, s['K'], blank);

  const CtcSize size{s['B'], s['T'], s['K'], s['U'], blank};
  const DType sums = sums_of(logits);
  Tensor loss({size.batch}, logits.dtype(), logits.device());
  Tensor logsumexp({size.batch, size.frames}, sums, logits.device());
  Tensor alpha({size.batch, size.frames, size.states()}, sums, logits.device());
  const CtcTargets what{targets.data<int32_t>(), frames.data<int32_t>(), target_lengths.data<int32_t>()};
  CAIRN_RUN("ctc_loss", loss,
            ctc_loss_forward<T>(stream, size, what, logits.data<T>(), logsumexp.mutable_data<Accum<T>>(),
                                alpha.mutable_data<Accum<T>>(), loss.mutable_data<T>()));
  return record(
      "ctc_loss", loss, {logits},
      [size, logits = SavedTensor(logits), targets = SavedTensor(targets), frames = SavedTensor(frames),
       lengths = SavedTensor(target_lengths), logsumexp, alpha](const Tensor& g) -> Gradients {
        const CtcTargets saved{targets().data<int32_t>(), frames().data<int32_t>(), lengths().data<int32_t>()};
        Tensor dlogits = empty_like(logits());
        CAIRN_RUN("ctc_loss", g,
                  ctc_loss_backward<T>(stream, size, saved, logits().data<T>(), logsumexp.data<Accum<T>>(),
                                       alpha.data<Accum<T>>(), g.data<T>(), dlogits.mutable_data<T>()));
        return {dlogits};
      });
}

}  // namespace cairn
