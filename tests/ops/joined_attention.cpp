#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ops/attention_test.h"

namespace {

// A set of a case. The second set's dropout is another one.
struct TestSet {
  int64_t classes = 1;
  Pattern pattern{};
  bool second = false;   // has operands 3 to 5 in place of q, k and v
  bool without = false;  // each query leaves out some keys
  bool only = false;     // the queries are in clusters with lists of keys
};
using Sets = std::vector<TestSet>;

struct Joined {
  HeadSizes s;
  Sets sets;
  std::string kind = "nothing";  // of mask
  AttentionMask mask{};
  double dropout = 0;
  HeadSizes second{};  // of operands 3 to 5
};

// Keys that query i leaves out: i - 1, i and i + 4, where they exist.
Tensor left_out(const HeadSizes& s) {
  std::vector<int32_t> keys;
  for (int64_t row = 0; row < s.B * s.H * s.N; ++row) {
    const size_t end = keys.size() + 3;
    for (const int64_t key : {row % s.N - 1, row % s.N, row % s.N + 4})
      if (key >= 0 && key < s.S) keys.push_back(int32_t(key));
    keys.resize(end, -1);
  }
  return Tensor::from(keys, {s.B, s.H, s.N, 3});
}
// Query i is in cluster i mod 4 - 1; the list of cluster c has every third key from c on.
constexpr int64_t listing_clusters = 3, listed_keys = 5;
bool is_listed(int64_t query, int64_t key) {
  const int64_t cluster = query % 4 - 1;
  return cluster >= 0 && key % 3 == cluster && key / 3 < listed_keys;
}
Tensor lists(const HeadSizes& s) {
  std::vector<int32_t> keys;
  for (int64_t row = 0; row < s.B * s.H * listing_clusters; ++row)
    for (int64_t l = 0; l < listed_keys; ++l) {
      const int64_t key = row % listing_clusters + 3 * l;
      keys.push_back(key < s.S ? int32_t(key) : -1);
    }
  return Tensor::from(keys, {s.B, s.H, listing_clusters, listed_keys});
}

// The set with operands, on their device. The scale is 0.7.
KeySet key_set(const Joined& c, size_t r, const Variables& t) {
  const TestSet& set = c.sets[r];
  const HeadSizes& s = set.second ? c.second : c.s;
  const size_t first = set.second ? 3 : 0;
  const Device device = t[0].device();
  KeySet keys{t[first], t[first + 1], t[first + 2], {.mask = on(device, c.mask), .scale = 0.7}, set.classes};
  keys.options.mask.pattern = set.pattern;
  keys.options.dropout = test_dropout(c.dropout, r == 0 ? Purpose::attention_dropout : Purpose::class_dropout);
  if (set.without) keys.without = left_out(s).to(device);
  if (set.only) {
    std::vector<int32_t> labels;
    for (int64_t i = 0; i < s.B * s.H * s.N; ++i) labels.push_back(int32_t(i % s.N % 4) - 1);
    keys.clusters = clusters_of(Tensor::from(labels, {s.B, s.H, s.N}).to(device), listing_clusters);
    keys.only = lists(s).to(device);
  }
  return keys;
}
std::vector<KeySet> key_sets(const Joined& c, const Variables& t) {
  std::vector<KeySet> sets;
  for (size_t r = 0; r < c.sets.size(); ++r) sets.push_back(key_set(c, r, t));
  return sets;
}

// One softmax over the keys of all sets. A key that two sets have counts twice.
Tensor reference(const Joined& c, const Tensors& t) {
  const Variables operands(t.begin(), t.end());
  std::vector<BatchHeads> scores;
  std::vector<Draw> draws;
  std::vector<Rows4> values;
  for (size_t r = 0; r < c.sets.size(); ++r) {
    const KeySet keys = key_set(c, r, operands);
    AttentionOptions options = keys.options;
    options.mask.pattern = {};
    if (c.sets[r].only) options.mask = {};
    scores.push_back(reference_scores(keys.q, keys.k, options));
    draws.push_back(keys.options.dropout.draw);
    values.emplace_back(keys.v);
  }
  Rows4 out(Tensor::zeros({c.s.B, c.s.N, c.s.H, c.s.M}, DType::float64));
  scores[0].rows([&](int64_t b, int64_t h, int64_t i) {
    double largest = -INFINITY, sum = 0;
    const auto each = [&](auto&& f) {
      for (size_t r = 0; r < c.sets.size(); ++r) {
        const TestSet& set = c.sets[r];
        const HeadSizes& s = set.second ? c.second : c.s;
        const int64_t classes = std::min(set.classes, std::max(s.N, s.S)), rest = i % classes;
        for (int64_t j = 0; j < s.S; ++j) {
          const bool listed = set.only ? is_listed(i, j) : !(set.without && (j == i - 1 || j == i || j == i + 4));
          if (!listed || j % classes != rest) continue;
          if (!set.only && !set.pattern.sees(i / classes, j / classes)) continue;
          f(r, j, scores[r](b, h, i, j), classes, rest);
        }
      }
    };
    each([&](size_t, int64_t, double score, int64_t, int64_t) { largest = std::max(largest, score); });
    each([&](size_t, int64_t, double score, int64_t, int64_t) {
      if (score > -INFINITY) sum += std::exp(score - largest);
    });
    each([&](size_t r, int64_t j, double score, int64_t classes, int64_t rest) {
      if (score == -INFINITY) return;
      const int64_t row = ((int64_t(draws[r].first) + b) * classes + rest) * c.s.H + h;
      const double weight = std::exp(score - largest) / sum *
                            dropout_factor(c.dropout, reference_key(draws[r]), uint64_t(row), i / classes, j / classes);
      for (int64_t d = 0; d < c.s.M; ++d) out(b, i, h, d) += weight * values[r](b, j, h, d);
    });
  });
  return from_doubles(out.values, out.shape);
}

Case& add(Operation& op, const Joined& c) {
  std::string name = concat(c.s, ", masked by ", c.kind, ", dropout ", c.dropout);
  for (const TestSet& set : c.sets)
    name += concat(", classes ", set.classes, " window ", set.pattern.window, set.without ? " without some" : "",
                   set.only ? " only some" : "");
  Tensors operands;
  const bool two = std::any_of(c.sets.begin(), c.sets.end(), [](const TestSet& set) { return set.second; });
  for (const HeadSizes& s : two ? std::vector{c.s, c.second} : std::vector{c.s}) {
    // Keys of about unit length, so that the softmax has more than one large weight.
    const uint64_t seed = operands.size();
    operands.push_back(normal({s.B, s.N, s.H, s.D}, 1 + seed));
    operands.push_back(affine(normal({s.B, s.S, s.H, s.D}, 2 + seed), 1 / std::sqrt(1 + double(s.D))).value());
    operands.push_back(uniform({s.B, s.S, s.H, s.M}, -1, 1, 3 + seed));
  }
  Case& test = op.add(name, operands);
  // In bfloat16, the gradient subtracts the product with a saved, rounded output, and adds up the sets' rounded parts.
  // Masked by everything, most queries see one key or two: the true gradient is near 0, and the rounding is not.
  test.rounded_tolerance = (c.kind == "everything" ? 8 : 2) * tolerance::bfloat16;
  test.forward = [c](const Variables& t) { return Variables{joined_attention(key_sets(c, t))}; };
  test.reference = [c](const Tensors& t) { return Tensors{reference(c, t)}; };
  return test;
}

// A window and the positions at multiples of its width; a window of every third position; three sets, of which the
// first may be empty; more classes than positions.
const Sets every_sets[] = {
    {{1, {2, 0, false}}, {3}}, {{3, {1}}}, {{1, {0, 0, false}}, {2, {0}}, {2, {4, 0, false}}}, {{99}}};

}  // namespace

