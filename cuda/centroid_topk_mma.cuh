#pragma once
// The kernels of cuda/centroid_topk.cu on tensor cores.
//
// Forward takes four launches. In an example, one centroid has 8 keys and k = 2, all values are 1, and the weight of a
// score s is 2^s / 128. (tests/cuda/centroid_topk.cu runs it.)
//
//   key     0   1   2   3   4   5   6   7
//   score   1   0   6   5   4   2   3   0
//   group     0       4       8      12       a lane holds the scores of a group; 12 more groups have no key
//
//   scan_keys_mma    a block takes a tile of 64 centroids and a split of the keys: the maximum, the sum of
//                    exponentials, and the largest score of each group, 1, 6, 4 and 3
//   choose_groups    a warp takes a centroid: logsumexp (in base 2, 7), and by bisection a threshold that the
//                    maxima of k groups reach, 3.5: of 4 and 8, which are chosen. All top keys are in chosen groups
//                    and reach the threshold, and few other scores do: for k = 32 and 256 groups about 35 in all.
//   sum_rest_mma     computes the scores again. Stores those of the chosen groups, 6, 5 and 4, 2. Multiplies the other
//                    weights, and those below the threshold, with V: (2 + 1 + 4 + 8 + 1) / 128 = 0.125
//   finish_rows      a warp takes a centroid and lists the stored scores that reach the threshold, 6, 5 and 4. The k
//                    largest are of the top keys, 2 and 3; their mass is (64 + 32) / 128 = 0.75. The others, marked by
//                    the key ~4, join the rest: 0.125 + 16 / 128 = 0.25
//
// A tile of keys has parts of 16 columns. In part q, group t = 0..3 has columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, and
// its number is t times the parts, plus q. Of many keys, 2, 4, 8, ... neighboring tiles are a span, which shares its
// groups. A span is as short as possible with at most about max(8 k, S / 16) groups (S / 8 if a tile has 32 keys), and
// never more than 1024.
//
// Bound. If more than k maxima reach the threshold, fewer than k are larger. Of those that equal it, the ones
// in the lowest places are chosen, all of a place or none: k + 3 groups in all if a span is one tile (S <= 32 k,
// k <= 128), or else k + 15. Each has 4 scores for each tile of a span.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/workspace.h"
#include "cuda/attention_mma.cuh"
#include "cuda/centroid_topk.cuh"

namespace cairn::gpu {

// A warp has one strip of 16 rows. Two would save a fifth of the instructions, but only two blocks would have
// enough registers, not three.
template <class T, int columns>
struct CentroidShape {
  static constexpr int rows = 16 * mma_warps, row_bytes = columns * int(sizeof(T)), keys = row_bytes <= 256 ? 64 : 32;
  static constexpr int parts = keys / 16;  // of a tile
  static constexpr int scan_bytes = row_bytes * (rows + 2 * keys), rest_bytes = row_bytes * (rows + 4 * keys);
};

inline constexpr int max_groups = 1024;  // of a centroid
inline constexpr int group_scores = 4;   // of a group in one tile

// A score before the scale, which is positive, and its key.
struct ScoredKey {
  float score;
  int32_t key;
};

// How S keys are divided for k top keys.
struct KeyGroups {
  int parts_log2;  // of the parts of a tile
  int span_log2;   // of the tiles in a span
  int groups;      // of a centroid
  int max_chosen;  // groups: upper limit of those chosen

