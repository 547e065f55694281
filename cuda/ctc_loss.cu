// CTC (Graves et al. 2006): minus the log probability of a target, summed over its alignments to frames, and its
// gradient. core/kernels/ctc_loss.h has the equations.
//
// logits, dlogits [batch, frames, classes], loss, dloss [batch] in float32 or bfloat16; logsumexp, alpha [batch,
// frames, states] and all arithmetic in float32, the sum of what frames share in float64. alpha of a frame is relative
// to the largest of the frame before.
//
// Launch. The logits' logsumexp: a warp takes a frame of up to 1024 classes, a block of 256 threads a longer one.
// alpha, and beta with the states' shares: a block takes a sequence and goes from frame to frame; its threads take the
// states, and a barrier stands between two frames. The gradient: frames are rows again. Each label of the target
// belongs to the thread of its first position, which adds the shares of all its positions in their order. All lanes
// add the blank's.
// Traffic of n logits of e bytes and m = batch * frames * states numbers: forward e n + 8 m, backward 2 e n + 20 m.
// Bound by the latency of a frame, not by memory: sequences are few, and their frames come one after another.
#include "core/kernels/ctc_loss.h"

#include <cmath>

#include "core/workspace.h"
#include "cuda/common.cuh"

namespace cairn::gpu {
namespace {

constexpr int sequence_threads = 256;

__device__ float log_sum_exp(float a, float b, float c) {
  const float shift = finite_shift(fmaxf(a, fmaxf(b, c)));
  return shift + logf(exp_approx(a - shift) + exp_approx(b - shift) + exp_approx(c - shift));
}

// The logits of a frame, whose softmax are probabilities.
template <class T>
struct Frame {
  const T* logits;
  int64_t classes;
  float logsumexp;

  __device__ Frame(const CtcSize& size, const T* all_logits, const float* all_logsumexp, int64_t frame)
      : logits(all_logits + frame * size.classes), classes(size.classes), logsumexp(all_logsumexp[frame]) {}

