#pragma once
// The kernels of cuda/centroid_topk.cu on tensor cores.
//
// The keys are divided into groups. A span is a number of neighboring tiles, and each span has four groups, t = 0..3.
// Group t has columns 8 n + 2 t and 8 n + 2 t + 1 of each tile of the span; one lane holds them. With spans of two
// tiles:
//
//   keys     | tile 0     | tile 1     | tile 2     | tile 3     |
//   columns  | 0 1 2 3 .. | 0 1 2 3 .. | 0 1 2 3 .. | 0 1 2 3 .. |    t = column / 2 % 4
//   groups     0 0 1 1 ..   0 0 1 1 ..   4 4 5 5 ..   4 4 5 5 ..      4 span + t
//
// Forward takes four launches.
//   scan_keys_mma    a block takes a tile of 64 centroids and a split of the keys: the maximum, the sum of
//                    exponentials, and the largest score of each group
//   choose_groups    a warp takes a centroid: logsumexp, and the k groups with the largest maxima. The smallest of
//                    these maxima is the threshold. All top keys are in the chosen groups, and their scores reach the
//                    threshold. At least k scores reach it, and few more: about 35 for k = 32, 4096 keys and 256
//                    groups.
//   sum_rest_mma     computes the scores again and multiplies the weights with V, except for scores of the chosen
//                    groups that reach the threshold. Stores the scores of the chosen groups.
//   finish_rows      a warp takes a centroid: the k largest of the stored scores belong to the top keys. Adds the
//                    others that reach the threshold, and the sums of the splits, to the rest.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/workspace.h"
#include "cuda/attention_mma.cuh"
#include "cuda/centroid_topk_problem.cuh"
#include "cuda/topk_choice.cuh"

namespace cairn::gpu {

template <class T, int columns>
struct CentroidShape {
  static constexpr int rows = 16 * mma_warps, row_bytes = columns * int(sizeof(T)), keys = row_bytes <= 256 ? 64 : 32;
  static constexpr int group_scores = keys / 4;  // of a group in one tile
  static constexpr int scan_bytes = row_bytes * (rows + 2 * keys), rest_bytes = row_bytes * (rows + 4 * keys);
};

inline constexpr int max_groups = 1024;  // of a centroid

// A score before the scale, which is positive, and its key.
struct ScoredKey {
  float score;
  int32_t key;
};

// The workspace through which the kernels pass on their results. It is for the centroids of one round. Each tile of
// centroids has 64 slots in it, one for each centroid.
struct CentroidScan {
  int64_t first_tile = 0, tiles = 0;            // of centroids, in this round
  int span_log2 = 0;                            // of the tiles in a span
  int groups = 0;                               // of a centroid
  int max_chosen = 0;                           // groups: upper limit of those chosen
  RowSoftmax* softmax = nullptr;                // [slots, splits]
  float* maxima = nullptr;                      // [slots, groups]
  int32_t* places = nullptr;                    // [slots, groups]: the group's place among the chosen ones, or -1
  int32_t* chosen = nullptr;                    // [slots, max_chosen]
  int32_t* count = nullptr;                     // [slots]
  float *lse2 = nullptr, *threshold = nullptr;  // [slots]
  float* scores = nullptr;                      // [slots, max_chosen, span(), group_scores]
  float* partial = nullptr;                     // [slots, splits, M]
  ScoredKey* large = nullptr;  // [slots, 2, max_chosen * span() * group_scores], if that is more than 256

  CAIRN_HD int span() const { return 1 << span_log2; }
  CAIRN_HD int64_t slots() const { return tiles * tile; }
};

// The task of a block: a tile of centroids, its first slot, and the keys [begin, end) of its split, whole spans of
// them.
struct CentroidTile : TileTask {
  int64_t slot;
  int begin, end;

