#pragma once
// Linear attention (Katharopoulos et al. 2020): the weight of key j for query i is phi(q_i) . phi(k_j) over its sum
// over keys, with phi(x) = elu(x) + 1. So the sums over keys can be taken before a query is looked at.
#include <limits>

#include "core/dispatch.h"
#include "core/functors.h"
#include "core/kernels/head_view.h"

namespace cairn {

// phi(x), and its derivative. Never negative, and phi' <= phi.
template <class T>
CAIRN_HD T linear_feature(T x) {
  return x > 0 ? x + 1 : exponential(x);
}
template <class T>
CAIRN_HD T linear_feature_slope(T x) {
  return x > 0 ? T(1) : exponential(x);
}

// The sum d of a query's weights before they are divided by it: 0 where it is so small (2^-100 in float; all of q or
// all of k below some -69) that gradients, sums over 1 / d, might overflow.
template <class T>
CAIRN_HD T linear_denominator(T d) {
  return d < std::numeric_limits<T>::min() * T(0x1p26) ? T(0) : d;
}

CAIRN_KERNELS(
    // n_i = phi(q_i)^T sum over j of z_j phi(k_j) v_j^T,  d_i = phi(q_i) . sum over j of phi(k_j),  out_i = n_i / d_i
    // over the keys within their length and, if the mask is causal, j <= i; `allowed` must be null. z_j is dropout, by
    // key: that of query 0 for all queries. denominators [B, H, N] are the d_i; where that is 0, and where no key is
    // left, out is zero.
    template <class T>
    void linear_attention_forward(Stream, const AttentionOperands<T>&, HeadView<T> out, Accum<T>* denominators);
    // dq, dk, dv from dout (autograd/ops/linear_attention.cpp has the formulas). All of them is written.
    template <class T> void linear_attention_backward(Stream, const AttentionOperands<T>&, HeadView<const T> out,
                                                      const Accum<T>* denominators, HeadView<const T> dout,
                                                      HeadView<T> dq, HeadView<T> dk, HeadView<T> dv);)

}  // namespace cairn
