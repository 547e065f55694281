// clustered-keys-C: a form of clustering that can be causal. Queries cannot be clustered causally, because a centroid
// would tell a query what later ones ask. Keys can. Positions are cut into blocks of W; the keys of each block are
// clustered as clustered-C clusters queries. Query i of block a sees the keys of near blocks one by one, and of each
// cluster c of the far blocks, with n_c members, only the mean key and the mean value:
//
//   near: j in the blocks a - 1 and a, j <= i       (not causal: a - 1, a, a + 1)
//   far:  c in the blocks 0 .. a - 2                (not causal: all others)
//   K^c = mean of K_l over cluster c,  V^c = mean of V_l
//   out_i = ( sum over near j of e^(s Q_i . K_j) V_j + sum over far c of n_c e^(s Q_i . K^c) V^c ) / Z
//
// Z is the sum of the same weights, s the scale. With top = t > 0, query i takes the t far clusters with the largest
// weight (of equal ones the first). Their members then enter both sums one by one, and their means do not. So t = all
// is full attention, and so is C = W. A cluster's weight is at most the sum of its members' (Jensen). Labels and the
// choice of clusters have no gradient; the means have one.
//
// Each block is clustered by itself, with the same draws. So nothing that comes later changes a label, and causal
// outputs do not depend on what follows. Pairs of a causal N: N (1.5 W + C N / (2 W) + t W / C), least near
// W = sqrt(C N / 3).
//
// Not of the paper. Multipole Attention (Hooper et al. 2025, arXiv 2506.13059) has these sums at inference; MuSe
// (Mitchell and Kersting 2025, arXiv 2509.10406) clusters queries too, in a hierarchy of blocks.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/ops.h"
#include "nn/attention/attention.h"
#include "nn/attention/layout.h"

namespace cairn {
namespace {

struct ClusteredKeys : Attention {
  int64_t count = 0, block = 0, top = 0;
  int bits = 63, steps = 10;

  // The clusters of a block, up to a power of two (the last ones are empty), because kernels find the block of a key by
  // shifting bits (core/kernels/positions.h).
  int64_t places() const { return int64_t(std::bit_ceil(uint64_t(count))); }

  // The cluster of each key among those of all blocks, int32 [B, H, N]; -1 beyond the lengths.
  Tensor labels(const Tensor& k, const Tensor& lengths, const AttentionContext& context) const {
    const int64_t B = k.size(0), N = k.size(1), H = k.size(2), D = k.size(3), blocks = (N + block - 1) / block;
    const Tensor planes = context.choice(&AttentionChoices::planes, [&] {
      return random_planes(bits, D, true, context.draw(Purpose::planes), k.device());
    });
    const Tensor filler = Tensor::zeros({B, blocks * block - N, H, D}, k.dtype(), k.device());
    const Tensor rows = Tensor(concat({k, filler}, 1)).reshape({B * blocks, block, H, D});
    const Tensor begin = affine(arange(blocks, k.device()), double(block));
    const Tensor length =
        lengths.defined() ? lengths.reshape({B, 1}) : Tensor::full({B, 1}, double(N), DType::int32, k.device());
    const Tensor zero = Tensor::zeros({}, DType::int32, k.device());
    const Variable left = maximum(length - begin, zero);                          // keys from each block's begin
    const Tensor of_block = double(block) - maximum(double(block) - left, zero);  // min(left, block)
    const Tensor in_block = hamming_kmeans(hash_codes(rows, planes), of_block.reshape({B * blocks}), count, steps,
                                           context.draw(Purpose::clusters));
    const Tensor first = affine(arange(blocks, k.device()), double(places())).value().reshape({blocks, 1, 1});
    const Tensor by_block = in_block.reshape({B, blocks, H, block});
    const Tensor none = Tensor::full({}, -1, DType::int32, k.device());
    const Tensor all = where(compare(Compare::less, by_block, zero), none, by_block + first);
    return slice(permute(all, {0, 2, 1, 3}).value().reshape({B, H, blocks * block}), 2, 0, N);
  }

  // x [B, rows, H, D] with further columns: `column` [B, rows, H, 1], then zeros up to a multiple of 16 bytes.
  static Variable extended(const Variable& x, const Tensor& column) {
    const int64_t whole = 16 / int64_t(size_of(x.dtype())), D = x.size(3);
    const Tensor zeros =
        Tensor::zeros(column.shape().with(3, (D + whole) / whole * whole - D - 1), x.dtype(), x.device());
    return concat({x, column, zeros}, 3);
  }

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    const int64_t B = q.size(0), N = q.size(1), H = q.size(2);
    check<UsageError>(N == k.size(1), "attention '", spec(), "' cuts one sequence into blocks, so it has no cross ",
                      "attention: ", N, " queries, ", k.size(1), " keys");
    lengths_or_causal_only(mask, "the queries share clusters of keys");
    const int64_t blocks = (N + block - 1) / block, clusters = blocks * places();
    const int block_bits = std::countr_zero(uint64_t(block)), place_bits = std::countr_zero(uint64_t(places()));
    KeySet near{q, k, v, options(mask, context)};
    near.options.mask.pattern.blocks = {.query_bits = block_bits, .key_bits = block_bits};
    if (blocks <= 2) return joined_attention({near});