  template <class T>
  __device__ CentroidTile(const CentroidProblem<T>& p, const CentroidScan& scan, int keys)
      : TileTask(p.size.N, tile, 0, 1, p.splits, scan.first_tile), slot(blockIdx.x / splits * int64_t{tile}) {
    const int unit = max(tile, keys * scan.span());
    begin = first_key(p.size.S, unit), end = end_key(p.size.S, unit);
  }
};
inline __device__ int end_of_keys(const BatchHead& batch_head, int tile_row) {
  return tile_row < batch_head.queries ? batch_head.end_of_keys(tile_row + tile) : 0;
}

// The scores of a warp tile, 16 centroids from `query` on, before the scale; minus infinity where masked.
template <int tiles, class T, int columns>
__device__ void warp_tile_scores(const BatchHead& batch_head, const MmaTile<T, columns>& centroids, int query, int k0,
                                 const MmaTile<T, columns>& k, float (&s)[tiles][4]) {
  mma_row_products(centroids, k, s);
  if (!batch_head.masks_rows(query, query + 16, k0, k0 + 8 * tiles)) return;
  const unsigned visible = mma_visible_query_rows<tiles>(batch_head, query, k0);
  each_sum(s, [&](float& score, int bit) { score = visible >> bit & 1 ? score : -INFINITY; });
}

// ---- the maxima

template <class T, int columns>
__global__ void __launch_bounds__(mma_threads, 3) scan_keys_mma(CentroidProblem<T> p, CentroidScan scan) {
  using Shape = CentroidShape<T, columns>;
  using Tile = MmaTile<T, columns>;
  constexpr int keys = Shape::keys;
  const Tile own{dynamic_shared<T>()}, all_k = own.row(Shape::rows);
  const CentroidTile task(p, scan, keys);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const KeyTiles<T, columns, keys, false> tiles{p, batch_head, all_k, all_k};
  const int begin = task.begin, end = min(end_of_keys(batch_head, task.row), task.end);
  const int warp_row = int(threadIdx.x / 32) * 16, query0 = task.row + warp_row;
  float running_max[2] = {-INFINITY, -INFINITY}, sum[2] = {}, largest_of_group[2] = {-INFINITY, -INFINITY};
  int span = begin / keys >> scan.span_log2;

  // Writes the maxima of the groups of the spans before `next`.
  const auto finish_groups = [&](int next) {
    for (; span < next; ++span)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t slot = task.slot + warp_row + mma_g() + 8 * half;
        scan.maxima[slot * scan.groups + 4 * span + mma_t()] = largest_of_group[half];
        largest_of_group[half] = -INFINITY;
      }
  };

  if (begin < end) {
    own.template copy<Shape::rows>(p.q.at(batch_head.batch, task.row, batch_head.head), p.q.row_stride,
                                   batch_head.queries - task.row, p.D());
    commit_copies();
    tiles.copy(begin, 0);
    tiles.each(
        begin, end, [](int from) { return from; },
        [&](int k0, const Tile& k, const Tile&) {
          finish_groups(k0 / keys >> scan.span_log2);
          float s[keys / 8][4];
          warp_tile_scores(batch_head, own.row(warp_row), query0, k0, k, s);
          float largest[2] = {-INFINITY, -INFINITY};
          each_sum(s, [&](float score, int bit) { largest[bit / 2 % 2] = fmaxf(largest[bit / 2 % 2], score); });
          float shift[2];
#pragma unroll
          for (int half = 0; half < 2; ++half) {  // [eq. 4] each lane for itself
            largest_of_group[half] = fmaxf(largest_of_group[half], largest[half]);
            const float before = running_max[half];
            running_max[half] = fmaxf(before, largest[half] * p.scale_2());
            shift[half] = finite_shift(running_max[half]);
            sum[half] *= exp2_approx(before - shift[half]);
          }
          each_sum(s, [&](float score, int bit) {
            sum[bit / 2 % 2] += exp2_approx(fmaf(score, p.scale_2(), -shift[bit / 2 % 2]));
          });
        });
  }
  finish_groups(min(task.end / keys >> scan.span_log2, scan.groups / 4));

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = running_max[half];
    for (int distance = 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));
    float total = sum[half] * exp2_approx(running_max[half] - finite_shift(largest));
    for (int distance = 2; distance > 0; distance /= 2) total += __shfl_xor_sync(full_warp, total, distance);
    const int64_t slot = task.slot + warp_row + mma_g() + 8 * half;
    if (mma_t() == 0) scan.softmax[slot * p.splits + task.split] = {largest, total};
  }
}

// ---- the groups

