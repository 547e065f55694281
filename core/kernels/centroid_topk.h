#pragma once
// Attention of centroids, split into their k top keys and the rest (equations 4, 9 and the second case of equation 10),
// in tiles: the C x S matrix of weights is never in memory as a whole.
#include "core/dispatch.h"
#include "core/kernels/head_view.h"

namespace cairn {

CAIRN_KERNELS(
    // With A = softmax(scale Q^c K^T + mask), for each of N centroids (or single queries), which are the operands' q:
    //   topk [B, H, N, k]   the keys with the k largest scores, of equal ones the lower index; rising, then -1.
    //                       Keys that are masked or have a score of NaN or minus infinity are never among them. (On
    //                       tensor cores, an infinite float32 in q or k makes a score NaN: cuda/mma_tiles.cuh.)
    //                       Without `choose`, they are an input in this form.
    //   logsumexp [B, H, N]
    //   mass [B, H, N]      m = sum of A over the top keys
    //   rest [B, N, H, M]   sum of A V over the other keys, dropout by (centroid, key); null: not computed
    template <class T> void centroid_topk_forward(Stream, const AttentionOperands<T>&, int64_t k, bool choose,
                                                  int32_t* topk, Accum<T>* logsumexp, T* mass, HeadView<T> rest);
    // Gradients for fixed top keys, with dm and dB those of mass and rest:
    //   dA_l = dm for l in top, else dropout_l dB . V_l;   dS = A (dA - m dm - rest . dB) elementwise
    //   dQ^c = scale dS K, dK = scale dS^T Q^c, dV_l = sum over centroids of dropout_l A_l dB for l outside top
    // Writes dq, and adds to dk and dv.
    template <class T>
    void centroid_topk_backward(Stream, const AttentionOperands<T>&, int64_t k, const int32_t* topk,
                                const Accum<T>* logsumexp, const T* mass, HeadView<const T> rest, const T* dmass,
                                HeadView<const T> drest, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv);)

}  // namespace cairn
