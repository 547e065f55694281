// lsh-R: Reformer's attention (Kitaev, Kaiser, Levskaya 2020, section 2). A softmax gives weight almost only to keys
// that point in the query's direction. So queries are their own keys, and a hash of directions finds the few positions
// that are worth a look. A round of hashing, for n valid positions:
//
//   k_j      = q_j / |q_j|  (a zero query: a zero key)
//   bucket_j = argmax of [q_j R; -q_j R], R normal [D, buckets / 2], drawn for the whole call. Vectors of similar
//              direction often share a bucket. buckets = 2 ceil(n / (2 chunk)), at least 2, or `buckets=`; if these are
//              more than 64, a bucket is a pair, as in Kitaev's code: a hash with a = 2 ceil(sqrt(buckets) / 2)
//              values and one with b = 2 ceil(buckets / (2 a)) values, each from a rotation of its own
//   positions are sorted by (bucket, position) and cut into chunks of equal length, because buckets have any. A bucket
//              may go on in the next chunk, so a chunk attends to itself and to the chunk before it, the first one to
//              the last. Query i sees the keys of its bucket there that the mask allows, without i itself.
//
// A round may put near vectors into different buckets, hence R rounds. With s_ij = scale q_i . k_j:
//
//   z_r   = logsumexp of s_ij over the keys j of round r,  o_r = sum over these keys of e^(s_ij - z_r) v_j
//   out_i = sum over r of e^(z_r - z) o_r,  z = logsumexp over r of z_r
//
// This is the softmax over the keys of all rounds, where a key counts once for each round that sees it
// (autograd/ops/chunk_attention.cpp). If no round leaves a key, out_i = v_i. `combine=mean` takes the mean of the o_r,
// and v_i for a round that leaves no key. Dropout drops a key for all queries of a head at once.
//
// `keys=own` (ours): the keys are k_j, as in full attention, and there may be any number of them; n above counts the
// keys. Queries and keys are hashed with the same rotations, sorted apart, and cut into chunks apart. Take the bucket
// of a chunk's first query. The chunk of queries attends to the chunk that holds the first key of this bucket, or of a
// later one if this bucket has no key (if no later one has: the last chunk), and to the next chunk. A query may miss
// keys of its bucket that lie further on. Query i may see key i. A query that sees no key gets 0.
//
// Deviations from Kitaev's code: scores are divided by sqrt(D) (there they are not; `scale=1` does the same). A
// position attends to itself only if it sees nothing else (there its own score is -10^5). There are about n / chunk
// buckets, by each sequence's own length (there 2 n / chunk). Any length will do.
//
// The port of the authors of Clustered Attention divides by sqrt(D) too. Of its other rules, three are options here,
// `bucket_mask=false,combine=mean,buckets=`: other buckets in the two chunks are visible, rounds are averaged, and c
// projections make 2 c buckets. Two are not: a position attends to itself, and the first chunk has none before it.
#include "nn/attention/attention.h"

namespace cairn {
namespace {

struct Lsh : Attention {
  int64_t rounds = 1;
  BucketOptions options_of_buckets;
  BucketCount count;
  bool mean = false;  // of the rounds' results
  bool own_keys = false;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    check<UsageError>(own_keys || q.size(1) == v.size(1), "attention '", spec(),
                      "' uses the queries as keys, so it has no cross attention: ", q.size(1), " queries, ", v.size(1),
                      " values");
    const Variable keys = own_keys ? k : l2_normalize(q);
    const Tensor& key_lengths = own_keys ? mask.key_lengths : mask.query_lengths;
    // int32 [B, H, R, positions of x], -1: none. Carries no gradient.
    const auto hash = [&](const Tensor& x, const Tensor& lengths) {
      const Draw draw = context.draw(Purpose::rotations);
      const int64_t columns = count.columns(keys.size(1));
      const Tensor rotations =
          random_rotations(2 * rounds, columns, x.size(3), draw, x.device()).reshape({rounds, 2, columns, x.size(3)});
      return hash_buckets(x, rotations, lengths, count, keys.size(1), key_lengths);
    };
    const Tensor buckets = context.choice(&AttentionChoices::buckets, [&] { return hash(q, mask.query_lengths); });
    const Tensor key_buckets =
        own_keys ? context.choice(&AttentionChoices::key_buckets, [&] { return hash(k, key_lengths); }) : Tensor();
    // Attention over the keys of rounds [first, end).
    const auto attend = [&](int64_t first, int64_t end) {
      const auto clusters = [&](const Tensor& x) {
        if (!x.defined()) return Clusters();
        const Tensor some = slice(x, 2, first, end);
        return clusters_of(some.reshape({x.size(0), x.size(1) * (end - first), x.size(3)}), count(keys.size(1)));
      };
      return chunk_attention(q, keys, v, clusters(buckets), options_of_buckets, options(mask, context),
                             clusters(key_buckets));
    };
    if (!mean) return attend(0, rounds);
    Variable sum = attend(0, 1);
    for (int64_t round = 1; round < rounds; ++round) sum = sum + attend(round, round + 1);
    return sum / double(rounds);
  }
  double flops(const AttentionWork& work) const override {
    const auto n = int64_t(work.length);
    const double projections = double(count.b(n) + (count.a(n) > 1 ? count.a(n) : 0)),
                 chunks = 2 * double(options_of_buckets.chunk);
    return double(rounds) * (work.head_size * projections + work.attend(chunks));
  }
  bool shares_keys() const override { return !own_keys; }
};

std::unique_ptr<Attention> make(SpecReader& spec) {
  constexpr int64_t maximum = 1 << 30;
  auto variant = std::make_unique<Lsh>();
  BucketOptions& options = variant->options_of_buckets;
  variant->rounds = spec.number("rounds");
  options.chunk = variant->count.chunk = spec.integer("chunk", 32, 1, maximum, "positions in a chunk");
  variant->count.given =
      spec.integer("buckets", 0, 0, maximum, "at least so many buckets in a round, an even number; 0: one per chunk");
  if (variant->count.given % 2 != 0)
    spec.fail(concat("option buckets = ", variant->count.given, ", expected an even number"));
  options.bucket_mask = spec.flag("bucket_mask", true, "attend only within the same bucket");
  const std::string combine = spec.text("combine", "logsumexp", "weights of the rounds: logsumexp or mean");
  if (combine != "logsumexp" && combine != "mean")
    spec.fail(concat("option combine: expected logsumexp or mean, got '", combine, "'"));
  variant->mean = combine == "mean";
  const std::string keys = spec.text("keys", "queries", "queries: they are the keys, at unit length; own: keys apart");
  if (keys != "queries" && keys != "own") spec.fail(concat("option keys: expected queries or own, got '", keys, "'"));
  variant->own_keys = keys == "own";
  return variant;
}

}  // namespace

extern const AttentionVariant lsh_variant{
    "lsh", "Reformer: queries are the keys; chunks of positions sorted by hash, in several rounds", make};

}  // namespace cairn