  constexpr KeyGroups(int64_t S, int64_t k, int tile_keys) : parts_log2(std::bit_width(unsigned(tile_keys / 16)) - 1) {
    const int64_t tiles = ceil_div(S, tile_keys), tile_groups = 4 << parts_log2;
    const int64_t wanted = std::min<int64_t>(max_groups, std::max(8 * k, 4 * tiles));
    span_log2 = std::bit_width(uint64_t(count_chunks(tile_groups * tiles, wanted)) - 1);
    groups = int(tile_groups * ceil_div(tiles, span()));
    max_chosen = int(std::min<int64_t>(groups, k + (span() == 1 ? 4 : tile_groups) - 1));
  }
  CAIRN_HD constexpr int span() const { return 1 << span_log2; }
  // Upper limit of a centroid's scores in chosen groups.
  CAIRN_HD constexpr int64_t candidates() const { return int64_t{max_chosen} * span() * group_scores; }
  // Groups with a lower place have lower keys. Those with the same place have keys in between one another's.
  CAIRN_HD int place(int group) const {
    const int of_lane = group & ((1 << parts_log2) - 1), span_number = group >> (2 + parts_log2);
    return span_log2 == 0 ? (span_number << parts_log2) + of_lane : span_number;
  }
};
static_assert(KeyGroups(512, 32, 64).candidates() == 4 * (32 + 3));
static_assert(KeyGroups(1024, 32, 64).candidates() == 4 * (32 + 3));
static_assert(KeyGroups(512, 500, 64).candidates() == 512);                   // k near S: all keys
static_assert(KeyGroups(2048, 32, 64).candidates() == 4 * (32 + 15) * 2);     // 256 groups, spans of two tiles
static_assert(KeyGroups(4096, 32, 64).candidates() == 4 * (32 + 15) * 4);     // 256 groups
static_assert(KeyGroups(131072, 32, 64).candidates() == 4 * (32 + 15) * 32);  // 1024 groups

// The workspace through which the kernels pass on their results. It is for the centroids of one round. Each tile of
// centroids has 64 slots in it, one for each centroid.
struct CentroidScan : KeyGroups {
  int top = 0;                                  // upper limit of the top keys of a centroid
  int splits = 1;                               // of the keys
  int64_t first_tile = 0, tiles = 0;            // of centroids, in this round
  RowSoftmax* softmax = nullptr;                // [slots, splits]
  float* maxima = nullptr;                      // [slots, groups]
  int32_t* places = nullptr;                    // [slots, groups]: the group's place among the chosen ones, or -1
  int32_t* chosen = nullptr;                    // [slots, max_chosen]
  int32_t* count = nullptr;                     // [slots]
  float *lse2 = nullptr, *threshold = nullptr;  // [slots]
  float* scores = nullptr;                      // [slots, max_chosen, span(), group_scores]
  float* partial = nullptr;                     // [slots, splits, M]; null: nobody wants the rest
  ScoredKey* large = nullptr;                   // [slots, candidates()]

  CAIRN_HD int64_t slots() const { return tiles * tile; }
};

// The task of a block: a tile of centroids, its first slot, and the keys [begin, end) of its split, whole spans of
// them.
struct CentroidTile : TileTask {
  int64_t slot;
  int begin, end;

