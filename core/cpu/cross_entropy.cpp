#include "core/kernels/cross_entropy.h"

#include <algorithm>

#include "core/cpu/vector.h"
#include "core/parallel.h"

namespace cairn::cpu {

template <class T>
void cross_entropy_forward(Stream, Rows size, const T* logits, const int32_t* targets, Accum<T>* logsumexp, T* loss,
                           int32_t* count) {
  const int64_t cols = size.cols;
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) logsumexp[r] = log_sum_exp(logits + r * cols, cols);
  });
  double sum = 0;
  int32_t counted = 0;
  for (int64_t r = 0; r < size.rows; ++r) {
    if (targets[r] < 0) continue;
    sum += logsumexp[r] - logits[r * cols + targets[r]];
    ++counted;
  }
  *count = counted;
  *loss = counted ? T(sum / counted) : T(0);
}

template <class T>
void cross_entropy_backward(Stream, Rows size, const T* logits, const int32_t* targets, const Accum<T>* logsumexp,
                            const int32_t* count, const T* dloss, T* dlogits) {
  const int64_t cols = size.cols;
  const T g = *count ? *dloss / T(*count) : T(0);
  parallel_for(size.rows, rows_a_task(cols), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      T* out = dlogits + r * cols;
      if (targets[r] < 0) {
        std::fill_n(out, cols, T(0));
        continue;
      }
      for (int64_t c = 0; c < cols; ++c) out[c] = g * exponential(logits[r * cols + c] - logsumexp[r]);
      out[targets[r]] -= g;
    }
  });
}

CAIRN_CPU_TYPES(cross_entropy_forward)
CAIRN_CPU_TYPES(cross_entropy_backward)

}  // namespace cairn::cpu
