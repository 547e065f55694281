// Attention of centroids, split into the mass of their k best keys and the rest (the paper's equations 4, 9 and the
// second case of 10; section 3.3), and its gradient. core/kernels/centroid_topk.h has the definition and the shapes.
//
//   A = softmax(scale Q^c K^T),  top = the k keys of the largest scores,  m = sum of A over top,  rest = sum of z A V
//   outside top, z dropout.   dA = dm in top, else z (dB V^T);  delta = m dm + rest . dB;  dS = A (dA - delta);
//   dQ^c = scale dS K,  dK = scale dS^T Q^c,  dV = (z A outside top)^T dB
//
// Launch, in either form: a block of 128 threads takes 64 centroids and goes through keys, up to 64 at a time; for dK
// and dV it takes 64 keys and goes through the centroids. There are few centroids, so the keys of a (batch element,
// head) are cut into `splits` where that fills the GPU; what the splits contribute is put together in their order. top
// is exact for the scores that a form computes.
//
// On tensor cores (cuda/centroid_topk_mma.cuh); where cuda/attention.cu uses them, too. Forward takes four launches, or
// four a round, and keeps no sorted lists: the largest scores of groups of 16 keys or more give a threshold that little
// more than k scores reach, and the top keys are chosen among those. Backward:
//   query_states        a warp a centroid: logsumexp and delta, and the top keys in one bit a key
//   query_gradient_mma, key_gradient_mma  the kernels of full attention (cuda/attention_mma.cuh), with top; add_splits
//
// In float32 arithmetic, out of shared memory (cuda/attention_tiles.cuh); on every GPU, for all that tensor cores do
// not take:
//   scan_keys       tile after tile of a split: running maximum and sum, and for each centroid the k largest scores so
//                   far, sorted, in memory (8 k bytes; the L1 cache, mostly). A warp works on 16 centroids:
//                   its lanes look for scores above a centroid's k-th, and merge those into its list together.
//   finish_scan     a warp a centroid: logsumexp; merges the lists of the splits; top, rising; m; marks top in one bit
//                   a key, which is how all that follows knows it
//   sum_rest        the scores again, and their product with V; add_splits
//   query_states    as above
//   centroid_query_gradient  a block has a tile of centroids and a split: dQ^c; add_splits
//   centroid_key_gradient    a block has a tile of keys and goes through all centroids: dK and dV
// Columns of values beyond 128 (64 in centroid_key_gradient) are other blocks' work, which compute the scores again.
// The lists are slow: each split fills lists of its own, with some 150 insertions for a centroid and split of 512 keys
// if k = 32, and an insertion is 42 instructions that mostly wait for each other. Rising scores are worse: each of them
// enters.
//
// Traffic: forward reads K twice and V once for every 64 centroids, backward K three times and V twice, from the L2
// cache mostly; the floor is once each. Nothing spills.
//
// Workspace for a centroid, forward on tensor cores: 8 bytes for each of up to 1024 groups, 4 M bytes a split, and for
// each of up to k + 3 chosen groups of 16 keys 64 bytes of scores and, if these may be more than 256, 256 bytes of
// lists. More keys than 16,384 make groups longer. Centroids are taken in rounds of at most 256 MB, or of one tile if
// that needs more. If top is given, it takes a bit a score besides. In float32: 8 k bytes a split for the lists, 4 M
// bytes a split, and a bit a score for top. Backward: a bit a score for top, and 4 D bytes a split.
#include "core/kernels/centroid_topk.h"

#include <algorithm>
#include <cmath>

#include "core/workspace.h"
#include "cuda/centroid_topk_mma.cuh"

namespace cairn::gpu {
namespace {

// Scores times log2 e of a tile of queries and one of keys; minus infinity where masked.
template <class T>
__device__ void compute_scores(const CentroidProblem<T>& p, const BatchHead& batch_head, int q0, int k0,
                               float* workspace, TileOf& s) {
  row_products(p.rows(p.q, batch_head, q0, batch_head.queries, p.D()),
               p.rows(p.k, batch_head, k0, batch_head.keys, p.D()), workspace, s);
  const unsigned visible = visible_in(batch_head, q0, k0);
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) s[i][j] = visible >> (4 * i + j) & 1 ? s[i][j] * p.scale_2() : -INFINITY;
}

// ---------------------------------------------------------------------------------------------------- the top keys

// The k largest scores seen so far and their keys, largest first; equal ones in the order of arrival, which is by
// rising key. Minus infinity: nothing. A warp works on it together.
struct TopKeyList {
  float* scores;
  int32_t* keys;
  int k;