OPERATION("joined_attention") {
  op.takes = heads_and(mask_operands);
  // The sets are added up, and tensor cores need aligned rows.
  op.rounds_once = op.gradients_round_once = op.same_bits_anywhere = false;
  // The tests change the tensors of the first case: the gradient reads all of them, and the result.
  const HeadSizes first{2, 2, 5, 5, 3, 3};
  const AttentionMask all = every_way_masked(first);
  Case& changed = add(op, {first, every_sets[0], "everything", all});
  changed.operands.insert(changed.operands.end(), {all.query_lengths, all.key_lengths, all.allowed});
  changed.forward = [](const Variables& t) {
    std::vector<KeySet> sets;
    for (const TestSet& set : every_sets[0]) {
      sets.push_back({t[0], t[1], t[2], {.scale = 0.7}, set.classes});
      sets.back().options.mask = causal_mask(t[3].value(), t[4].value(), t[5].value());
      sets.back().options.mask.pattern = set.pattern;
    }
    return Variables{joined_attention(sets)};
  };
  op.backward_reads = {0, 1, 2, 3, 4, 5};
  op.backward_reads_results = true;

  const std::vector<HeadSizes> sizes{{0, 2, 3, 3, 2, 2},   {2, 0, 3, 3, 2, 2}, {2, 2, 0, 3, 2, 2}, {2, 2, 3, 0, 2, 2},
                                     {2, 2, 3, 4, 0, 2},   {2, 2, 3, 4, 2, 0}, {1, 1, 1, 1, 1, 1}, {2, 2, 12, 12, 3, 2},
                                     {2, 2, 13, 13, 8, 4}, {2, 3, 7, 11, 4, 5}};
  for (const Sets& sets : every_sets) {
    for (const HeadSizes& s : sizes)
      for (const double dropout : {0.0, 0.3}) add(op, {s, sets, "nothing", {}, dropout}).on_cuda = s.N >= 7;
    const HeadSizes masked{3, 2, 11, 11, 3, 2};
    for (const auto& [kind, mask] : every_mask(masked))
      if (mask.pattern.all()) add(op, {masked, sets, kind, mask, 0.3}).on_cuda = mask.causal;
  }
  add(op, {{1, 2, 700, 700, 8, 8}, {{1, {19, 0, false}}, {20}}, "nothing", {}, 0.2}).on_cuda = false;
  for (const double dropout : {0.0, 0.2})
    add(op, {{2, 1, 150, 150, 8, 8}, {{1, {9, 0, false}}, {10}}, "causal", {.causal = true}, dropout});

  // Keys of near blocks, the rest of other keys, and lists: what clustered-keys joins. Then each alone.
  const Pattern near{.blocks = {2, 2}}, far{.blocks = {2, 0, true, false}};
  for (const int64_t D : {5, 8})
    for (const double dropout : {0.0, 0.3}) {
      const HeadSizes s{2, 2, 37, 37, D, 6}, second{2, 2, 37, 10, 12, 6};
      const TestSet some{.pattern = far, .second = true, .without = true};
      for (const Sets& sets : {Sets{{1, near}, some, {.only = true}}, Sets{some}, Sets{{.only = true}}})
        add(op, {s, sets, "nothing", {}, dropout, second});
      add(op, {s, {{1, near}, some, {.only = true}}, "query lengths", {.query_lengths = int32s({37, 20})}, 0, second})
          .on_cuda = false;
    }
}

TEST_CASE("joined_attention refuses what it cannot compute", "[joined_attention]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  CHECK_ERROR(joined_attention({{.q = x.q, .k = x.k, .v = x.v, .classes = 0}}),
              "joined_attention: classes = 0, expected at least 1");
  CHECK_ERROR(joined_attention({}), "joined_attention: expected sets of keys, got none");
  const Operands other({2, 3, 1, 5, 6, 7}, DType::float32);
  CHECK_ERROR(joined_attention({{x.q, x.k, x.v}, {other.q, other.k, other.v}}),
              "joined_attention: a set gives [2, 1, 3, 7] of float32, expected [2, 4, 3, 7] of float32, as the first");
}
