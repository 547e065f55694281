// Attention of centroids, split into the mass of their k best keys and the rest (the paper's equations 4, 9 and the
// second case of 10; section 3.3), and its gradient. core/kernels/centroid_topk.h has the definition and the shapes.
//
//   A = softmax(scale Q^c K^T),  top = the k keys of the largest scores,  m = sum of A over top,  rest = sum of z A V
//   outside top, z dropout.   dA = dm in top, else z (dB V^T);  delta = m dm + rest . dB;  dS = A (dA - delta);
//   dQ^c = scale dS K,  dK = scale dS^T Q^c,  dV = (z A outside top)^T dB
//
// Launch, on tensor cores or not. A block of 128 threads takes 64 centroids and goes through the keys, up to 64 at a
// time. For dK and dV it takes 64 keys and goes through the centroids. The two versions round scores differently; each
// chooses exactly the largest of its own scores.
//
// On tensor cores (cuda/centroid_topk_mma.cuh): under the conditions of cuda/attention.cu, and only if the top keys are
// not given. There are few centroids, so the keys of a (batch, head) are cut into splits where that fills the GPU; the
// results of the splits are added in order. Forward takes four launches for each round of centroids. It sorts no
// scores: the largest scores of groups of keys give a threshold, slightly more than k scores reach it, and the top keys
// are chosen among these. Backward:
//   query_states    a warp takes a centroid: logsumexp, delta, and the top keys as one bit for each key
//   query_gradient_mma, key_gradient_mma  the kernels of full attention (cuda/attention_mma.cuh), with top; add_splits
//
// Otherwise in float32 arithmetic. This version is simple, not fast: it stores the scores of some centroids at a time.
//   choose_keys     a warp takes a centroid: its scores, logsumexp, top, m, and the top keys as one bit for each key
//   attend, query_gradient, key_gradient  the kernels of full attention (cuda/attention_simt.cuh), with top
//
// Traffic: for every 64 centroids, forward reads K twice and V once, backward K three times and V twice, mostly from
// the L2 cache. The floor is once each.
//
// Workspace of a centroid, forward on tensor cores: 8 bytes for each of up to 1024 groups, 4 M + 8 bytes for each
// split, and 12 bytes for each score of the chosen groups (KeyGroups). A round has as many centroids as fit into 300
// MB, and at least one tile. In float32 arithmetic, in rounds too: 4 bytes and one bit for each score. Backward: one
// bit for each score, and 4 D bytes for each split.
#include "core/kernels/centroid_topk.h"

#include <algorithm>
#include <cmath>

#include "core/workspace.h"
#include "cuda/centroid_topk_mma.cuh"