template <class T>
__global__ void __launch_bounds__(row_threads<32>)
    choose_groups(CentroidProblem<T> p, CentroidScan scan, float* logsumexp) {
  __shared__ uint32_t of_warp[rows_per_block][max_groups];
  uint32_t* const values = of_warp[threadIdx.x / 32];
  const CentroidRow own(p, scan.first_tile);
  if (!own.there) return;
  const int lane = int(threadIdx.x % 32);

  const RowSoftmax softmax = join_softmax(p.splits, [&](int s) { return scan.softmax[own.slot * p.splits + s]; });
#pragma unroll 8
  for (int g = lane; g < scan.groups; g += 32) values[g] = ordered(scan.maxima[own.slot * scan.groups + g]);
  __syncwarp();
  // Of equal maxima those of the first spans are chosen. Groups of one span with equal maxima are all chosen.
  Cut cut;
  if (p.top < scan.groups)
    cut = cut_after(
        scan.groups, p.top, [&](int g) { return values[g]; }, [](int g) { return g / 4; });
  if (cut.score <= ordered(-INFINITY)) cut = {ordered(-INFINITY) + 1};

  int count = 0;
  for (int base = 0; base < scan.groups; base += 32) {
    const int g = base + lane;
    const bool is_chosen = g < scan.groups && cut.has(values[g], g / 4);
    const int place = place_in_list(is_chosen, count);
    if (g < scan.groups) scan.places[own.slot * scan.groups + g] = is_chosen ? place : -1;
    if (is_chosen) scan.chosen[own.slot * scan.max_chosen + place] = g;
  }
  if (lane != 0) return;
  scan.count[own.slot] = count;
  scan.lse2[own.slot] = softmax.lse2();
  scan.threshold[own.slot] = from_ordered(cut.score);
  logsumexp[own.row] = softmax.logsumexp();
}

// ---- the rest

template <class T, int columns, bool with_rest>
__global__ void __launch_bounds__(mma_threads, sizeof(T) == 2 && columns <= 64 ? 3 : 2)
    sum_rest_mma(CentroidProblem<T> p, CentroidScan scan) {
  using Shape = CentroidShape<T, columns>;
  using Tile = MmaTile<T, columns>;
  constexpr int keys = Shape::keys;
  const Tile own{dynamic_shared<T>()}, all_k = own.row(Shape::rows);
  const CentroidTile task(p, scan, keys);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const KeyTiles<T, columns, keys, with_rest> tiles{p, batch_head, all_k, all_k.row(2 * keys)};
  const int begin = task.begin, end = min(end_of_keys(batch_head, task.row), task.end);
  const int warp_row = int(threadIdx.x / 32) * 16, query0 = task.row + warp_row;
  const int64_t slot0 = task.slot + warp_row + mma_g();
  float sums[columns / 8][4] = {};

  if (begin < end) {
    own.template copy<Shape::rows>(p.q.at(batch_head.batch, task.row, batch_head.head), p.q.row_stride,
                                   batch_head.queries - task.row, p.D());
    commit_copies();
    tiles.copy(begin, 0);
    float lse2[2], threshold[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = query0 + mma_g() + 8 * half < p.N();
      lse2[half] = there ? scan.lse2[slot0 + 8 * half] : 0.0f;
      threshold[half] = there ? scan.threshold[slot0 + 8 * half] : NAN;
    }
    tiles.each(
        begin, end, [](int from) { return from; },
        [&](int k0, const Tile& k, const Tile& v) {
          const int number = k0 / keys, group = (number >> scan.span_log2) * 4 + mma_t();
          int place[2];
#pragma unroll
          for (int half = 0; half < 2; ++half)
            place[half] =
                query0 + mma_g() + 8 * half < p.N() ? scan.places[(slot0 + 8 * half) * scan.groups + group] : -1;
          float s[keys / 8][4];
          warp_tile_scores(batch_head, own.row(warp_row), query0, k0, k, s);
          float limit[2];  // scores that reach it do not belong to the rest
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            limit[half] = place[half] >= 0 ? threshold[half] : NAN;
            if (place[half] < 0) continue;
            float* const to = scan.scores + (((slot0 + 8 * half) * scan.max_chosen + place[half]) * scan.span() +
                                             number % scan.span()) *
                                                Shape::group_scores;
            const auto stored = [&](int n, int e) { return fmaxf(s[n][2 * half + e], -INFINITY); };  // not NaN
#pragma unroll
            for (int n = 0; n < keys / 8; n += 2)
              pack<4>(to, n / 2) = {stored(n, 0), stored(n, 1), stored(n + 1, 0), stored(n + 1, 1)};
          }
          if constexpr (with_rest) {
            each_sum(s, [&](float& x, int bit) {
              const int half = bit / 2 % 2;
              x = x >= limit[half] ? 0.0f : exp2_approx(fmaf(x, p.scale_2(), -lse2[half]));
            });
            if (dropout.active) {
              const unsigned keep = mma_keep_query_rows<keys / 8>(dropout, query0, k0);
              each_sum(s, [&](float& weight, int bit) { weight = keep >> bit & 1 ? weight : 0.0f; });
            }
            // [eq. 10] [eq. 13] [eq. 17] The other keys have the weights of the centroid.
            mma_weighted_rows(s, v, sums);
          }
        });
  }
  if constexpr (with_rest)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      write_sums(sums, half, 1.0f, scan.partial + ((slot0 + 8 * half) * p.splits + task.split) * p.M(), p.M());
}

