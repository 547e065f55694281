// Cases of parity.h: top keys of centroids, and attention to them.
#include <algorithm>
#include <cmath>
#include <utility>

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

// x [B, N, H, D] with one element replaced: the first of row `row` of (batch element 0, `head`).
Tensor spoiled(const Bench& bench, const Tensor& x, int64_t row, int64_t head, float with) {
  std::vector<float> values = x.to(Device::cpu).cast(DType::float32).to_vector<float>();
  values[size_t((row * x.size(2) + head) * x.size(3))] = with;
  return bench.place(Tensor::from(values, x.shape()));
}

AttentionDropout dropout_of(const Bench& bench, double p, Purpose purpose) {
  return {p, Generator(7, bench.device).draw(2, purpose)};
}

// Lengths from 0 to `maximum`; the first is `maximum`.
Tensor lengths(const Bench& bench, int64_t B, int64_t maximum) {
  std::vector<int32_t> values;
  for (int64_t b = 0; b < B; ++b) values.push_back(int32_t(b == 0 ? maximum : b == 1 ? 0 : maximum * b / B));
  return Tensor::from(values, {B}).to(bench.device);
}

enum class Masked { not_at_all, by_lengths, by_element, causal, by_pattern, every_way };

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
  if (masked == Masked::by_pattern) mask.pattern = {int32_t(s.S / 9), int32_t(s.S / 4), 1};
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
  bool spoiled = false;   // by infinity and NaN, in heads 0 and 1
};

struct CentroidInputs {
  Tensor q, k, v, given;
  AttentionOptions options;

  CentroidInputs(const Bench& bench, const CentroidCase& c) {
    const Sizes& s = c.s;
    const Shape of_q{s.B, s.N, s.H, s.D}, of_k{s.B, s.S, s.H, s.D}, of_v{s.B, s.S, s.H, s.M};
    q = c.ties ? halves(bench, of_q, 1) : bench.normal(of_q, 1);
    k = c.ties ? halves(bench, of_k, 2) : bench.normal(of_k, 2);
    if (c.spoiled) q = spoiled(bench, q, 2, 0, NAN), k = spoiled(bench, k, s.S - 1, 1, -INFINITY);
    v = bench.normal(of_v, 3);
    options = {mask_of(bench, c.masked, s), dropout_of(bench, c.dropout, Purpose::attention_tail_dropout), 0};
    if (!c.given) return;
    // Every third key, at most k; the second centroid has none, and one key is there that may be masked.
    std::vector<int32_t> keys;
    for (int64_t row = 0; row < s.B * s.H * s.N; ++row)
      for (int64_t l = 0; l < c.k; ++l)
        keys.push_back(int32_t(row != 1 && 3 * l + row % 3 < s.S ? 3 * l + row % 3 : -1));
    given = Tensor::from(keys, {s.B, s.H, s.N, c.k}).to(bench.device);
  }
  CentroidTopK split(const CentroidCase& c) const { return centroid_topk(q, k, v, c.k, c.with_rest, options, given); }
};