  __device__ CentroidTile(const AttentionSize& size, const CentroidScan& scan, int keys)
      : TileTask(size.N, tile, 0, 1, scan.splits, scan.first_tile), slot(blockIdx.x / splits * int64_t{tile}) {
    const int unit = max(tile, keys * scan.span());
    begin = first_key(size.S, unit), end = end_key(size.S, unit);
  }
};
inline __device__ int end_of_keys(const BatchHead& batch_head, int tile_row) {
  return tile_row < batch_head.queries ? batch_head.end_of_keys(tile_row + tile) : 0;
}

// ---- the maxima

template <class T, int columns>
__global__ void __launch_bounds__(mma_threads, 3) scan_keys_mma(AttentionProblem<T> p, CentroidScan scan) {
  wait_for_earlier_launches();
  using Shape = CentroidShape<T, columns>;
  using Tile = MmaTile<T, columns>;
  constexpr int keys = Shape::keys, parts = Shape::parts;
  const Tile own{dynamic_shared<T>()}, all_k = own.row(Shape::rows);
  const CentroidTile task(p.size, scan, keys);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const KeyTiles<T, columns, keys> tiles{p, batch_head, all_k, all_k, false};
  const int begin = task.begin, end = min(end_of_keys(batch_head, task.row), task.end);
  const int warp_row = int(threadIdx.x / 32) * 16, query0 = task.row + warp_row;
  RunningSoftmax<2, 1> softmax;  // [eq. 4] each lane for itself
  Pack<float, parts> largest_of_group[2];
  const auto start_groups = [&] {
#pragma unroll
    for (int q = 0; q < parts; ++q) largest_of_group[0].element[q] = largest_of_group[1].element[q] = -INFINITY;
  };
  start_groups();
  int span = begin / keys >> scan.span_log2;

  // Writes the maxima of the groups of the spans before `next`.
  const auto finish_groups = [&](int next) {
    for (; span < next; ++span) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t slot = task.slot + warp_row + mma_g() + 8 * half;
        pack<parts>(scan.maxima + slot * scan.groups, 4 * span + mma_t()) = largest_of_group[half];
      }
      start_groups();
    }
  };

  if (begin < end) {
    own.template copy<Shape::rows>(batch_head.row(p.q, task.row), p.q.row_stride, batch_head.queries - task.row, p.D());
    commit_copies();
    tiles.copy(begin, 0);
    tiles.each(
        begin, end, [](int from) { return from; },
        [&](int k0, const Tile& k, const Tile&) {
          finish_groups(k0 / keys >> scan.span_log2);
          float s[keys / 8][4];
          warp_tile_scores(batch_head, own.row(warp_row), query0, k0, k, s);
          each_sum(s, [&](float score, int bit) {
            float& largest = largest_of_group[bit / 2 % 2].element[bit / 8];
            largest = fmaxf(largest, score);
          });
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float largest = -INFINITY;
#pragma unroll
            for (const float of_group : largest_of_group[half].element) largest = fmaxf(largest, of_group);
            softmax.raise(half, largest * p.scale_2());
          }
          each_sum(s, [&](float score, int bit) { softmax.weight(bit / 2 % 2, score, p.scale_2()); });
        });
  }
  finish_groups(min(task.end / keys >> scan.span_log2, scan.groups / (4 * parts)));

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = softmax.running_max[half];
    for (int distance = 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(full_warp, largest, distance));
    float total = softmax.sum[half] * exp2_approx(softmax.running_max[half] - finite_shift(largest));
    for (int distance = 2; distance > 0; distance /= 2) total += __shfl_xor_sync(full_warp, total, distance);
    const int64_t slot = task.slot + warp_row + mma_g() + 8 * half;
    if (mma_t() == 0) scan.softmax[slot * scan.splits + task.split] = {largest, total};
  }
}

// ---- the groups