// ---- the top keys

// The longest list of large scores of a centroid that fits into shared memory.
inline constexpr int short_list_size = 256;

// Lists the large scores of a centroid, which reach the threshold, in the order of their groups. Writes at most
// `capacity` of them, and returns how many there are. sum_rest_mma has processed the keys before `end`.
template <int keys>
__device__ int collect_large(const CentroidScan& scan, const CentroidRow& own, int end, ScoredKey* list, int capacity) {
  constexpr int group_scores = keys / 4;
  const int n = (scan.count[own.slot] << scan.span_log2) * group_scores, lane = int(threadIdx.x % 32);
  const float threshold = scan.threshold[own.slot];
  const float* const from = scan.scores + own.slot * scan.max_chosen * scan.span() * group_scores;
  const int32_t* const chosen = scan.chosen + own.slot * scan.max_chosen;
  constexpr int batch = 4;  // loads in flight
  int count = 0;
#pragma unroll 1
  for (int base = 0; base < n; base += 32 * batch) {
    float score[batch];
    int group[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = min(base + 32 * b + lane, n - 1);
      score[b] = from[i], group[b] = chosen[i / group_scores >> scan.span_log2];
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = base + 32 * b + lane, e = i % group_scores;
      const int key0 = ((group[b] / 4 << scan.span_log2) + i / group_scores % scan.span()) * keys;
      const bool has = i < n && key0 < end && !(score[b] < threshold);
      const int place = place_in_list(has, count);
      if (has && place < capacity) list[place] = {score[b], key0 + e / 2 * 8 + group[b] % 4 * 2 + e % 2};
    }
  }
  __syncwarp();
  return count;
}

// Moves the `top` largest of n scores to the front of `sorted`, of equal scores those of lower keys, and the others
// behind them. Returns how many are in front. A short list is sorted as a whole, by counting.
template <bool is_short>
__device__ int split_list(const ScoredKey* list, int n, int top, ScoredKey* sorted) {
  const int lane = int(threadIdx.x % 32);
  if constexpr (is_short) {
    for (int i = lane; i < n; i += 32) {
      const ScoredKey own = list[i];
      int before = 0;
#pragma unroll 4
      for (int other = 0; other < n; ++other) {
        const ScoredKey x = list[other];
        before += x.score > own.score || (x.score == own.score && x.key < own.key);
      }
      sorted[before] = own;
    }
  } else {
    const auto score = [&](int i) { return ordered(list[i].score); };
    const auto key = [&](int i) { return list[i].key; };
    const Cut cut = n > top ? cut_after(n, top, score, key) : Cut{};
    int chosen = 0, others = min(n, top);
    for (int base = 0; base < n; base += 32) {
      const int i = base + lane;
      const bool in_top = i < n && cut.has(score(i), key(i)), other = i < n && !in_top;
      const int place = place_in_list(in_top, chosen), behind = place_in_list(other, others);
      if (i < n) sorted[in_top ? place : behind] = list[i];
    }
  }
  __syncwarp();
  return min(n, top);
}

