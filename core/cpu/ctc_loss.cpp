#include "core/kernels/ctc_loss.h"

#include <algorithm>
#include <limits>

#include "core/cpu/vector.h"
#include "core/parallel.h"
#include "core/workspace.h"

namespace cairn::cpu {
namespace {

template <class T>
constexpr T minus_infinity = -std::numeric_limits<T>::infinity();

// Three numbers that are all minus infinity give minus infinity.
template <class T>
inline T log_sum_exp(T a, T b, T c) {
  T largest = a > b ? a : b;
  largest = c > largest ? c : largest;
  const T shift = finite_shift(largest);
  return shift + logarithm(exponential(a - shift) + exponential(b - shift) + exponential(c - shift));
}

// One sequence, whose rows of states stand between two states that no alignment reaches, on either side.
template <class T>
struct Lattice {
  CtcStates states;
  const T *logits, *logsumexp;  // of its frames
  int64_t classes;
  int32_t* labels;  // [states]
  T* skip;          // [states + 4]: 0 where an alignment may skip to a state, else minus infinity
  T* row;           // [states + 4]
  T* emission;      // [states + 4]: log y_t(l_s)

  Lattice(const CtcSize& size, const CtcTargets& targets, int64_t sequence, const T* all_logits, const T* all_logsumexp,
          Scratch<T>& scratch, Scratch<int32_t>& label_scratch)
      : states(size, targets, sequence),
        logits(all_logits + sequence * size.frames * size.classes),
        logsumexp(all_logsumexp + sequence * size.frames),
        classes(size.classes),
        labels(label_scratch.take(states.count)) {
    const int64_t padded = states.count + 4;
    T* const memory = scratch.take(3 * padded);
    std::fill_n(memory, 3 * padded, minus_infinity<T>);
    skip = memory + 2;
    row = skip + padded;
    emission = row + padded;
    for (int64_t s = 0; s < states.count; ++s) {
      labels[s] = states.label(s);
      if (states.may_skip_to(s)) skip[s] = 0;
    }
  }

  void emit(int64_t frame) {
    const T* const x = logits + frame * classes;
    for (int64_t s = 0; s < states.count; ++s) emission[s] = x[labels[s]] - logsumexp[frame];
  }
  // Takes the largest from all states of the row, and returns it.
  T shift() {
    const T largest = finite_shift(maximum(row, states.count));
    for (int64_t s = 0; s < states.count; ++s) row[s] -= largest;
    return largest;
  }
};

}  // namespace

template <class T>
void ctc_loss_forward(Stream, CtcSize size, const CtcTargets& targets, const T* logits, Accum<T>* logsumexp,
                      Accum<T>* alpha, T* loss) {
  const int64_t classes = size.classes;
  parallel_for(size.batch * size.frames, rows_a_task(classes), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) logsumexp[r] = log_sum_exp(logits + r * classes, classes);
  });
  parallel_tasks(size.batch, [&](int64_t sequence) {
    thread_local Scratch<T> scratch;
    thread_local Scratch<int32_t> label_scratch;
    Lattice<T> lattice(size, targets, sequence, logits, logsumexp, scratch, label_scratch);
    const CtcStates& states = lattice.states;
    T* const row = lattice.row;
    T* next = alpha + sequence * size.frames * size.states();
    double log_shared = 0;  // what was taken from all states
    row[0] = 0;             // before the first frame: from here an alignment goes to state 0 or 1
    for (int64_t t = 0; t < states.frames; ++t, next += size.states()) {
      lattice.emit(t);
      for (int64_t s = 0; s < states.count; ++s)
        next[s] = lattice.emission[s] + log_sum_exp(row[s], row[s - 1], row[s - 2] + lattice.skip[s]);
      std::copy_n(next, states.count, row);
      log_shared += double(lattice.shift());
    }
    const T* const last = row + states.count - 1;
    loss[sequence] = T(-(log_shared + double(log_sum_exp(last[0], last[-1], minus_infinity<T>))));
  });
}

template <class T>
void ctc_loss_backward(Stream, CtcSize size, const CtcTargets& targets, const T* logits, const Accum<T>* logsumexp,
                       const Accum<T>* alpha, const T* dloss, T* dlogits) {
  const int64_t classes = size.classes, of_sequence = size.frames * classes;
  parallel_tasks(size.batch, [&](int64_t sequence) {
    T* const gradient = dlogits + sequence * of_sequence;
    std::fill_n(gradient, of_sequence, T(0));
    thread_local Scratch<T> scratch, share_scratch;
    thread_local Scratch<int32_t> label_scratch;
    Lattice<T> lattice(size, targets, sequence, logits, logsumexp, scratch, label_scratch);
    const CtcStates& states = lattice.states;
    const T* const rows = alpha + sequence * size.frames * size.states();
    if (states.frames == 0 || !states.any_alignment(rows + (states.frames - 1) * size.states())) return;
    T *const beta = lattice.row, *const emission = lattice.emission;
    T* const share = share_scratch.take(states.count);
    for (int64_t s = 0; s < states.count; ++s) beta[s] = states.ends(s) ? T(0) : minus_infinity<T>;
    for (int64_t t = states.frames - 1; t >= 0; --t) {
      const T* const reached = rows + t * size.states();
      for (int64_t s = 0; s < states.count; ++s) share[s] = reached[s] + beta[s];
      const T sum = exponentials(share, states.count, finite_shift(maximum(share, states.count)), share);
      const T *const x = lattice.logits + t * classes, scale = dloss[sequence] / sum;
      T* const out = gradient + t * classes;
      for (int64_t k = 0; k < classes; ++k) out[k] = dloss[sequence] * exponential(x[k] - lattice.logsumexp[t]);
      for (int64_t s = 0; s < states.count; ++s) out[lattice.labels[s]] -= scale * share[s];
      lattice.emit(t);
      for (int64_t s = 0; s < states.count; ++s) emission[s] += beta[s];
      for (int64_t s = 0; s < states.count; ++s)
        beta[s] = log_sum_exp(emission[s], emission[s + 1], emission[s + 2] + lattice.skip[s + 2]);
      lattice.shift();
    }
  });
}

CAIRN_CPU_TYPES(ctc_loss_forward)
CAIRN_CPU_TYPES(ctc_loss_backward)

}  // namespace cairn::cpu