  __device__ void clear() const {
    for (int l = int(threadIdx.x % 32); l < k; l += 32) scores[l] = -INFINITY, keys[l] = -1;
    __syncwarp();
  }
  // Whatever is not above this cannot enter.
  __device__ float threshold() const { return scores[k - 1]; }

  // Offers 64 scores, each lane's [0] before each lane's [1].
  __device__ void offer(const float (&score)[2], const int32_t (&key)[2]) const {
    const int lane = int(threadIdx.x % 32);
    const float limit = threshold();
    const unsigned entering[2] = {__ballot_sync(full_warp, score[0] > limit),
                                  __ballot_sync(full_warp, score[1] > limit)};
    // f(score, its place in the order of arrival) for those that enter.
    const auto each_new = [&](auto&& f) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        for (unsigned left = entering[h]; left != 0; left &= left - 1) {
          const int from = __ffs(int(left)) - 1;
          f(__shfl_sync(full_warp, score[h], from), 32 * h + from);
        }
    };

    // How many stand before this lane's two: others that enter now, and those of the list, which makes room, its end
    // first.
    int before[2] = {};
    const int last_base = (k - 1) / 32 * 32;
    for (int base = last_base; base >= 0; base -= 32) {
      const int l = base + lane;
      const float old = l < k ? scores[l] : -INFINITY;
      const int32_t old_key = l < k ? keys[l] : -1;
      int steps = 0;
      each_new([&](float other, int arrival) {
        const int staying = __popc(__ballot_sync(full_warp, old >= other));
        steps += old < other;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int own = 32 * h + lane;
          if (arrival == own) before[h] += staying;
          if (base == last_base) before[h] += other > score[h] || (other == score[h] && arrival < own);
        }
      });
      const bool moves = l < k && steps > 0, any = __any_sync(full_warp, moves);
      __syncwarp();
      if (moves && l + steps < k) scores[l + steps] = old, keys[l + steps] = old_key;
      __syncwarp();
      if (any) continue;
      before[0] += base, before[1] += base;
      break;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (score[h] > limit && before[h] < k) scores[before[h]] = score[h], keys[before[h]] = key[h];
    __syncwarp();
  }
};

// What a scan leaves: for each centroid and split, the maximum (times log2 e), the sum of exponentials relative to it,
// and the largest scores.
struct Scan {
  float* running_max;  // [B, H, N, splits]
  float* sum;
  float* scores = nullptr;  // [B, H, N, splits, k]; null: top is given
  int32_t* keys = nullptr;

  __device__ TopKeyList largest(int64_t part, int k) const { return {scores + part * k, keys + part * k, k}; }
};

// The row of the tile that is number r of the 16 of this warp.
__device__ int row_of_warp(int r) { return 8 * int(threadIdx.x / 32) + r % 8 + 32 * (r / 8); }

// Offers the stored scores of the tile's keys from k0 on to the lists of this warp's rows [0, rows).
__device__ void offer_tile(const float* stored, int rows, int k0, int64_t part, int splits, int k, const Scan& scan) {
  const int lane = int(threadIdx.x % 32);
  unsigned busy = 0;
#pragma unroll 4
  for (int r = 0; r < 16; ++r) {
    const int row = row_of_warp(r);
    const float* const score = stored + row * (tile + 4) + lane;
    if (row < rows) {
      const float limit = scan.largest(part + int64_t(row) * splits, k).threshold();
      busy |= unsigned(__any_sync(full_warp, score[0] > limit || score[32] > limit)) << r;
    }
  }
  for (; busy != 0; busy &= busy - 1) {
    const int row = row_of_warp(__ffs(int(busy)) - 1);
    const float* const score = stored + row * (tile + 4) + lane;
    scan.largest(part + int64_t(row) * splits, k).offer({score[0], score[32]}, {k0 + lane, k0 + 32 + lane});
  }
}

