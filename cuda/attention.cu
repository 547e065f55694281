// Full attention (the paper's equations 1 and 2) and its gradient, in tiles (Dao et al. 2022): no N x S matrix is ever
// in memory.
//
//   s_ij = scale q_i . k_j, minus infinity where masked;  A = softmax(s);  out_i = sum_j z_ij A_ij v_j,  z dropout
//   with g = dout:  dA = z (g V^T);  delta_i = g_i . out_i;  dS = A (dA - delta);
//   dQ = scale dS K;  dK = scale dS^T Q;  dV = (z A)^T g
//
// q, dq [B, N, H, D], k, dk [B, S, H, D], v, dv [B, S, H, M], out, dout [B, N, H, M], with any strides, in float32 or
// bfloat16; logsumexp [B, H, N] of the scores s. Sums are in float32. No atomics: query_gradient and key_gradient each
// compute the weights again, so results have the same bits every time. Before them, output_states computes delta; a
// warp takes a query.
//
// Launch, on tensor cores or not. A block of 128 threads takes a tile of queries and goes through the keys. For dK and
// dV it takes a tile of keys and goes through the queries. It skips tiles of the other side that a causal mask or a
// pattern of positions hides (core/kernels/positions.h): each tile begins at a visible position. The sums of its rows
// stay in registers, with a running maximum of the scores. Few queries, such as the centroids of clustered attention,
// give too few blocks; on tensor cores the keys are then cut into splits (cuda/attention_splits.cuh).
//
// On tensor cores (cuda/attention_mma.cuh): for compute capability 8.0 or newer, a positive scale, D and M up to 128,
// and rows of whole 16-byte chunks. bfloat16 is multiplied directly. float32 takes three products in TF32, in which
// infinity becomes NaN (cuda/mma_tiles.cuh). In bfloat16, weights and their gradients are rounded before they are
// multiplied. Rows are filled up with zeros to 32, 64 or 128 columns. A warp has 16 rows of its own, or two strips of
// 16 (bfloat16, up to 64 columns, more than 64 rows); so a block has 64 or 128. It takes 64, 32 or 16 rows of the other
// side at a time. While it multiplies these, the next ones are copied to shared memory: 20 KB (bfloat16, 32 columns) to
// 97 KB (float32, 128 columns). In bfloat16, problems without masks, dropout and ragged tiles have kernels without
// tests for them, with the same bits.
//
// Otherwise in float32 arithmetic, bfloat16 too (cuda/attention_simt.cuh).
//
// Cost without a mask: 2 (D + M) operations a score forward, 2 (4 D + 3 M) backward (3 D + 2 M if the weights were
// computed once). Traffic: the operands once for each tile of the other side, mostly from the L2 cache, about
// e (D + M) / 64 bytes a score. Floor: operands and results once. Bound by arithmetic.
#include "core/kernels/attention.h"

#include <algorithm>

#include "core/workspace.h"
#include "cuda/attention_mma.cuh"

namespace cairn::gpu {

template <class T>
void attention_forward(Stream stream, const AttentionOperands<T>& in, HeadView<T> out, Accum<T>* logsumexp) {
  const AttentionSize& size = in.size;
  const int64_t rows = size.B * size.H * size.N;
  if (rows == 0) return;
  const AttentionProblem<T> p("attention", in);
  if (!suits_mma(p, out)) return attend_simt(stream, p, NoTop{}, out, logsumexp);
  Workspace workspace(Device::cuda);
  with_mma_columns(std::max(size.D, size.M), [&]<int columns> {
    with_form<T, columns, NoTop>(p, size.N, [&]<int strips, bool plain> {
      using Shape = MmaShape<T, columns, strips>;
      Splits splits = split_keys(p, Shape::own, size.M, workspace);
      if (splits.partial) splits.softmax = workspace.take<RowSoftmax>(splits.count * rows);
      const int64_t blocks = size.B * size.H * ceil_div(size.N, Shape::own) * splits.count;
      launch<attend_mma<T, columns, strips, plain>, Shape::forward_bytes>({blocks, mma_threads, 0, stream}, p, splits,
                                                                          out, logsumexp);
      add_up(stream, size, splits, size.M, out, in.dropout.scale(), logsumexp);
    });
  });
}

template <class T>
void attention_backward(Stream stream, const AttentionOperands<T>& in, HeadView<const T> out, const Accum<T>* logsumexp,
                        HeadView<const T> dout, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionSize& size = in.size;
  const int64_t queries = size.B * size.H * size.N;
  const AttentionProblem<T> p("attention", in);
  Workspace workspace(Device::cuda);
  QueryState* const states = workspace.take<QueryState>(queries);
  if (queries > 0) launch(output_states<T>, over_rows<32>(stream, queries), size, out, dout, logsumexp, states);
  attention_gradients(stream, p, dout, states, NoTop{}, dq, dk, dv);
}

CAIRN_GPU_TYPES(attention_forward)
CAIRN_GPU_TYPES(attention_backward)

}  // namespace cairn::gpu