template <class T>
__global__ void __launch_bounds__(threads_a_block<32>)
    choose_groups(AttentionProblem<T> p, CentroidScan scan, float* logsumexp) {
  wait_for_earlier_launches();
  __shared__ uint32_t of_warp[rows_per_block][max_groups];
  uint32_t* const values = of_warp[threadIdx.x / 32];
  const CentroidRow own(p.size.N, scan.first_tile);
  if (!own.there) return;
  const int lane = int(threadIdx.x % 32);

  const RowSoftmax softmax = join_softmax(scan.splits, [&](int s) { return scan.softmax[own.slot * scan.splits + s]; });
#pragma unroll 8
  for (int g = lane; g < scan.groups; g += 32) values[g] = ordered(scan.maxima[own.slot * scan.groups + g]);
  __syncwarp();
  // Of equal maxima those of the lowest places are chosen.
  Cut cut;
  if (scan.top < scan.groups)
    cut = cut_after(
        scan.groups, scan.top, [&](int g) { return values[g]; }, [&](int g) { return scan.place(g); });
  if (cut.score <= ordered(-INFINITY)) cut = {ordered(-INFINITY) + 1};

  int count = 0;
  for (int base = 0; base < scan.groups; base += 32) {
    const int g = base + lane;
    const bool is_chosen = g < scan.groups && cut.has(values[g], scan.place(g));
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

// with_rest: somebody wants the rest. A template parameter, because registers are spilled otherwise.
template <class T, int columns, bool with_rest>
__global__ void __launch_bounds__(mma_threads, sizeof(T) == 2 && columns <= 64 ? 3 : 2)
    sum_rest_mma(AttentionProblem<T> p, CentroidScan scan) {
  wait_for_earlier_launches();
  using Shape = CentroidShape<T, columns>;
  using Tile = MmaTile<T, columns>;
  constexpr int keys = Shape::keys, parts = Shape::parts;
  const Tile own{dynamic_shared<T>()}, all_k = own.row(Shape::rows);
  const CentroidTile task(p.size, scan, keys);
  const BatchHead batch_head(p.size, p.mask, task.batch_head);
  const TileDropout dropout(p.dropout, batch_head);
  const KeyTiles<T, columns, keys> tiles{p, batch_head, all_k, all_k.row(2 * keys), with_rest};
  const int begin = task.begin, end = min(end_of_keys(batch_head, task.row), task.end);
  const int warp_row = int(threadIdx.x / 32) * 16, query0 = task.row + warp_row;
  const int64_t slot0 = task.slot + warp_row + mma_g();
  float sums[columns / 8][4] = {};

  if (begin < end) {
    own.template copy<Shape::rows>(batch_head.row(p.q, task.row), p.q.row_stride, batch_head.queries - task.row, p.D());
    commit_copies();
    tiles.copy(begin, 0);
    float lse2[2], threshold[2];
    float* scores[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = query0 + mma_g() + 8 * half < p.N();
      scores[half] = scan.scores + (slot0 + 8 * half) * scan.candidates();
      lse2[half] = there ? scan.lse2[slot0 + 8 * half] : 0.0f;
      threshold[half] = there ? scan.threshold[slot0 + 8 * half] : NAN;
    }
    tiles.each(
        begin, end, [](int from) { return from; },
        [&](int k0, const Tile& k, const Tile& v) {
          const int number = k0 / keys, lane_groups = (number >> scan.span_log2) * 4 + mma_t();
          Pack<int32_t, parts> place[2];
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (query0 + mma_g() + 8 * half < p.N())
              place[half] = pack<parts>(scan.places + (slot0 + 8 * half) * scan.groups, lane_groups);
            else
              for (int32_t& none : place[half].element) none = -1;
          float s[keys / 8][4];
          warp_tile_scores(batch_head, own.row(warp_row), query0, k0, k, s);
          float limit[2][parts];  // scores that reach it do not belong to the rest
#pragma unroll
          for (int i = 0; i < 2 * parts; ++i) {
            const int half = i / parts, q = i % parts, of_group = place[half].element[q];
            limit[half][q] = of_group >= 0 ? threshold[half] : NAN;
            if (of_group >= 0)
              pack<group_scores>(scores[half], (of_group << scan.span_log2) + (number & (scan.span() - 1))) = {
                  s[2 * q][2 * half], s[2 * q][2 * half + 1], s[2 * q + 1][2 * half], s[2 * q + 1][2 * half + 1]};
          }
          if constexpr (with_rest) {
            each_sum(s, [&](float& x, int bit) {
              const int half = bit / 2 % 2;
              x = x >= limit[half][bit / 8] ? 0.0f : exp2_approx(fmaf(x, p.scale_2(), -lse2[half]));
            });
            if (dropout.active) {
              const unsigned keep = mma_keep_query_rows<keys / 8>(dropout, query0, k0);
              each_sum(s, [&](float& weight, int bit) { weight = keep >> bit & 1 ? weight : 0.0f; });
            }
            // [eq. 10] [eq. 17] The other keys have the weights of the centroid.
            mma_weighted_rows(one_strip(s), v, one_strip(sums));
          }
        });
  }
  if constexpr (with_rest)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      write_sums(sums, half, 1.0f, scan.partial + ((slot0 + 8 * half) * scan.splits + task.split) * p.M(), p.M());
}

// ---- the top keys

// Lists the large scores of a centroid, which reach the threshold, in the order of their groups. Returns how many there
// are. sum_rest_mma has processed the keys before `end`.
template <int keys>
__device__ int collect_large(const CentroidScan& scan, const CentroidRow& own, int end, ScoredKey* list) {
  constexpr int parts = keys / 16;
  const int n = (scan.count[own.slot] << scan.span_log2) * group_scores, lane = int(threadIdx.x % 32);
  const float threshold = scan.threshold[own.slot];
  const float* const from = scan.scores + own.slot * scan.candidates();
  const int32_t* const chosen = scan.chosen + own.slot * scan.max_chosen;
  // Loads in flight. Scores from `end` on are unwritten, and not used; initcheck reports these reads.
  constexpr int batch = 4;
  int count = 0;
#pragma unroll 1
  for (int base = 0; base < n; base += 32 * batch) {
    float score[batch];
    int group[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = min(base + 32 * b + lane, n - 1);
      score[b] = fmaxf(from[i], -INFINITY);  // not NaN
      group[b] = chosen[i / group_scores >> scan.span_log2];
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = base + 32 * b + lane, e = i % group_scores;
      const int key0 = ((group[b] / (4 * parts) << scan.span_log2) + (i / group_scores & (scan.span() - 1))) * keys;
      const bool has = i < n && key0 < end && !(score[b] < threshold);
      const int place = place_in_list(has, count);
      if (has) list[place] = {score[b], key0 + group[b] % parts * 16 + e / 2 * 8 + group[b] / parts % 4 * 2 + e % 2};
    }
  }
  __syncwarp();
  return count;
}

template <class T, int columns>
__global__ void __launch_bounds__(threads_a_block<32>)
    finish_rows(AttentionProblem<T> p, CentroidScan scan, int32_t* topk, T* mass, HeadView<T> rest) {
  wait_for_earlier_launches();
  const int lane = int(threadIdx.x % 32);
  const CentroidRow own(p.size.N, scan.first_tile);
  if (!own.there) return;
  const BatchHead batch_head(p.size, p.mask, own.batch_head);
  const float lse2 = scan.lse2[own.slot];
  const auto weight = [&](const ScoredKey& x) { return exp2_approx(fmaf(x.score, p.scale_2(), -lse2)); };

  // The large scores, and which of them are the `top` largest: of equal ones those of lower keys.
  ScoredKey* const list = scan.large + own.slot * scan.candidates();
  const int n =
      collect_large<CentroidShape<T, columns>::keys>(scan, own, end_of_keys(batch_head, own.query / tile * tile), list);
  if (n > scan.top) {
    const Cut cut = cut_after(
        n, scan.top, [&](int i) { return ordered(list[i].score); }, [&](int i) { return list[i].key; });
    for (int i = lane; i < n; i += 32)  // the others get the key ~key, which is negative
      if (!cut.has(ordered(list[i].score), list[i].key)) list[i].key = ~list[i].key;
    __syncwarp();
  }

  float top_sum = 0;
  for (int i = lane; i < n; i += 32) {
    const ScoredKey mine = list[i];
    if (mine.key < 0) continue;
    top_sum += weight(mine);
    int place = 0;
#pragma unroll 4
    for (int other = 0; other < n; ++other) place += uint32_t(list[other].key) < uint32_t(mine.key);
    topk[own.row * scan.top + place] = mine.key;
  }
  for (int l = n + lane; l < scan.top; l += 32) topk[own.row * scan.top + l] = -1;
  // [eq. 9]
  top_sum = warp_reduce(top_sum, Sum{});
  if (lane == 0) mass[own.row] = T(top_sum);
  if (!rest) return;

  // The rest: the sums of the splits, and the large scores that are not in top. A lane prepares one of 32 scores, and
  // all lanes add its value, in the order of the list.
  const TileDropout dropout(p.dropout, batch_head);
  const float factor = own.query < batch_head.queries ? dropout.scale : 0.0f;
  T* const to = batch_head.row(rest, own.query);
#pragma unroll 1
  for (int column0 = 0; column0 < p.M(); column0 += 64) {
    const int column = column0 + 2 * lane;
    const bool has_column = column < p.M();
    float sum[2] = {};
#pragma unroll 8
    for (int s = 0; s < (has_column ? scan.splits : 0); ++s) {
      const Pack<float, 2> two = pack<2>(scan.partial + (own.slot * scan.splits + s) * p.M(), column / 2);
      sum[0] += two.element[0], sum[1] += two.element[1];
    }
#pragma unroll 1
    for (int base = 0; base < n; base += 32) {
      const ScoredKey mine = base + lane < n ? list[base + lane] : ScoredKey{0, 0};
      const int my_key = ~mine.key;
      const bool in_rest =
          mine.key < 0 && !(dropout.active && !(dropout.keep(own.query, my_key & ~3) >> my_key % 4 & 1));
      const float my_weight = in_rest ? weight(mine) : 0.0f;
      for (unsigned lanes = __ballot_sync(full_warp, in_rest); lanes != 0; lanes &= lanes - 1) {
        const int from = __popc(~lanes & (lanes - 1)), key = __shfl_sync(full_warp, my_key, from);
        const float its_weight = __shfl_sync(full_warp, my_weight, from);
        if (!has_column) continue;
        const Pack<T, 2> value = pack<2>(batch_head.row(p.v, key), column / 2);
        for (int e = 0; e < 2; ++e) sum[e] = fmaf(its_weight, float(value.element[e]), sum[e]);
      }
    }
    Pack<T, 2> result;
    for (int e = 0; e < 2; ++e) result.element[e] = T(factor == 0 ? 0.0f : sum[e] * factor);
    if (has_column) pack<2>(to, column / 2) = result;
  }
}

// ---- the host's part

template <class T, int columns>
void centroid_topk_forward_mma(Stream stream, const AttentionProblem<T>& p, int64_t k, int32_t* topk, float* logsumexp,
                               T* mass, HeadView<T> rest) {
  using Shape = CentroidShape<T, columns>;
  // Of workspace in a round, unless a single tile needs more. A wave of an H100, 384 tiles, needs 283 MB for 4096 keys
  // and k = 32.
  constexpr int64_t max_bytes = int64_t{300} << 20;
  const int64_t tiles = p.size.B * p.size.H * ceil_div(p.size.N, tile);
  CentroidScan scan{KeyGroups(p.size.S, k, Shape::keys)};
  scan.top = int(k);
  scan.splits = int(count_splits(tiles, p.size.S, 256));
  const int64_t sums = rest ? scan.splits * p.size.M : 0;
  const int64_t slot_bytes =
      12 + 8 * scan.splits + 8 * scan.groups + 4 * scan.max_chosen + 12 * scan.candidates() + 4 * sums;
  const int64_t rounds = ceil_div(tiles, std::max<int64_t>(1, max_bytes / (slot_bytes * tile)));
  scan.tiles = ceil_div(tiles, rounds);  // rounds of the same size: a short last one would leave the GPU idle

  Workspace workspace(Device::cuda);
  const int64_t slots = scan.slots();
  scan.softmax = workspace.take<RowSoftmax>(slots * scan.splits);
  scan.maxima = workspace.take<float>(slots * scan.groups);
  scan.places = workspace.take<int32_t>(slots * scan.groups);
  scan.chosen = workspace.take<int32_t>(slots * scan.max_chosen);
  scan.count = workspace.take<int32_t>(slots);
  scan.lse2 = workspace.take<float>(slots);
  scan.threshold = workspace.take<float>(slots);
  scan.scores = workspace.take<float>(slots * scan.candidates());
  scan.large = workspace.take<ScoredKey>(slots * scan.candidates());
  if (sums > 0) scan.partial = workspace.take<float>(slots * sums);
  for (; scan.first_tile < tiles; scan.first_tile += scan.tiles) {
    scan.tiles = std::min(scan.tiles, tiles - scan.first_tile);
    const Launch blocks = overlapped({scan.tiles * scan.splits, mma_threads, 0, stream});
    const Launch rows = overlapped({scan.slots() / rows_per_block, threads_a_block<32>, 0, stream});
    launch<scan_keys_mma<T, columns>, Shape::scan_bytes>(blocks, p, scan);
    launch(choose_groups<T>, rows, p, scan, logsumexp);
    if (scan.partial)
      launch<sum_rest_mma<T, columns, true>, Shape::rest_bytes>(blocks, p, scan);
    else
      launch<sum_rest_mma<T, columns, false>, Shape::rest_bytes>(blocks, p, scan);
    launch(finish_rows<T, columns>, rows, p, scan, topk, mass, rest);
  }
}

}  // namespace cairn::gpu