template <class T>
__global__ void __launch_bounds__(tile_threads, 4) scan_keys(CentroidProblem<T> p, Scan scan) {
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, 0, tile, p.splits);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const int q0 = task.row, end = min(end_of_keys(batch_head, q0), task.end_key(p.size.S));
  const int64_t part = (batch_head.index * p.size.N + q0) * p.splits + task.split;
  RunningSoftmax<8, 16> softmax;
  if (scan.scores)
    for (int r = 0; r < 16; ++r)
      if (q0 + row_of_warp(r) < p.N()) scan.largest(part + int64_t(row_of_warp(r)) * p.splits, p.top).clear();

  for (int k0 = task.first_key(p.size.S); k0 < end; k0 += tile) {
    TileOf s;
    compute_scores(p, batch_head, q0, k0, workspace, s);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      // [eq. 4]
      softmax.raise(i, fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3])));
#pragma unroll
      for (int j = 0; j < 4; ++j) softmax.weight(i, s[i][j]);
    }
    if (!scan.scores) continue;
    store_weights(workspace, s);
    offer_tile(tile_weights(workspace), batch_head.queries - q0, k0, part, p.splits, p.top, scan);
  }
  softmax.finish();
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (tile_column() == 0 && q0 + tile_row(i) < p.N()) {
      scan.running_max[part + int64_t(tile_row(i)) * p.splits] = softmax.running_max[i];
      scan.sum[part + int64_t(tile_row(i)) * p.splits] = softmax.sum[i];
    }
}

// ---- The top keys in one bit a key

// Bit 4 i + l: key k0 + tile_column() + l is in top of query q0 + tile_row(i).
template <class T>
__device__ unsigned marked_in(const CentroidProblem<T>& p, const uint32_t* bits, const BatchHead& batch_head, int q0,
                              int k0) {
  const int key = k0 + tile_column();
  const uint32_t* const row = bits + (batch_head.index * p.size.N + q0) * words(p.size.S) + key / 32;
  return score_bits([&](int i) {
    return q0 + tile_row(i) < batch_head.queries ? row[tile_row(i) * words(p.size.S)] >> key % 32 & 15u : 0u;
  });
}
// Writes the keys of a list rising, then -1, and returns how many there are.
__device__ int write_rising(const TopKeyList& largest, bool valid, int32_t* topk) {
  int count = 0;
  for (int base = 0; base < largest.k; base += 32) {
    const int l = base + int(threadIdx.x % 32);
    const bool there = valid && l < largest.k && largest.scores[l] > -INFINITY;
    count += __popc(__ballot_sync(full_warp, there));
  }
  for (int l = int(threadIdx.x % 32); l < largest.k; l += 32) {
    if (l >= count) {
      topk[l] = -1;
      continue;
    }
    const int32_t key = largest.keys[l];
    int smaller = 0;
    for (int other = 0; other < count; ++other) smaller += largest.keys[other] < key;
    topk[smaller] = key;
  }
  __syncwarp();
  return count;
}

// The score (times log2 e) of one key that top was given with.
template <class T>
__device__ float score_of(const CentroidProblem<T>& p, const BatchHead& batch_head, int query, int key) {
  if (key < 0 || !batch_head.visible(query, key)) return -INFINITY;
  const T* const x = p.q.at(batch_head.batch, query, batch_head.head);
  const T* const y = p.k.at(batch_head.batch, key, batch_head.head);
  float sum = 0;
  for (int d = 0; d < p.D(); ++d) sum = fmaf(float(x[d]), float(y[d]), sum);
  return sum * p.scale_2();
}