namespace cairn::gpu {
namespace {

// ------------------------------------------------------------------------------------------ in float32 arithmetic

// scores [slots, S]: times log2 e, minus infinity where masked.
template <class T>
__global__ void __launch_bounds__(threads_a_block<32>)
    choose_keys(AttentionProblem<T> p, int k, int64_t first_tile, float* scores, bool choose, int32_t* topk,
                float* logsumexp, T* mass, uint32_t* bits) {
  const CentroidRow own(p.size.N, first_tile);
  if (!own.there) return;
  float* const score = scores + own.slot * p.size.S;
  int32_t* const keys = topk + own.row * k;
  const int lane = int(threadIdx.x % 32);

  const BatchHead batch_head(p.size, p.mask, own.batch_head);
  const T* const query = batch_head.row(p.q, own.query);
  for (int key = lane; key < p.S(); key += 32) {
    const T* const row = batch_head.row(p.k, key);
    float product = 0;
    for (int64_t d = 0; d < p.size.D; ++d) product = fmaf(float(query[d]), float(row[d]), product);
    score[key] = batch_head.visible(own.query, key) ? product * p.scale_2() : -INFINITY;
  }
  __syncwarp();
  // [eq. 4]
  const RowSoftmax softmax = join_softmax(p.S(), [&](int key) { return RowSoftmax{score[key], 1}; });
  const float lse2 = softmax.lse2();
  if (lane == 0) logsumexp[own.row] = softmax.logsumexp();

  if (choose) {
    const auto value = [&](int key) { return ordered(fmaxf(score[key], -INFINITY)); };  // NaN is never chosen
    Cut cut;
    if (k < p.S()) cut = cut_after(p.S(), k, value, [](int key) { return key; });
    if (cut.score <= ordered(-INFINITY)) cut = {ordered(-INFINITY) + 1};
    int count = 0;
    for (int base = 0; base < p.S(); base += 32) {
      const int key = base + lane;
      const bool in_top = key < p.S() && cut.has(value(key), key);
      const int place = place_in_list(in_top, count);
      if (in_top) keys[place] = key;
    }
    for (int l = count + lane; l < k; l += 32) keys[l] = -1;
    __syncwarp();
  }
  float top_sum = 0;
  for (int l = lane; l < k; l += 32)
    if (keys[l] >= 0 && keys[l] < p.S()) top_sum += exp2_approx(score[keys[l]] - lse2);
  // [eq. 9]
  top_sum = warp_reduce(top_sum, Sum{});
  if (lane == 0) mass[own.row] = T(top_sum);
  mark_keys(keys, k, p.size.S, bits + own.row * words(p.size.S));
}

// ---------------------------------------------------------------------------------------------------------- backward

template <class T>
__global__ void __launch_bounds__(threads_a_block<32>)
    query_states(AttentionSize size, int k, const int32_t* topk, const float* logsumexp, const T* mass,
                 HeadView<const T> rest, const T* dmass, HeadView<const T> drest, CentroidState* states,
                 uint32_t* bits) {
  each_row<32>(size.B * size.H * size.N, [&](int64_t row) {
    const float of_rest = product_of_rows(size, row, rest, drest, size.M), dm = float(dmass[row]);
    // [grad. 9] delta, the sum over keys of A dA: m dm from the top keys, rest . drest from the others
    const float delta = fmaf(float(mass[row]), dm, of_rest);
    if (row_thread<32>() == 0) states[row] = {finite_shift(logsumexp[row]) * log2_e, delta, dm};
    mark_keys(topk + row * k, k, size.S, bits + row * words(size.S));
  });
}

// --------------------------------------------------------------------------------------------------- the host's part

template <class T>
AttentionProblem<T> problem(const AttentionOperands<T>& in, int64_t k) {
  check(k < max_count, "centroid_topk on CUDA: expected k below 2^30, got ", k);
  return {"centroid_topk", in};
}

template <class T>
void forward_simt(Stream stream, const AttentionProblem<T>& p, int64_t k, bool choose, int32_t* topk, float* logsumexp,
                  T* mass, HeadView<T> rest) {
  constexpr int64_t max_scores = int64_t{1} << 26;  // in a round, unless a single tile has more
  const auto& [B, H, N, S, D, M, scale] = p.size;
  const int64_t tiles = B * H * ceil_div(N, tile);
  const int64_t round = std::clamp<int64_t>(max_scores / std::max<int64_t>(1, tile * S), 1, tiles);
  Workspace workspace(Device::cuda);
  float* const scores = workspace.take<float>(round * tile * S);
  uint32_t* const bits = workspace.take<uint32_t>(B * H * N * words(S));
  for (int64_t first = 0; first < tiles; first += round) {
    const int64_t now = std::min(round, tiles - first);
    launch(choose_keys<T>, {now * tile / rows_per_block, threads_a_block<32>, 0, stream}, p, int(k), first, scores,
           choose, topk, logsumexp, mass, bits);
  }
  if (rest && M > 0) attend_simt(stream, p, TopKeys{bits}, rest, nullptr);
}

}  // namespace

template <class T>
void centroid_topk_forward(Stream stream, const AttentionOperands<T>& in, int64_t k, bool choose, int32_t* topk,
                           Accum<T>* logsumexp, T* mass, HeadView<T> rest) {
  const AttentionProblem<T> p = problem(in, k);
  if (in.size.B * in.size.H * in.size.N == 0) return;
  if (!choose || !(rest ? suits_mma(p, rest) : suits_mma(p)))
    return forward_simt(stream, p, k, choose, topk, logsumexp, mass, rest);
  with_mma_columns(std::max(in.size.D, in.size.M), [&]<int columns> {
    centroid_topk_forward_mma<T, columns>(stream, p, k, topk, logsumexp, mass, rest);
  });
}

template <class T>
void centroid_topk_backward(Stream stream, const AttentionOperands<T>& in, int64_t k, const int32_t* topk,
                            const Accum<T>* logsumexp, const T* mass, HeadView<const T> rest, const T* dmass,
                            HeadView<const T> drest, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv) {
  const AttentionProblem<T> p = problem(in, k);
  const int64_t rows = in.size.B * in.size.H * in.size.N;
  Workspace workspace(Device::cuda);
  CentroidState* const states = workspace.take<CentroidState>(rows);
  uint32_t* const bits = workspace.take<uint32_t>(rows * words(in.size.S));
  if (rows > 0)
    launch(query_states<T>, over_rows<32>(stream, rows), in.size, int(k), topk, logsumexp, mass, rest, dmass, drest,
           states, bits);
  attention_gradients(stream, p, drest, states, TopKeys{bits}, dq, dk, dv);
}

CAIRN_GPU_TYPES(centroid_topk_forward)
CAIRN_GPU_TYPES(centroid_topk_backward)

}  // namespace cairn::gpu
