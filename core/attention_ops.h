#pragma once
// Tensor operations of the attention family. Shapes: q [B, N, H, D], k [B, S, H, D], v [B, S, H, M]; a single-headed or
// projected tensor [B, N, H * D] is the same memory. Labels, clusters and top keys carry no gradient.
#include "core/kernels/attention.h"
#include "core/kernels/chunk_attention.h"
#include "core/kernels/clusters.h"
#include "core/kernels/hash_codes.h"
#include "core/ops.h"

namespace cairn {

// Which keys each query may attend to. An undefined tensor masks nothing.
struct AttentionMask {
  Tensor query_lengths{};  // int32 [B]: queries beyond get zeros
  Tensor key_lengths{};    // int32 [B]: keys beyond get no weight
  Tensor allowed{};        // bool, broadcastable to [B, H, N, S]: true = may attend
  bool causal = false;     // key j is visible to query i when j <= i
  Pattern pattern{};       // which positions see each other

  // For self-attention over padded sequences of these lengths, int32 [B].
  static AttentionMask padded(const Tensor& lengths) { return {.query_lengths = lengths, .key_lengths = lengths}; }
  // The mask of centroids over the keys: a centroid has no position, so only the keys' lengths remain.
  AttentionMask key_lengths_only() const { return {.key_lengths = key_lengths}; }
};

// Options of all attention operations. scale 0 stands for 1 / sqrt(D).
struct AttentionOptions {
  AttentionMask mask{};
  Dropout dropout{};  // of the weights
  double scale = 0;
};

// ---- clusters of queries
// planes [bits, D + 1], float32: row j is a normal vector, then its threshold: normal with `bias`, else 0. Error: bits
// outside 1..64.
Tensor random_planes(int bits, int64_t D, bool bias, Draw draw, Device device);
// uint64 [B, H, N]. Error: planes that do not fit q, or more than 64 of them.
Tensor hash_codes(const Tensor& q, const Tensor& planes);
// int32 [B, H, N], -1 beyond the lengths (undefined: all N). Errors: clusters < 1, iterations < 0.
Tensor hamming_kmeans(const Tensor& codes, const Tensor& lengths, int64_t clusters, int iterations, Draw draw);

// A partition of queries into clusters. The members of cluster c are permutation[offsets[c]] up to
// permutation[offsets[c + 1]], in rising order. Only clusters_of() makes one, so its tensors fit together, and kernels
// read them unchecked. The buckets of lsh are such a partition too.
class Clusters {
 public:
  Clusters() = default;  // no partition; every operation rejects it

  const Tensor& labels() const { return labels_; }            // int32 [B, H, N]; outside [0, C): no cluster
  const Tensor& permutation() const { return permutation_; }  // int32 [B, H, N]
  const Tensor& offsets() const { return offsets_; }          // int32 [B, H, C + 1]
  int64_t count() const { return count_; }                    // C

  // Error: not a partition of `shape` = [B, H, N] on this device, or one of its tensors has changed.
  void check(const char* operation, const Shape& shape, Device device) const;

 private:
  friend Clusters clusters_of(const Tensor& labels, int64_t count);
  uint64_t version() const { return labels_.version() + permutation_.version() + offsets_.version(); }

  Tensor labels_, permutation_, offsets_;
  int64_t count_ = 0;
  uint64_t version_ = 0;  // version() when it was made; versions only rise, and so does their sum
};
// Sorts labels, int32 [B, H, N], into clusters. Labels outside [0, count) count as -1. Error: a count outside
// 0..2^31 - 1.
Clusters clusters_of(const Tensor& labels, int64_t count);

// The members of each cluster, int32 [B, H, C, width], in rising order, then -1; those after `width` are left out. This
// is the form of top keys. Error: width < 1.
Tensor list_members(const Clusters& clusters, int64_t width);

// Labels of clusters of consecutive queries, int32 `shape` = [B, H, N]: floor(i C / n) for query i of n valid ones, -1
// beyond the lengths (undefined: all N are valid). `shift` moves the borders by half a cluster. If C >= n, each query
// is a cluster. Error: clusters < 1.
Tensor position_labels(const Shape& shape, const Tensor& lengths, int64_t clusters, bool shift, Device device);
// bool [B, n]: is position j within the length of batch element b?
Tensor within(const Tensor& lengths, int64_t n);

// ---- lsh: buckets of queries
// Normal numbers, float32 [rounds, columns, D]. Errors: rounds or columns < 1.
Tensor random_rotations(int64_t rounds, int64_t columns, int64_t D, Draw draw, Device device);
// int32 [B, H, rounds, N], -1 beyond the lengths (undefined: all N); rotations [rounds, 2, columns, D]. The buckets are
// counted for `keys` keys, or for key_lengths of them; without `keys`, for the queries. Errors: an odd or negative
// number of buckets; chunk < 1; rotations that do not fit q, or with fewer than count.columns(keys) columns.
Tensor hash_buckets(const Tensor& q, const Tensor& rotations, const Tensor& lengths, const BucketCount& count,
                    int64_t keys = -1, const Tensor& key_lengths = {});

}  // namespace cairn
