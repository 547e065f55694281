#pragma once
// Each query attends to the top keys of its cluster, and gets the rest from the centroid (the first case of equation
// 10, and equation 11).
#include "core/dispatch.h"
#include "core/kernels/clusters.h"
#include "core/kernels/head_view.h"

namespace cairn {

CAIRN_KERNELS(
    // For query i of cluster j: a = softmax over l in top_j of scale q_i . k_l; out_i = m_j (a V_top) + rest_j.
    // topk [B, H, C, k] (-1: no such key), mass [B, H, C] (null: 1), rest [B, C, H, M] (null: 0). out [B, N, H, M], 0
    // for a query of no cluster. logsumexp [B, H, N] of the scores (null: not computed), minus infinity for such a
    // query. Dropout acts on a, by (query, key). Kernels do not read the mask: top has no masked keys.
    template <class T> void topk_attention_forward(Stream, const AttentionOperands<T>&, int64_t C, int64_t k,
                                                   ClusterView, const int32_t* topk, const T* mass,
                                                   HeadView<const T> rest, HeadView<T> out, Accum<T>* logsumexp);
    // With g the gradient of out and dz that of logsumexp [B, H, N] (null: 0): dm_j = sum_i g_i . (a_i V_top);
    // drest_j = sum_i g_i; and attention over top with the gradient m_j g_i, where dS = m_j a_i (da - g_i . (a_i V_top)
    // + dz_i). Writes all of the gradients; dmass and drest are null if mass is. With dz, mass is null.
    template <class T>
    void topk_attention_backward(Stream, const AttentionOperands<T>&, int64_t C, int64_t k, ClusterView,
                                 const int32_t* topk, const T* mass, HeadView<const T> dout, const Accum<T>* dlogsumexp,
                                 HeadView<T> dq, HeadView<T> dk, HeadView<T> dv, T* dmass, HeadView<T> drest);)

}  // namespace cairn