  __device__ float log_probability(int32_t label) const {
    return label >= 0 && label < classes ? float(logits[label]) - logsumexp : -INFINITY;
  }
};

template <class T>
__global__ void __launch_bounds__(sequence_threads)
    go_forward(CtcSize size, CtcTargets targets, const T* logits, const float* logsumexp, float* alpha, T* loss) {
  const int64_t sequence = blockIdx.x;
  const CtcStates states(size, targets, sequence);
  float* const rows = alpha + sequence * size.frames * size.states();
  double log_shared = 0;  // what was taken from all states so far
  float shift = 0;        // what is taken from them next
  for (int64_t t = 0; t < states.frames; ++t) {
    const Frame<T> frame(size, logits, logsumexp, sequence * size.frames + t);
    float* const next = rows + t * size.states();
    const float* const row = next - size.states();
    // Before the first frame an alignment stands in state 0, which leads to states 0 and 1.
    const auto before = [&](int64_t s) { return t > 0 ? row[s] : s == 0 ? 0.0f : -INFINITY; };
    float largest = -INFINITY;
    for (int64_t s = threadIdx.x; s < states.count; s += sequence_threads) {
      const float sum =
          log_sum_exp(before(s), s >= 1 ? before(s - 1) : -INFINITY, states.may_skip_to(s) ? before(s - 2) : -INFINITY);
      next[s] = sum - shift + frame.log_probability(states.label(s));
      largest = fmaxf(largest, next[s]);
    }
    log_shared += shift;
    shift = finite_shift(block_reduce(largest, -INFINITY, Max{}));  // and all states are written
  }
  if (threadIdx.x > 0) return;
  const float* const last = rows + (states.frames - 1) * size.states() + states.count - 1;
  float sum = states.count == 1 ? 0.0f : -INFINITY;  // without frames
  if (states.frames > 0) sum = log_sum_exp(last[0], states.count > 1 ? last[-1] : -INFINITY, -INFINITY);
  loss[sequence] = T(float(-(log_shared + double(sum))));
}

// shares [batch, frames, states]: of alignments, in each state at each frame. betas [batch, 2, states]: for a frame and
// the next.
template <class T>
__global__ void __launch_bounds__(sequence_threads)
    go_backward(CtcSize size, CtcTargets targets, const T* logits, const float* logsumexp, const float* alpha,
                float* betas, float* shares) {
  const int64_t sequence = blockIdx.x;
  const CtcStates states(size, targets, sequence);
  float* const both = betas + sequence * 2 * size.states();
  for (int64_t s = threadIdx.x; s < states.count; s += sequence_threads)
    both[(states.frames + 1) % 2 * size.states() + s] = states.ends(s) ? 0.0f : -INFINITY;
  __syncthreads();
  for (int64_t t = states.frames - 1; t >= 0; --t) {
    const int64_t row = sequence * size.frames + t;
    const Frame<T> frame(size, logits, logsumexp, row);
    const float *const reached = alpha + row * size.states(), *const beta = both + t % 2 * size.states();
    float *const share = shares + row * size.states(), *const earlier = both + (t + 1) % 2 * size.states();
    float largest = -INFINITY, largest_beta = -INFINITY;
    for (int64_t s = threadIdx.x; s < states.count; s += sequence_threads) {
      share[s] = reached[s] + beta[s];
      largest = fmaxf(largest, share[s]);
      largest_beta = fmaxf(largest_beta, beta[s]);
    }
    largest = finite_shift(block_reduce(largest, -INFINITY, Max{}));
    const float shift = finite_shift(block_reduce(largest_beta, -INFINITY, Max{}));
    const auto emitted = [&](int64_t s) {
      return s < states.count ? beta[s] + frame.log_probability(states.label(s)) : -INFINITY;
    };
    float sum = 0;
    for (int64_t s = threadIdx.x; s < states.count; s += sequence_threads) {
      share[s] = exp_approx(share[s] - largest);
      sum += share[s];
      earlier[s] =
          log_sum_exp(emitted(s), emitted(s + 1), states.may_skip_to(s + 2) ? emitted(s + 2) : -INFINITY) - shift;
    }
    sum = block_reduce(sum, 0.0f, Sum{});  // and all of `earlier` is written
    for (int64_t s = threadIdx.x; s < states.count; s += sequence_threads) share[s] /= sum;
  }
}

template <class T, int threads>
__global__ void __launch_bounds__(threads_a_block<threads>)
    gradient(CtcSize size, CtcTargets targets, const T* logits, const float* logsumexp, const float* shares,
             const float* alpha, const T* dloss, T* dlogits) {
  each_row<threads>(size.batch * size.frames, [&](int64_t row) {
    const int64_t sequence = row / size.frames;
    const CtcStates states(size, targets, sequence);
    T* const out = dlogits + row * size.classes;
    const int64_t last = sequence * size.frames + states.frames - 1;
    const bool counts = row <= last && states.any_alignment(alpha + last * size.states());
    const Frame<T> frame(size, logits, logsumexp, row);
    const float g = float(dloss[sequence]);
    const auto write = [&](int64_t k, float share) {
      out[k] = T(g * (exp_approx(float(frame.logits[k]) - frame.logsumexp) - share));
    };
    for (int64_t k = row_thread<threads>(); k < size.classes; k += threads)
      if (counts)
        write(k, 0);
      else
        out[k] = T(0.0f);
    if (!counts) return;          // all threads of the row
    if constexpr (threads == 32)  // the elements below are written by other threads
      __syncwarp();
    else
      __syncthreads();
    const float* const share = shares + row * size.states();
    float of_blank = 0;
    for (int64_t s = 2 * row_thread<threads>(); s < states.count; s += 2 * threads) of_blank += share[s];
    of_blank = row_reduce<threads>(of_blank, 0.0f, Sum{});
    if (row_thread<threads>() == 0) write(states.blank, of_blank);
    for (int64_t s = 1 + 2 * row_thread<threads>(); s < states.count; s += 2 * threads) {
      const int32_t label = states.label(s);
      bool is_first = label >= 0 && label < size.classes && label != states.blank;
      for (int64_t other = 1; other < s && is_first; other += 2) is_first = states.label(other) != label;
      if (!is_first) continue;
      float sum = 0;
      for (int64_t same = s; same < states.count; same += 2)
        if (states.label(same) == label) sum += share[same];
      write(label, sum);
    }
  });
}

}  // namespace

template <class T>
void ctc_loss_forward(Stream stream, CtcSize size, const CtcTargets& targets, const T* logits, Accum<T>* logsumexp,
                      Accum<T>* alpha, T* loss) {
  logsumexp_of_rows(stream, {size.batch * size.frames, size.classes}, logits, logsumexp);
  if (size.batch > 0)
    launch(go_forward<T>, {size.batch, sequence_threads, 0, stream}, size, targets, logits, logsumexp, alpha, loss);
}

template <class T>
void ctc_loss_backward(Stream stream, CtcSize size, const CtcTargets& targets, const T* logits,
                       const Accum<T>* logsumexp, const Accum<T>* alpha, const T* dloss, T* dlogits) {
  const Rows rows{size.batch * size.frames, size.classes};
  if (rows.rows == 0) return;
  Workspace workspace(Device::cuda);
  float* const betas = workspace.take<float>(size.batch * 2 * size.states());
  float* const shares = workspace.take<float>(rows.rows * size.states());
  launch(go_backward<T>, {size.batch, sequence_threads, 0, stream}, size, targets, logits, logsumexp, alpha, betas,
         shares);
  launch_rows(stream, rows, false, [&]<int threads, bool>(const Launch& shape) {
    launch(gradient<T, threads>, shape, size, targets, logits, logsumexp, shares, alpha, dloss, dlogits);
  });
}

CAIRN_GPU_TYPES(ctc_loss_forward)
CAIRN_GPU_TYPES(ctc_loss_backward)

}  // namespace cairn::gpu
