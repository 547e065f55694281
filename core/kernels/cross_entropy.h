#pragma once
// Cross entropy of softmax(logits) with one target class per row. Rows can be ignored.
#include "core/dispatch.h"
#include "core/kernels/rows.h"

namespace cairn {

CAIRN_KERNELS(
    // loss[0] = mean of logsumexp(x_r) - x_r[target_r] over the rows whose target is not negative; 0 if there are none.
    // count[0] = the number of these rows. logsumexp [rows] is saved for backward.
    template <class T> void cross_entropy_forward(Stream, Rows, const T* logits, const int32_t* targets,
                                                  Accum<T>* logsumexp, T* loss, int32_t* count);
    // dx_rc = (softmax(x_r)_c - [c = target_r]) dloss / count, 0 in ignored rows.
    template <class T>
    void cross_entropy_backward(Stream, Rows, const T* logits, const int32_t* targets, const Accum<T>* logsumexp,
                                const int32_t* count, const T* dloss, T* dlogits);)

}  // namespace cairn