    const Tensor chosen =
        context.choice(&AttentionChoices::key_labels, [&] { return labels(k, mask.key_lengths, context); });
    const Clusters of_keys = clusters_of(chosen, clusters);
    const double factor = scale() != 0 ? scale() : 1 / std::sqrt(double(q.size(3)));
    // log n_c is a further column of the mean keys; the queries have a 1 there. An empty cluster gets a score of -1e6,
    // so its weight is 0. (Scores of -1e30 would be wrong: kernels subtract them with rounding errors far above 1.)
    const Tensor& begins = of_keys.offsets();
    const Tensor members = slice(begins, 2, 1, clusters + 1) - slice(begins, 2, 0, clusters);
    const DType sums = q.dtype() == DType::float64 ? DType::float64 : DType::float32;
    const Tensor lowest = Tensor::full({}, -1e6, sums, q.device());
    const Tensor logs = maximum(log(members.cast(sums)), lowest) / factor;
    const Tensor column = permute(logs, {0, 2, 1}).value().reshape({B, clusters, H, 1}).cast(q.dtype());
    KeySet far{extended(q, Tensor::full({B, N, H, 1}, 1, q.dtype(), q.device())),
               extended(cluster_mean(k, of_keys), column), cluster_mean(v, of_keys)};
    far.options.scale = factor;
    far.options.mask.query_lengths = mask.query_lengths;
    far.options.mask.pattern.blocks = {
        .query_bits = block_bits, .key_bits = place_bits, .far = true, .later = !mask.causal};

    std::vector<KeySet> sets{near};
    if (top > 0) {
      const int64_t most = std::min(top, (blocks - 2) * places());  // no query has more far ones
      far.without = context.choice(&AttentionChoices::topk, [&] { return top_keys(far.q, far.k, most, far.options); });
      // One more set for each of the t clusters that a query takes: the queries that take the same one share its
      // members.
      const Tensor lists = list_members(of_keys, block);
      for (int64_t t = 0; t < most; ++t) {
        KeySet listed{q, k, v, options({.query_lengths = mask.query_lengths}, context)};
        listed.clusters = clusters_of(Tensor(slice(far.without, 3, t, t + 1)).reshape({B, H, N}), clusters);
        listed.only = lists;
        sets.push_back(listed);
      }
    }
    far.options.dropout = context.weights_dropout(Purpose::attention_rest_dropout);
    sets.push_back(far);
    return joined_attention(sets);
  }
  double flops(const AttentionWork& work) const override {
    const double width = double(block);
    return 2 * work.head_size * bits + work.attend(3 * width) + work.attend(double(places()) * work.length / width) +
           work.attend(double(top) * width / double(count));
  }
  std::string full_because(int64_t queries, int64_t) const override {
    const int64_t blocks = (queries + block - 1) / block;
    if (blocks <= 2) return concat("all of its ", blocks == 1 ? "one block is" : "two blocks are", " near");
    if (count == block) return "each of its keys is a cluster";
    if (top < count * (blocks - 2)) return "";
    return concat("its ", top, " taken clusters are all that are far");
  }
};

}  // namespace

extern const AttentionVariant clustered_keys_variant{
    "clustered-keys", "clusters the keys block by block: near ones singly, far ones as centroids; can be causal",
    [](SpecReader& spec) -> std::unique_ptr<Attention> {
      auto variant = std::make_unique<ClusteredKeys>();
      variant->count = spec.number("clusters of a block");
      const int64_t least = int64_t(std::bit_ceil(uint64_t(variant->count)));
      variant->block =
          spec.integer("block", std::max<int64_t>(64, least), 1, 1 << 20,
                       "positions of a block, a power of two; by default at least the clusters. Without top, fewest "
                       "pairs near sqrt(clusters * length / 3)");
      if (!std::has_single_bit(uint64_t(variant->block)) || variant->block < variant->count)
        spec.fail(concat("option block: expected a power of two, at least the ", variant->count, " clusters, got ",
                         variant->block));
      variant->top = spec.integer("top", 0, 0, 1 << 20, "far clusters whose members each query sees singly");
      variant->bits = int(spec.integer("bits", 63, 1, 64, "hash bits per key"));
      variant->steps = int(spec.integer("iterations", 10, 0, 1000, "Lloyd iterations"));
      return variant;
    }};

}  // namespace cairn
