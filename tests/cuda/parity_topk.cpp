// Cases of parity.h: top keys of centroids, and attention to them.
#include "tests/cuda/parity.h"

#include "core/attention_ops.h"

namespace cairn::test {
namespace {

struct Sizes {
  int64_t B, H, N, S, D, M;
};

std::string label(const char* what, const Sizes& s, int64_t k) {
  return concat(what, " B ", s.B, " H ", s.H, " N ", s.N, " S ", s.S, " D ", s.D, " M ", s.M, " k ", k);
}

// Halves of small whole numbers: their products and sums are exact, and full of ties.
Tensor halves(const Bench& bench, const Shape& shape, uint64_t seed) {
  const Tensor whole = Bench{}.integers(shape, -2, 2, seed).cast(DType::float32);
  std::vector<float> values = whole.to_vector<float>();
  for (float& x : values) x /= 2;
  return bench.place(Tensor::from(values, shape));
}

AttentionDropout dropout_of(const Bench& bench, double p, Purpose purpose) {
  return {p, Generator(7, bench.device).draw(2, purpose)};
}

// Lengths from 0 to `most`; the first is `most`.
Tensor lengths(const Bench& bench, int64_t B, int64_t most) {
  std::vector<int32_t> values;
  for (int64_t b = 0; b < B; ++b) values.push_back(int32_t(b == 0 ? most : b == 1 ? 0 : most * b / B));
  return Tensor::from(values, {B}).to(bench.device);
}

enum class Masked { not_at_all, by_lengths, by_element, causal, every_way };

AttentionMask mask_of(const Bench& bench, Masked masked, const Sizes& s) {
  AttentionMask mask;
  const bool all = masked == Masked::every_way;
  if (all || masked == Masked::by_lengths)
    mask.query_lengths = lengths(bench, s.B, s.N), mask.key_lengths = lengths(bench, s.B, s.S - s.S / 5);
  if (all || masked == Masked::by_element) {
    // Two keys of three; query 0 sees nothing.
    Tensor allowed({s.B, 1, s.N, s.S}, DType::boolean);
    const auto numbers = Bench{}.integers(allowed.shape(), 0, 2, 5).to_vector<int32_t>();
    for (size_t i = 0; i < numbers.size(); ++i)
      allowed.mutable_data<bool>()[i] = numbers[i] > 0 && int64_t(i) / s.S % s.N > 0;
    mask.allowed = allowed.to(bench.device);
  }
  mask.causal = all || masked == Masked::causal;
  return mask;
}

// ---- centroid_topk

struct CentroidCase {
  Sizes s;
  int64_t k;
  Masked masked = Masked::not_at_all;
  double dropout = 0;
  bool ties = false;      // scores with many ties
  bool with_rest = true;  // and gradients
  bool given = false;     // T is given
};

Results split_by_centroids(const Bench& bench, const CentroidCase& c) {
  const Sizes& s = c.s;
  const Shape of_q{s.B, s.N, s.H, s.D}, of_k{s.B, s.S, s.H, s.D}, of_v{s.B, s.S, s.H, s.M};
  const Tensor q = c.ties ? halves(bench, of_q, 1) : bench.normal(of_q, 1);
  const Tensor k = c.ties ? halves(bench, of_k, 2) : bench.normal(of_k, 2);
  const Tensor v = bench.normal(of_v, 3);
  const AttentionOptions options{mask_of(bench, c.masked, s),
                                 dropout_of(bench, c.dropout, Purpose::attention_tail_dropout), 0};
  Tensor given;
  if (c.given) {
    // Every third key, at most k; the second centroid has none, and one key is there that may be masked.
    std::vector<int32_t> keys;
    for (int64_t row = 0; row < s.B * s.H * s.N; ++row)
      for (int64_t l = 0; l < c.k; ++l)
        keys.push_back(int32_t(row != 1 && 3 * l + row % 3 < s.S ? 3 * l + row % 3 : -1));
    given = Tensor::from(keys, {s.B, s.H, s.N, c.k}).to(bench.device);
  }
  const CentroidTopK kept = centroid_topk(q, k, v, c.k, c.with_rest, options, given);
  Results results{kept.topk, kept.logsumexp, kept.mass};
  if (!c.with_rest) return results;
  const auto [dq, dk, dv] = centroid_topk_backward(q, k, v, options, kept, bench.normal(kept.mass.shape(), 4),
                                                   bench.normal(kept.rest.shape(), 5));
  results.insert(results.end(), {kept.rest, dq, dk, dv});
  return results;
}

void add_centroid_topk(std::vector<Case>& cases) {
  const auto add = [&](const CentroidCase& c) {
    const std::string name = concat(label("centroid_topk", c.s, c.k), " masked ", int(c.masked), " dropout ", c.dropout,
                                    c.ties ? " ties" : "", c.with_rest ? "" : " without rest", c.given ? " given" : "");
    cases.push_back({name, [=](const Bench& bench) { return split_by_centroids(bench, c); }});
  };
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1, 1}, Sizes{0, 2, 3, 3, 2, 2}, Sizes{2, 0, 3, 3, 2, 2}, Sizes{2, 2, 0, 3, 2, 2},
        Sizes{2, 2, 3, 0, 2, 2}, Sizes{2, 2, 3, 4, 0, 2}, Sizes{2, 2, 3, 4, 2, 0}, Sizes{3, 2, 5, 7, 4, 6}})
    for (const int64_t k : {1, 3, 32}) add({s, k});
  for (const Masked masked :
       {Masked::not_at_all, Masked::by_lengths, Masked::by_element, Masked::causal, Masked::every_way})
    for (const double dropout : {0.0, 0.3}) {
      add({{3, 2, 11, 29, 5, 3}, 4, masked, dropout, false});
      add({{3, 2, 11, 29, 5, 3}, 7, masked, dropout, true});
      add({{3, 1, 67, 131, 8, 12}, 32, masked, dropout, true});
      add({{3, 1, 67, 131, 5, 3}, 5, masked, dropout, false, true, true});
    }
  // Ties over all of the keys and over several splits; lists longer than a warp, and than the keys.
  for (const int64_t k : {1, 2, 32, 33, 70, 600, 1200}) add({{1, 1, 3, 1100, 3, 4}, k, Masked::not_at_all, 0, true});
  for (const int64_t k : {1, 32, 40}) add({{1, 2, 2, 1613, 5, 4}, k, Masked::not_at_all, 0.1});
  add({{1, 1, 2, 1613, 4, 4}, 40, Masked::every_way, 0.1, true});
  add({{1, 1, 2, 1613, 4, 4}, 40, Masked::by_lengths, 0.1, false, true, true});
  // Wide rows, and columns of several blocks.
  for (const auto& [D, M] : {std::pair{32, 64}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {66, 130}, {128, 128}})
    add({{1, 1, 65, 70, D, M}, 9, Masked::not_at_all, 0.2});
  // Single queries, each with its own keys.
  for (const Masked masked : {Masked::not_at_all, Masked::by_element, Masked::causal, Masked::every_way}) {
    add({{2, 2, 130, 130, 4, 3}, 8, masked, 0, true, false});
    add({{2, 2, 130, 130, 16, 3}, 33, masked, 0, false, false});
  }
}

}  // namespace

void add_topk(std::vector<Case>& cases) { add_centroid_topk(cases); }

}  // namespace cairn::test
