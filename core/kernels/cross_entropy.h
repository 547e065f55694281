#pragma once
// Cross entropy of softmax(logits) against one class a row, in one pass, with ignored rows.
#include "core/dispatch.h"
#include "core/kernels/matrix.h"

namespace cairn {

CAIRN_KERNELS(
    // loss[0] = mean over the rows that count of logsumexp(x_r) - x_r[target_r]; count[0] = how many count. A row with
    // a negative target is ignored. No row that counts: loss 0. logsumexp [rows] is kept for the gradient.
    template <class T> void cross_entropy_forward(Stream, Rows, const T* logits, const int32_t* targets,
                                                  Accum<T>* logsumexp, T* loss, int32_t* count);
    // dx_rc = (softmax(x_r)_c - [c = target_r]) dloss / count, 0 in ignored rows.
    template <class T>
    void cross_entropy_backward(Stream, Rows, const T* logits, const int32_t* targets, const Accum<T>* logsumexp,
                                const int32_t* count, const T* dloss, T* dlogits);)

}  // namespace cairn