// bits may be null.
template <class T>
__global__ void __launch_bounds__(32 * rows_per_block)
    finish_scan(CentroidProblem<T> p, Scan scan, int32_t* topk, float* logsumexp, T* mass, uint32_t* bits) {
  const int lane = int(threadIdx.x % 32);
  for (int64_t row = first_row(); row < p.centroids(); row += row_step()) {
    const BatchHead batch_head(p.size, p.mask, row / p.size.N);
    const int query = int(row % p.size.N);
    const bool valid = query < batch_head.queries;
    const int64_t part = row * p.splits;
    int32_t* const keys = topk + row * p.top;

    float running_max = -INFINITY, sum = 0;
    for (int s = 0; s < p.splits; ++s) running_max = fmaxf(running_max, scan.running_max[part + s]);
    const float shift = running_max == -INFINITY ? 0.0f : running_max;
    for (int s = 0; s < p.splits; ++s) sum += scan.sum[part + s] * exp2_approx(scan.running_max[part + s] - shift);
    const float total = sum == 0 ? 0.0f : shift + log2f(sum);  // logsumexp in units of log 2
    if (lane == 0) logsumexp[row] = sum == 0 ? -INFINITY : running_max * ln_2 + logf(sum);

    float top_sum = 0;
    if (scan.scores) {
      const TopKeyList largest = scan.largest(part, p.top);
      for (int s = 1; valid && s < p.splits; ++s) {
        const TopKeyList more = scan.largest(part + s, p.top);
        for (int base = 0; base < p.top && more.scores[base] > largest.threshold(); base += 64) {
          const int first = base + lane, second = first + 32;
          largest.offer(
              {first < p.top ? more.scores[first] : -INFINITY, second < p.top ? more.scores[second] : -INFINITY},
              {first < p.top ? more.keys[first] : -1, second < p.top ? more.keys[second] : -1});
        }
      }
      const int count = write_rising(largest, valid, keys);
      for (int l = lane; l < count; l += 32) top_sum += exp2_approx(largest.scores[l] - total);
    } else {
      for (int l = lane; l < p.top; l += 32) top_sum += exp2_approx(score_of(p, batch_head, query, keys[l]) - total);
    }
    // [eq. 9] [eq. 14]
    top_sum = warp_reduce(top_sum, Sum{});
    if (lane == 0) mass[row] = T(top_sum);
    if (bits) mark_keys(keys, p.top, p.size.S, bits + row * words(p.size.S));
  }
}

// ---------------------------------------------------------------------------------------------------------- the rest

// Where the sums of a split go: with several, to [splits, B, H, N, columns] in float; add_splits writes the result.
template <int width, class T>
__device__ void write_sums(const CentroidProblem<T>& p, const TileTask& task, const BatchHead& batch_head,
                           float (&sum)[8][width / 16], float factor, int columns, float* partial, HeadView<T> out) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int query = task.row + tile_row(i);
    if (query >= p.N()) continue;
    if (query >= batch_head.queries)
#pragma unroll
      for (int c = 0; c < width / 16; ++c) sum[i][c] = 0;  // even where a key or value is NaN
    const int64_t row = task.split * p.centroids() + batch_head.index * p.size.N + query;
    if (partial)
      write_row(sum[i], factor, partial + row * columns + task.column, columns - task.column, columns % 4 == 0);
    else
      write_row(sum[i], factor, out.at(batch_head.batch, query, batch_head.head) + task.column, columns - task.column,
                p.packs);
  }
}

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 4 : 3)
    sum_rest(CentroidProblem<T> p, const uint32_t* bits, const float* logsumexp, float* partial, HeadView<T> rest) {
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, p.size.M, width, p.splits);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const int q0 = task.row, end = min(end_of_keys(batch_head, q0), task.end_key(p.size.S));
  float shift[8], sum[8][width / 16] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int query = q0 + tile_row(i);
    const float l = query < batch_head.queries ? logsumexp[batch_head.index * p.size.N + query] : -INFINITY;
    shift[i] = l == -INFINITY ? 0.0f : l * log2_e;
  }

  for (int k0 = task.first_key(p.size.S); k0 < end; k0 += tile) {
    TileOf s;
    compute_scores(p, batch_head, q0, k0, workspace, s);
    const unsigned counts = keep_mask(dropout, q0, k0) & ~marked_in(p, bits, batch_head, q0, k0);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = counts >> (4 * i + j) & 1 ? exp2_approx(s[i][j] - shift[i]) : 0.0f;
    store_weights(workspace, s);
    // [eq. 10] [eq. 13] [eq. 17] The other keys keep the weights of the centroid.
    add_weighted_rows<width>(p.rows(p.v, batch_head, k0, batch_head.keys, p.M(), task.column), workspace, sum);
  }
  write_sums<width>(p, task, batch_head, sum, dropout.scale, p.M(), partial, rest);
}

// ---------------------------------------------------------------------------------------------------------- backward