template <class T, int columns>
__global__ void __launch_bounds__(row_threads<32>, columns * sizeof(T) <= 128 ? 5 : 2)
    finish_rows(CentroidProblem<T> p, CentroidScan scan, int32_t* topk, T* mass, HeadView<T> rest) {
  using Shape = CentroidShape<T, columns>;
  using Tile = MmaTile<T, columns>;
  const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
  const Tile rows = Tile{dynamic_shared<T>()}.row(16 * warp);
  ScoredKey* const of_warp = reinterpret_cast<ScoredKey*>(Tile{dynamic_shared<T>()}.row(16 * rows_per_block).data) +
                             2 * short_list_size * warp;
  const CentroidRow own(p, scan.first_tile);
  if (!own.there) return;
  const BatchHead batch_head(p.size, p.mask, own.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const float lse2 = scan.lse2[own.slot];
  const int end = end_of_keys(batch_head, own.query / tile * tile);

  // The sums of the splits. This lane has columns 2 lane and 2 lane + 1 in each 64.
  constexpr int parts = (columns + 63) / 64;
  float sum[parts][2] = {};
  if (scan.partial)
#pragma unroll
    for (int part = 0; part < parts; ++part)
      if (const int column = 64 * part + 2 * lane; column < p.M())
#pragma unroll 1
        for (int s0 = 0; s0 < p.splits; s0 += 8) {  // eight loads in flight
          Pack<float, 2> two[8];
#pragma unroll
          for (int i = 0; i < 8; ++i)
            two[i] = pack<2>(scan.partial + (own.slot * p.splits + min(s0 + i, p.splits - 1)) * p.M(), column / 2);
#pragma unroll
          for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) sum[part][e] += s0 + i < p.splits ? two[i].element[e] : 0.0f;
        }

  const auto finish = [&]<bool is_short>(ScoredKey* list, ScoredKey* sorted, int n) {
    const int count = split_list<is_short>(list, n, p.top, sorted);
    float top_sum = 0;
#pragma unroll 1
    for (int l = lane; l < count; l += 32) top_sum += exp2_approx(fmaf(sorted[l].score, p.scale_2(), -lse2));
    // [eq. 9] [eq. 14]
    top_sum = warp_reduce(top_sum, Sum{});
    if (lane == 0) mass[own.row] = T(top_sum);
    for (int l = lane; l < p.top; l += 32) {
      const int key = l < count ? sorted[l].key : -1;
      int place = l;
      if (l < count) {
        place = 0;
#pragma unroll 4
        for (int other = 0; other < count; ++other) place += sorted[other].key < key;
      }
      topk[own.row * p.top + place] = key;
    }
    if (!scan.partial) return;

    // The other large scores belong to the rest. One product adds 16 of them: all 16 rows of A are their weights, so
    // each row of the result is the sum.
    float sums[columns / 8][4] = {};
#pragma unroll 1
    for (int l0 = count; l0 < n; l0 += 16) {
      constexpr int in_chunk = Tile::in_chunk, chunks = Tile::chunks;
#pragma unroll 1
      for (int i = lane; i < 16 * chunks; i += 32) {
        const int r = i / chunks, c = i % chunks;
        const bool there = l0 + r < n && c * in_chunk < p.M();
        const T* const from = p.v.at(batch_head.batch, there ? sorted[l0 + r].key : 0, batch_head.head);
        copy_async<16>(rows.chunk(r, c), there ? from + c * in_chunk : from, there);
      }
      commit_copies();
      // This lane has four of the 16.
      const auto mine = [&](int i) { return l0 + 8 * (i / 2) + 2 * mma_t() + i % 2; };
      unsigned dropped = 0;
      if (dropout.active)
#pragma unroll 1
        for (int i = 0; i < 4; ++i)
          if (const int key = sorted[min(mine(i), n - 1)].key; !(dropout.keep(own.query, key & ~3) >> key % 4 & 1))
            dropped |= 1u << i;
      float weights[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float weight = exp2_approx(fmaf(sorted[min(mine(i), n - 1)].score, p.scale_2(), -lse2));
        weights[i / 2][i % 2] = weights[i / 2][2 + i % 2] = mine(i) < n && !(dropped >> i & 1) ? weight : 0.0f;
      }
      wait_for_copies<0>();
      __syncwarp();
      mma_weighted_rows(weights, rows, sums);
      __syncwarp();
    }
    // Row 0 goes through shared memory to the lanes that have its columns.
    float* const of_row = reinterpret_cast<float*>(rows.data);
#pragma unroll
    for (int n8 = 0; n8 < columns / 8; ++n8)
      if (mma_g() == 0) pack<2>(of_row, 4 * n8 + mma_t()) = {sums[n8][0], sums[n8][1]};
    __syncwarp();
#pragma unroll
    for (int part = 0; part < parts; ++part)
      if (const int column = 64 * part + 2 * lane; column < columns) {
        const Pack<float, 2> two = pack<2>(of_row, column / 2);
        sum[part][0] += two.element[0], sum[part][1] += two.element[1];
      }
  };

  const int n = collect_large<Shape::keys>(scan, own, end, of_warp, short_list_size);
  if (n <= short_list_size) {
    finish.template operator()<true>(of_warp, of_warp + short_list_size, n);
  } else {
    const int capacity = scan.max_chosen * scan.span() * Shape::group_scores;
    ScoredKey* const list = scan.large + own.slot * 2 * capacity;
    collect_large<Shape::keys>(scan, own, end, list, capacity);
    finish.template operator()<false>(list, list + capacity, n);
  }
  if (!rest) return;
  const float factor = own.query < batch_head.queries ? dropout.scale : 0.0f;
  T* const to = rest.at(batch_head.batch, own.query, batch_head.head);
#pragma unroll
  for (int part = 0; part < parts; ++part)
    if (const int column = 64 * part + 2 * lane; column < p.M())
      pack<2>(to, column / 2) = {T(factor == 0 ? 0.0f : sum[part][0] * factor),
                                 T(factor == 0 ? 0.0f : sum[part][1] * factor)};
}