Results split_by_centroids(const Bench& bench, const CentroidCase& c) {
  const CentroidInputs in(bench, c);
  const CentroidTopK made = in.split(c);
  Results results{{"topk", made.topk}, {"logsumexp", made.logsumexp}, {"mass", made.mass}};
  if (!c.with_rest) return results;
  const CentroidTopK saved = CentroidInputs(bench.on_cpu(), c).split(c);
  const auto [dq, dk, dv] = centroid_topk_backward(
      in.q, in.k, in.v, in.options,
      {saved.topk.to(bench.device), saved.logsumexp.to(bench.device), bench.place(saved.mass), bench.place(saved.rest)},
      bench.normal(made.mass.shape(), 4), bench.normal(made.rest.shape(), 5));
  results.insert(results.end(), {{"rest", made.rest}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  return results;
}

}  // namespace

void add_centroid_topk(std::vector<Case>& cases) {
  const auto add = [&](const CentroidCase& c) {
    const std::string name = concat(label("centroid_topk", c.s, c.k), " masked ", int(c.masked), " dropout ", c.dropout,
                                    c.ties ? " ties" : "", c.with_rest ? "" : " without rest", c.given ? " given" : "",
                                    c.spoiled ? " spoiled" : "");
    cases.push_back({name, [=](const Bench& bench) { return split_by_centroids(bench, c); }});
  };
  for (const Sizes& s :
       {Sizes{1, 1, 1, 1, 1, 1}, Sizes{0, 2, 3, 3, 2, 2}, Sizes{2, 0, 3, 3, 2, 2}, Sizes{2, 2, 0, 3, 2, 2},
        Sizes{2, 2, 3, 0, 2, 2}, Sizes{2, 2, 3, 4, 0, 2}, Sizes{2, 2, 3, 4, 2, 0}, Sizes{3, 2, 5, 7, 4, 6}})
    for (const int64_t k : {1, 3, 32}) add({s, k});
  for (const Masked masked : {Masked::not_at_all, Masked::by_lengths, Masked::by_element, Masked::causal,
                              Masked::by_pattern, Masked::every_way})
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
  for (const Masked masked : {Masked::not_at_all, Masked::by_lengths})
    add({{2, 3, 11, 29, 5, 3}, 4, masked, 0.1, false, true, false, true});
  // Wide rows, and columns of several blocks.
  for (const auto& [D, M] : {std::pair{32, 64}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {66, 130}, {128, 128}})
    add({{1, 1, 65, 70, D, M}, 9, Masked::not_at_all, 0.2});
  // Single queries, each with its own keys.
  for (const Masked masked : {Masked::not_at_all, Masked::by_element, Masked::causal, Masked::every_way}) {
    add({{2, 2, 130, 130, 4, 3}, 8, masked, 0, true, false});
    add({{2, 2, 130, 130, 16, 3}, 33, masked, 0, false, false});
  }
}

// ---- topk_attention

namespace {

enum class Labels { random, one_huge, few_used, own };

struct MemberCase {
  Sizes s;
  int64_t C, k;
  Labels labels = Labels::random;
  double dropout = 0;
  bool with_rest = true;
};

Groups groups_of(const Bench& bench, const MemberCase& c) {
  std::vector<int32_t> labels;
  RandomStream random(11, 0, Purpose::test);
  for (int64_t i = 0; i < c.s.B * c.s.H * c.s.N; ++i) {
    int32_t label = int32_t(random.below(uint32_t(c.C + 1))) - 1;  // -1: of no cluster
    if (c.labels == Labels::one_huge && random.below(8) > 0) label = int32_t(c.C / 2);
    if (c.labels == Labels::few_used) label = label >= 0 ? label / 4 * 4 : -1;
    if (c.labels == Labels::own) label = int32_t(i % c.s.N);
    labels.push_back(label);
  }
  return group(Tensor::from(labels, {c.s.B, c.s.H, c.s.N}).to(bench.device), c.C);
}

// Rising rows, then -1: of up to k keys, and of none at all for one cluster of seven.
Tensor top_keys(const Bench& bench, const MemberCase& c) {
  std::vector<int32_t> keys;
  RandomStream random(12, 0, Purpose::test);
  for (int64_t row = 0; row < c.s.B * c.s.H * c.C; ++row) {
    const size_t end = size_t((row + 1) * c.k);
    const uint32_t step = uint32_t(std::max<int64_t>(1, 2 * c.s.S / c.k));
    for (int64_t key = random.below(step); key < c.s.S && keys.size() < end && row % 7 != 6;
         key += 1 + random.below(step))
      keys.push_back(int32_t(key));
    keys.resize(end, -1);
  }
  return Tensor::from(keys, {c.s.B, c.s.H, c.C, c.k}).to(bench.device);
}

Results attend_to_top(const Bench& bench, const MemberCase& c) {
  const Sizes& s = c.s;
  const Variable q = bench.variable(bench.normal({s.B, s.N, s.H, s.D}, 1));
  const Variable k = bench.variable(bench.normal({s.B, s.S, s.H, s.D}, 2));
  const Variable v = bench.variable(bench.normal({s.B, s.S, s.H, s.M}, 3));
  const AttentionOptions options{{}, dropout_of(bench, c.dropout, Purpose::attention_dropout), 0};
  const Groups groups = groups_of(bench, c);
  const Tensor topk = top_keys(bench, c);
  if (!c.with_rest)
    return with_gradients(bench, topk_attention(q, k, v, groups, topk, {}, {}, options),
                          {{"q", q}, {"k", k}, {"v", v}});
  const Variable mass = bench.variable(bench.uniform({s.B, s.H, c.C}, 0, 1, 4));
  const Variable rest = bench.variable(bench.normal({s.B, c.C, s.H, s.M}, 5));
  return with_gradients(bench, topk_attention(q, k, v, groups, topk, mass, rest, options),
                        {{"q", q}, {"k", k}, {"v", v}, {"mass", mass}, {"rest", rest}});
}

}  // namespace

void add_topk_attention(std::vector<Case>& cases) {
  const auto add = [&](const MemberCase& c) {
    const std::string name = concat(label("topk_attention", c.s, c.k), " C ", c.C, " labels ", int(c.labels),
                                    " dropout ", c.dropout, c.with_rest ? "" : " without rest");
    cases.push_back({name, [=](const Bench& bench) { return attend_to_top(bench, c); }});
  };
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1, 1}, Sizes{0, 2, 3, 3, 2, 2}, Sizes{2, 0, 3, 3, 2, 2},
                         Sizes{2, 2, 0, 3, 2, 2}, Sizes{2, 2, 3, 0, 2, 2}, Sizes{2, 2, 3, 4, 0, 2},
                         Sizes{2, 2, 3, 4, 2, 0}, Sizes{2, 2, 3, 4, 0, 0}, Sizes{3, 2, 5, 7, 4, 6}})
    for (const bool with_rest : {false, true}) {
      add({s, 1, 1, Labels::random, 0, with_rest});
      add({s, 3, 4, Labels::random, 0.3, with_rest});
    }
  add({{2, 2, 3, 4, 5, 6}, 0, 4, Labels::random, 0, true});
  for (const Labels labels : {Labels::random, Labels::one_huge, Labels::few_used})
    for (const double dropout : {0.0, 0.3})
      for (const int64_t k : {1, 7, 32, 33, 100}) add({{2, 2, 151, 131, 5, 3}, 13, k, labels, dropout, dropout > 0});
  // Wide rows, and columns of several blocks.
  for (const auto& [D, M] :
       {std::pair{32, 64}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {66, 130}, {128, 128}, {5, 200}})
    for (const int64_t k : {9, 41}) add({{1, 2, 40, 70, D, M}, 3, k, Labels::random, 0.2, true});
  // More scratch memory than one round has: a round for each head.
  add({{1, 2, 20, 130, 2, 128}, 1100, 128, Labels::random, 0, true});
  // Each query a cluster of its own, as in oracle-top.
  for (const int64_t k : {8, 35}) add({{2, 2, 67, 131, 12, 8}, 67, k, Labels::own, 0.1, false});
}

}  // namespace cairn::test