template <class T>
__global__ void __launch_bounds__(32 * rows_per_block)
    query_states(CentroidProblem<T> p, const int32_t* topk, const float* logsumexp, const T* mass,
                 HeadView<const T> rest, const T* dmass, HeadView<const T> drest, CentroidState* states,
                 uint32_t* bits) {
  for (int64_t row = first_row(); row < p.centroids(); row += row_step()) {
    const int64_t batch_head = row / p.size.N;
    const T* const x = rest.at(batch_head / p.size.H, row % p.size.N, batch_head % p.size.H);
    const T* const g = drest.at(batch_head / p.size.H, row % p.size.N, batch_head % p.size.H);
    float sum = 0;
    for (int64_t c = threadIdx.x % 32; c < p.size.M; c += 32) sum += float(x[c]) * float(g[c]);
    sum = warp_reduce(sum, Sum{});
    const float l = logsumexp[row], dm = float(dmass[row]);
    // [grad. 9] delta, the sum over keys of A dA: m dm from the top keys, rest . drest from the others
    if (threadIdx.x % 32 == 0) states[row] = {l == -INFINITY ? 0.0f : l * log2_e, fmaf(float(mass[row]), dm, sum), dm};
    mark_keys(topk + row * p.top, p.top, p.size.S, bits + row * words(p.size.S));
  }
}

// [grad. 4] s, a score, and g = z dB . v become the weight A and dS / scale. dA over the top keys is dm.
__device__ void score_gradient(float& s, float& g, const CentroidState& centroid, bool in_top) {
  const float weight = s == -INFINITY ? 0.0f : exp2_approx(s - centroid.lse2);  // masked: even where the sum is NaN
  g = s == -INFINITY ? 0.0f : weight * ((in_top ? centroid.dmass : g) - centroid.delta);
  s = weight;
}

template <class T, int width>
__global__ void __launch_bounds__(tile_threads, width == 64 ? 3 : 2)
    centroid_query_gradient(CentroidProblem<T> p, HeadView<const T> drest, const CentroidState* states,
                            const uint32_t* bits, float* partial, HeadView<T> dq) {
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.N, tile, p.size.D, width, p.splits);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const int q0 = task.row, end = min(end_of_keys(batch_head, q0), task.end_key(p.size.S));
  float sum[8][width / 16] = {};

  for (int k0 = task.first_key(p.size.S); k0 < end; k0 += tile) {
    TileOf s, g;
    compute_scores(p, batch_head, q0, k0, workspace, s);
    row_products(p.rows(drest, batch_head, q0, batch_head.queries, p.M()),
                 p.rows(p.v, batch_head, k0, batch_head.keys, p.M()), workspace, g);
    const unsigned keep = keep_mask(dropout, q0, k0);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) g[i][j] *= keep >> (4 * i + j) & 1 ? dropout.scale : 0.0f;
    const unsigned in_top = marked_in(p, bits, batch_head, q0, k0);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const CentroidState centroid = states[batch_head.index * p.size.N + min(q0 + tile_row(i), p.N() - 1)];
#pragma unroll
      for (int j = 0; j < 4; ++j) score_gradient(s[i][j], g[i][j], centroid, in_top >> (4 * i + j) & 1);
    }
    store_weights(workspace, g);
    add_weighted_rows<width>(p.rows(p.k, batch_head, k0, batch_head.keys, p.D(), task.column), workspace, sum);
  }
  write_sums<width>(p, task, batch_head, sum, p.scale, p.D(), partial, dq);
}

// ---- Rows of the tile are keys from here on, and columns centroids.

// Bit key_bit(i, j): key k0 + tile_row(i) is in top of query q0 + tile_column() + j.
template <class T>
__device__ unsigned marked_to(const CentroidProblem<T>& p, const uint32_t* bits, const BatchHead& batch_head, int q0,
                              int k0) {
  return score_bits([&](int n) {
    const int query = q0 + tile_column() + n % 4, key = k0 + tile_row(n / 4 * 4);
    if (query >= batch_head.queries) return 0u;
    return bits[(batch_head.index * p.size.N + query) * words(p.size.S) + key / 32] >> key % 32 & 15u;
  });
}