template <class T, int columns>
constexpr size_t finish_bytes = rows_per_block*(16 * columns * sizeof(T) + 2 * short_list_size * sizeof(ScoredKey));

// ---- the host's part

template <class T, int columns>
void centroid_topk_forward_mma(Stream stream, const CentroidProblem<T>& p, int32_t* topk, float* logsumexp, T* mass,
                               HeadView<T> rest) {
  using Shape = CentroidShape<T, columns>;
  constexpr int64_t max_bytes = int64_t{256} << 20;  // of workspace in a round, unless a single tile needs more
  const int64_t key_tiles = ceil_div(p.size.S, Shape::keys), tiles = p.size.B * p.size.H * ceil_div(p.size.N, tile);
  CentroidScan scan;
  scan.span_log2 = std::bit_width(uint64_t(std::max<int64_t>(1, ceil_div(key_tiles, max_groups / 4)) - 1));
  scan.groups = int(4 * ceil_div(key_tiles, scan.span()));
  scan.max_chosen = std::min(scan.groups, p.top + 3);
  const int64_t large = int64_t{scan.max_chosen} * scan.span() * Shape::group_scores,
                sums = rest ? p.splits * p.size.M : 0;
  const bool may_be_many = large > short_list_size;
  const int64_t slot_bytes = 12 + 8 * p.splits + 8 * scan.groups + 4 * scan.max_chosen + 4 * large + 4 * sums +
                             (may_be_many ? 2 * large * int64_t(sizeof(ScoredKey)) : 0);
  scan.tiles = std::clamp<int64_t>(max_bytes / (slot_bytes * tile), 1, tiles);

  Workspace workspace(Device::cuda);
  const int64_t slots = scan.slots();
  scan.softmax = workspace.take<RowSoftmax>(slots * p.splits);
  scan.maxima = workspace.take<float>(slots * scan.groups);
  scan.places = workspace.take<int32_t>(slots * scan.groups);
  scan.chosen = workspace.take<int32_t>(slots * scan.max_chosen);
  scan.count = workspace.take<int32_t>(slots);
  scan.lse2 = workspace.take<float>(slots);
  scan.threshold = workspace.take<float>(slots);
  scan.scores = workspace.take<float>(slots * large);
  if (sums > 0) scan.partial = workspace.take<float>(slots * sums);
  if (may_be_many) scan.large = workspace.take<ScoredKey>(slots * 2 * large);
  for (; scan.first_tile < tiles; scan.first_tile += scan.tiles) {
    scan.tiles = std::min(scan.tiles, tiles - scan.first_tile);
    const Launch blocks{scan.tiles * p.splits, mma_threads, Shape::scan_bytes, stream};
    const Launch rows{scan.slots() / rows_per_block, row_threads<32>, 0, stream};
    Launch with_rest = blocks, last = rows;
    with_rest.shared = Shape::rest_bytes, last.shared = finish_bytes<T, columns>;
    launch(scan_keys_mma<T, columns>, blocks, p, scan);
    launch(choose_groups<T>, rows, p, scan, logsumexp);
    launch(rest ? sum_rest_mma<T, columns, true> : sum_rest_mma<T, columns, false>, with_rest, p, scan);
    launch(finish_rows<T, columns>, last, p, scan, topk, mass, rest);
  }
}

}  // namespace cairn::gpu
