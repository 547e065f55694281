#pragma once
// CTC (Graves et al. 2006): how probable a target is, summed over all of its alignments to the frames of a sequence.
#include <cmath>
#include <cstdint>

#include "core/dispatch.h"
#include "core/host_device.h"

namespace cairn {

struct CtcSize {
  int64_t batch, frames, classes, labels;  // the longest sequence's frames and labels
  int32_t blank;

  CAIRN_HD int64_t states() const { return 2 * labels + 1; }
};

// What is known of each sequence. Lengths and labels that are out of range were refused on the CPU; on CUDA they are
// clamped, and such a label has probability 0.
struct CtcTargets {
  const int32_t *labels, *frames, *lengths;  // [batch, labels], [batch], [batch]
};

// The states of one sequence: its labels with a blank before, between and behind them. An alignment begins in one of
// the first two states, ends in one of the last two, and from frame to frame stays, or goes on by one state, or by two
// where may_skip_to() says so.
struct CtcStates {
  const int32_t* labels;
  int64_t count, frames;
  int32_t blank;

  CAIRN_HD CtcStates(const CtcSize& size, const CtcTargets& targets, int64_t sequence)
      : labels(targets.labels + sequence * size.labels),
        count(2 * clamped(targets.lengths[sequence], size.labels) + 1),
        frames(clamped(targets.frames[sequence], size.frames)),
        blank(size.blank) {}

  CAIRN_HD int32_t label(int64_t state) const { return state % 2 == 1 ? labels[state / 2] : blank; }
  // Over a blank, between two labels that differ.
  CAIRN_HD bool may_skip_to(int64_t state) const {
    return state % 2 == 1 && state >= 3 && state < count && labels[state / 2] != labels[state / 2 - 1];
  }
  CAIRN_HD bool ends(int64_t state) const { return state >= count - 2; }
  // Does any alignment reach the end? `alpha`: of the last frame.
  template <class T>
  CAIRN_HD bool any_alignment(const T* alpha) const {
    return alpha[count - 1] != T(-INFINITY) || (count > 1 && alpha[count - 2] != T(-INFINITY));
  }

 private:
  CAIRN_HD static int64_t clamped(int64_t length, int64_t longest) {
    return length < 0 ? 0 : length > longest ? longest : length;
  }
};

CAIRN_KERNELS(
    // With y = softmax(x) over the classes, and l the states' labels:
    //   alpha_t(s) = log y_t(l_s) + logsumexp(alpha_{t-1}(s), alpha_{t-1}(s-1), alpha_{t-1}(s-2) if it may skip)
    //   loss = -logsumexp of alpha of the last two states in the last frame; infinity if no alignment fits
    // Kept for the gradient: logsumexp [batch, frames] of the logits, and alpha [batch, frames, states] without a
    // summand that all states of a frame share, so that long sequences lose no digits.
    template <class T> void ctc_loss_forward(Stream, CtcSize, const CtcTargets&, const T* logits, Accum<T>* logsumexp,
                                             Accum<T>* alpha, T* loss);
    // With beta_t(s) = logsumexp(beta_{t+1}(r) + log y_{t+1}(l_r)) over the states r that follow s, and the share of
    // alignments in state s at frame t, p_t(s) = softmax over s of alpha_t(s) + beta_t(s):
    //   dx_tk = dloss (y_tk - sum of p_t(s) over states s of label k, in their order)
    // 0 beyond a sequence's frames, and in sequences of infinite loss.
    template <class T>
    void ctc_loss_backward(Stream, CtcSize, const CtcTargets&, const T* logits, const Accum<T>* logsumexp,
                           const Accum<T>* alpha, const T* dloss, T* dlogits);)

}  // namespace cairn