template <class T>
__global__ void __launch_bounds__(tile_threads, 2)
    centroid_key_gradient(CentroidProblem<T> p, HeadView<const T> drest, const CentroidState* states,
                          const uint32_t* bits, HeadView<T> dk, HeadView<T> dv, bool add) {
  float* const workspace = dynamic_shared<float>();
  const TileTask task(p.size.S, tile, max(p.size.D, p.size.M), tile);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const int k0 = task.row;
  float sum_k[8][4] = {}, sum_v[8][4] = {};

  if (k0 < batch_head.keys)
    for (int q0 = batch_head.first_query(k0) / tile * tile; q0 < batch_head.queries; q0 += tile) {
      TileOf s, g;
      row_products(p.rows(p.k, batch_head, k0, batch_head.keys, p.D()),
                   p.rows(p.q, batch_head, q0, batch_head.queries, p.D()), workspace, s);
      row_products(p.rows(p.v, batch_head, k0, batch_head.keys, p.M()),
                   p.rows(drest, batch_head, q0, batch_head.queries, p.M()), workspace, g);
      const unsigned visible = visible_to(batch_head, q0, k0), in_top = marked_to(p, bits, batch_head, q0, k0);
      const unsigned keep = kept_to(dropout, q0, k0);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int query = min(q0 + tile_column() + j, batch_head.queries - 1);
        const CentroidState state = states[batch_head.index * p.size.N + query];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int bit = key_bit(i, j);
          const float z = keep >> bit & 1 ? dropout.scale : 0.0f;
          s[i][j] = visible >> bit & 1 ? s[i][j] * p.scale_2() : -INFINITY;
          g[i][j] *= z;
          score_gradient(s[i][j], g[i][j], state, in_top >> bit & 1);
          // [grad. 17] the other keys alone give dV
          s[i][j] = in_top >> bit & 1 ? 0.0f : z * s[i][j];
        }
      }
      if (task.column < p.M()) {  // [grad. 5] dV, then dK
        store_weights(workspace, s);
        add_weighted_rows<tile>(p.rows(drest, batch_head, q0, batch_head.queries, p.M(), task.column), workspace,
                                sum_v);
      }
      if (task.column < p.D()) {
        store_weights(workspace, g);
        add_weighted_rows<tile>(p.rows(p.q, batch_head, q0, batch_head.queries, p.D(), task.column), workspace, sum_k);
      }
    }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int key = k0 + tile_row(i);
    if (key >= p.S()) continue;
    if (key >= batch_head.keys)
#pragma unroll
      for (int c = 0; c < 4; ++c) sum_k[i][c] = sum_v[i][c] = 0;  // even where a centroid is NaN
    write_row(sum_k[i], p.scale, dk.at(batch_head.batch, key, batch_head.head) + task.column, p.D() - task.column,
              p.packs, add);
    write_row(sum_v[i], 1.0f, dv.at(batch_head.batch, key, batch_head.head) + task.column, p.M() - task.column, p.packs,
              add);
  }
}

// --------------------------------------------------------------------------------------------------- the host's part

template <class T, class... More>
CentroidProblem<T> problem(const AttentionOperands<T>& in, int64_t k, const More&... more) {
  const AttentionSize& size = in.size;
  check(k < 0x7fffff00, "centroid_topk on CUDA: expected k below 2^31 - 256, got ", k);
  const int64_t splits = count_splits(size.B * size.H * ceil_div(size.N, tile), size.S, 256);
  return {attention_problem("centroid_topk", in, more...), int(k), int(splits)};
}

template <class T>
Launch split_tiles(Stream stream, const CentroidProblem<T>& p, int64_t columns, int width) {
  return {p.size.B * p.size.H * ceil_div(p.size.N, tile) * p.splits * TileTask::tile_parts(columns, width),
          tile_threads, tile_bytes, stream};
}

// Memory for the sums of the splits, unless there is one.
template <class T>
float* room_for_splits(const CentroidProblem<T>& p, int64_t columns, Workspace& workspace) {
  return p.splits > 1 ? workspace.take<float>(p.splits * p.centroids() * columns) : nullptr;
}

}  // namespace

