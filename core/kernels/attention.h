#pragma once
// Scaled dot-product attention, softmax(scale Q K^T + mask) V (the paper's equations 1 and 2), in tiles: the N x S
// matrix of weights is never in memory as a whole (Milakov & Gimelshein 2018; Rabe & Staats 2021; Dao et al. 2022).
// Clustered attention calls this with centroids as queries, N = C.
#include "core/dispatch.h"
#include "core/kernels/head_view.h"

namespace cairn {

CAIRN_KERNELS(
    // out [B, N, H, M], and logsumexp [B, H, N] of the scaled, masked scores. A query without a visible key gets zeros
    // and logsumexp minus infinity. Dropout acts on the weights, by (query, key).
    template <class T>
    void attention_forward(Stream, const AttentionOperands<T>&, HeadView<T> out, Accum<T>* logsumexp);
    // dq, dk, dv from dout; the weights are recomputed from logsumexp. Writes all of dq, dk, dv.
    template <class T>
    void attention_backward(Stream, const AttentionOperands<T>&, HeadView<const T> out, const Accum<T>* logsumexp,
                            HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv);)

}  // namespace cairn