template <class T>
void centroid_topk_forward(Stream stream, const AttentionOperands<T>& in, int64_t k, bool choose, int32_t* topk,
                           Accum<T>* logsumexp, T* mass, HeadView<T> rest) {
  const AttentionSize& size = in.size;
  const CentroidProblem<T> p = problem(in, k, rest);
  const int64_t rows = p.centroids();
  if (rows == 0) return;
  if (rest ? suits_mma(p, rest) : suits_mma(p)) {
    with_mma_shape<T>(size, [&]<int columns>(auto) {
      centroid_topk_forward_mma<T, columns>(stream, p, choose, topk, logsumexp, mass, rest);
    });
    return;
  }
  Workspace workspace(Device::cuda);
  Scan scan{workspace.take<float>(rows * p.splits), workspace.take<float>(rows * p.splits)};
  if (choose) {
    scan.scores = workspace.take<float>(rows * p.splits * k);
    scan.keys = workspace.take<int32_t>(rows * p.splits * k);
  }
  const bool with_rest = rest && size.M > 0;
  uint32_t* const bits = with_rest ? workspace.take<uint32_t>(rows * words(size.S)) : nullptr;
  launch(scan_keys<T>, split_tiles(stream, p, 0, tile), p, scan);
  launch(finish_scan<T>, {blocks(ceil_div(rows, rows_per_block)), 32 * rows_per_block, 0, stream}, p, scan, topk,
         logsumexp, mass, bits);
  if (!with_rest) return;
  float* const partial = room_for_splits(p, size.M, workspace);
  if (size.M <= 64)
    launch(sum_rest<T, 64>, split_tiles(stream, p, size.M, 64), p, bits, logsumexp, partial, rest);
  else
    launch(sum_rest<T, 128>, split_tiles(stream, p, size.M, 128), p, bits, logsumexp, partial, rest);
  add_up(stream, size, {p.splits, partial}, size.M, rest);
}

template <class T>
void centroid_topk_backward(Stream stream, const AttentionOperands<T>& in, int64_t k, const int32_t* topk,
                            const Accum<T>* logsumexp, const T* mass, HeadView<const T> rest, const T* dmass,
                            HeadView<const T> drest, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv, bool add) {
  const AttentionSize& size = in.size;
  Workspace workspace(Device::cuda);
  const CentroidProblem<T> p = problem(in, k, drest, dq, dk, dv);
  const int64_t rows = p.centroids();
  CentroidState* const states = workspace.take<CentroidState>(rows);
  uint32_t* const bits = workspace.take<uint32_t>(rows * words(size.S));
  if (rows > 0)
    launch(query_states<T>, {blocks(ceil_div(rows, rows_per_block)), 32 * rows_per_block, 0, stream}, p, topk,
           logsumexp, mass, rest, dmass, drest, states, bits);
  if (suits_mma(p, drest, dq, dk, dv)) {
    with_mma_shape<T>(size, [&]<int columns>(auto shape) {
      const int64_t query_tiles = size.B * size.H * ceil_div(size.N, shape.own),
                    key_tiles = size.B * size.H * ceil_div(size.S, shape.own);
      if (rows > 0) {
        const Splits splits{p.splits, room_for_splits(p, size.D, workspace)};
        launch(query_gradient_mma<T, columns, TopKeys>,
               {query_tiles * p.splits, mma_threads, decltype(shape)::template query_gradient_bytes<TopKeys>, stream},
               p, splits, drest, states, TopKeys{bits}, dq);
        add_up(stream, size, splits, size.D, dq);
      }
      if (key_tiles > 0)
        launch(key_gradient_mma<T, columns, TopKeys>,
               {key_tiles, mma_threads, decltype(shape)::template key_gradient_bytes<TopKeys>, stream}, p, drest,
               states, TopKeys{bits, add}, dk, dv);
    });
    return;
  }
  if (rows * size.D > 0) {
    float* const partial = room_for_splits(p, size.D, workspace);
    if (size.D <= 64)
      launch(centroid_query_gradient<T, 64>, split_tiles(stream, p, size.D, 64), p, drest, states, bits, partial, dq);
    else
      launch(centroid_query_gradient<T, 128>, split_tiles(stream, p, size.D, 128), p, drest, states, bits, partial, dq);
    add_up(stream, size, {p.splits, partial}, size.D, dq);
  }
  const int64_t columns = std::max(size.D, size.M), key_tiles = size.B * size.H * ceil_div(size.S, tile);
  if (key_tiles > 0)
    launch(centroid_key_gradient<T>,
           {key_tiles * TileTask::tile_parts(columns, tile), tile_threads, tile_bytes, stream}, p, drest, states, bits,
           dk, dv, add);
}

CAIRN_GPU_TYPES(centroid_topk_forward)
CAIRN_GPU_TYPES(centroid_topk_backward)

}  // namespace cairn::gpu
