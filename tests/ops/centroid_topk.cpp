#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "tests/ops/attention_test.h"

namespace {

// For each row the `top` keys with the largest scores, ties to the lower index, masked ones (and NaN) never; rising,
// then -1.
std::vector<int32_t> reference_topk(const BatchHeads& scores, int64_t top) {
  std::vector<int32_t> result;
  scores.rows([&](int64_t b, int64_t h, int64_t i) {
    std::vector<int32_t> keys;
    for (int64_t j = 0; j < scores.S; ++j)
      if (scores(b, h, i, j) > -INFINITY) keys.push_back(int32_t(j));
    std::stable_sort(keys.begin(), keys.end(),
                     [&](int32_t x, int32_t y) { return scores(b, h, i, x) > scores(b, h, i, y); });
    if (int64_t(keys.size()) > top) keys.resize(size_t(top));
    std::sort(keys.begin(), keys.end());
    keys.resize(size_t(top), -1);
    result.insert(result.end(), keys.begin(), keys.end());
  });
  return result;
}

// 1 at the top keys.
BatchHeads in_top(const BatchHeads& scores, const std::vector<int32_t>& topk, int64_t top) {
  BatchHeads result(scores.B, scores.H, scores.N, scores.S);
  for (size_t i = 0; i < topk.size(); ++i)
    if (topk[i] >= 0) result.values[i / size_t(top) * size_t(scores.S) + size_t(topk[i])] = 1;
  return result;
}

BatchHeads complement(BatchHeads x) {
  for (double& value : x.values) value = 1 - value;
  return x;
}

// None and one of everything, odd sizes, and more than one block of centroids (64) and tile of keys (512; 256
// backward).
std::vector<Sizes> every_size() {
  return {{1, 1, 1, 1, 1, 1},   {3, 2, 5, 7, 4, 6},   {0, 2, 3, 3, 2, 2},     {2, 0, 3, 3, 2, 2},
          {2, 2, 0, 3, 2, 2},   {2, 2, 3, 0, 2, 2},   {2, 2, 3, 4, 0, 2},     {2, 2, 3, 4, 2, 0},
          {2, 2, 5, 600, 2, 2}, {2, 3, 11, 17, 3, 5}, {1, 1, 70, 1100, 3, 2}, {1, 2, 64, 512, 2, 3},
          {9, 1, 65, 513, 3, 2}};
}

AttentionDropout rest_dropout(double p) { return test_dropout(p, Purpose::attention_rest_dropout); }

}  // namespace

TEST_CASE("centroid_topk splits attention into the top keys' mass and the rest, for every mask and size",
          "[centroid_topk]") {
  for (const Sizes& s : every_size()) {
    const Operands x(s, DType::float64);
    const BatchHeads factors = dropout_factors(s, rest_dropout(0.3));
    for (int64_t top : {1, 3, 32}) {
      if (s.S > 100 && top != 32) continue;
      for (const auto& [kind, mask] : every_mask(s))
        for (double p : {0.0, 0.3}) {
          INFO(s << " top " << top << " masked by " << kind << ", dropout " << p);
          const AttentionOptions options{mask, rest_dropout(p), 0};
          const BatchHeads scores = reference_scores(x.q, x.k, options), weights = reference_weights(scores);
          const auto expected = reference_topk(scores, top);
          const BatchHeads member = in_top(scores, expected, top);
          const CentroidTopK result = centroid_topk(x.q, x.k, x.v, top, true, options);
          CHECK(result.topk.shape() == Shape{s.B, s.H, s.N, top});
          CHECK(result.mass.shape() == Shape{s.B, s.H, s.N});
          CHECK(result.rest.shape() == Shape{s.B, s.N, s.H, s.M});
          CHECK(result.topk.to_vector<int32_t>() == expected);
          CHECK(difference(result.logsumexp, reference_logsumexp(scores)) <= tolerance::float64);
          CHECK(difference(result.mass, row_sums(product(weights, member))) <= tolerance::float64);
          BatchHeads others = product(weights, complement(member));
          if (p > 0) others = product(others, factors);
          CHECK(difference(result.rest, times_values(others, x.v)) <= tolerance::float64);
        }
    }
  }
}

TEST_CASE("centroid_topk breaks ties towards the lower index, across tiles too, in float32 and in float64",
          "[centroid_topk]") {
  // Small whole numbers: scores are exact, and of few values.
  const Sizes s{1, 2, 70, 1100, 4, 3};
  for (DType dtype : {DType::float32, DType::float64}) {
    const Tensor q = random_integers({s.B, s.N, s.H, s.D}, -1, 1, dtype, 1);
    const Tensor k = random_integers({s.B, s.S, s.H, s.D}, -1, 1, dtype, 2);
    const Tensor v = random_tensor({s.B, s.S, s.H, s.M}, dtype, 3);
    for (int64_t top : {1, 2, 32, 150, 600})
      for (bool causal : {false, true}) {
        INFO(name(dtype) << " top " << top << " causal " << causal);
        const AttentionOptions options{{{}, {}, {}, causal}, {}, 0.5};
        const BatchHeads scores = reference_scores(q, k, options), weights = reference_weights(scores);
        const auto expected = reference_topk(scores, top);
        const CentroidTopK result = centroid_topk(q, k, v, top, true, options);
        CHECK(result.topk.to_vector<int32_t>() == expected);
        const BatchHeads member = in_top(scores, expected, top);
        CHECK(difference(result.mass, row_sums(product(weights, member))) <= tolerance_of(dtype));
        CHECK(difference(result.rest, times_values(product(weights, complement(member)), v)) <= tolerance_of(dtype));
      }
  }
}

TEST_CASE("where all scores are equal the first keys are the top keys", "[centroid_topk]") {
  const Tensor q = Tensor::zeros({1, 1, 1, 2}), k = Tensor::zeros({1, 600, 1, 2}), v = Tensor::zeros({1, 600, 1, 1});
  const auto topk = centroid_topk(q, k, v, 530, false, {}).topk.to_vector<int32_t>();
  for (int32_t l = 0; l < 530; ++l) REQUIRE(topk[size_t(l)] == l);
}

TEST_CASE("the best keys of a centroid may all come last or first", "[centroid_topk]") {
  for (int direction : {1, -1}) {
    std::vector<double> rising(1100);
    for (size_t j = 0; j < rising.size(); ++j) rising[j] = direction * double(j) / 1000;
    const Tensor k = Tensor::from(rising, {1, 1100, 1, 1});
    const auto topk =
        centroid_topk(Tensor::full({1, 1, 1, 1}, 1, DType::float64), k, k, 40, false, {}).topk.to_vector<int32_t>();
    for (int32_t l = 0; l < 40; ++l) REQUIRE(topk[size_t(l)] == (direction == 1 ? 1060 + l : l));
  }
}

TEST_CASE("no other keys have more mass than the top keys", "[centroid_topk]") {
  RandomStream random(3, 0, Purpose::test);
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Sizes s{1, 2, 3, 1 + int64_t(random.below(30)), 3, 2};
    const int64_t top = 1 + random.below(8);
    const Operands x(s, DType::float64, seed);
    const AttentionOptions options{{{}, {}, random_mask({s.N, s.S}, seed), false}, {}, 0};
    const BatchHeads weights = reference_weights(reference_scores(x.q, x.k, options));
    const auto mass = as_double(centroid_topk(x.q, x.k, x.v, top, false, options).mass);
    size_t row = 0;
    weights.rows([&](int64_t b, int64_t h, int64_t i) {
      for (int trial = 0; trial < 20; ++trial) {
        std::vector<int64_t> others(static_cast<size_t>(s.S));
        std::iota(others.begin(), others.end(), 0);
        double sum = 0;
        for (int64_t l = 0; l < std::min(top, s.S); ++l) {  // `top` different keys
          std::swap(others[size_t(l)], others[size_t(l) + random.below(uint32_t(s.S - l))]);
          sum += weights(b, h, i, others[size_t(l)]);
        }
        REQUIRE(sum <= mass[row] + tolerance::float64);
      }
      ++row;
    });
  }
}

TEST_CASE("with as many top keys as valid ones the mass is one and nothing is left", "[centroid_topk]") {
  const Operands x({2, 2, 5, 9, 3, 4}, DType::float64);
  const AttentionOptions options{{{}, int32s({9, 6}), {}, false}, {}, 0};
  const CentroidTopK result = centroid_topk(x.q, x.k, x.v, 9, true, options);
  for (double mass : as_double(result.mass)) CHECK(std::abs(mass - 1) <= tolerance::float64);
  for (double rest : as_double(result.rest)) CHECK(rest == 0);
  const auto topk = result.topk.to_vector<int32_t>();
  for (size_t l = 6; l < 9; ++l) CHECK(topk[topk.size() - 9 + l] == -1);
}

TEST_CASE("centroid_topk without a key left has no top keys, no mass, no rest and no gradient", "[centroid_topk]") {
  const Operands x({2, 1, 3, 4, 2, 2}, DType::float32);
  const AttentionOptions options{{int32s({3, 1}), int32s({0, 4}), {}, false}, {}, 0};
  const CentroidTopK r = centroid_topk(x.q, x.k, x.v, 2, true, options);
  const auto g = centroid_topk_backward(x.q, x.k, x.v, options, r, random_tensor({2, 1, 3}, DType::float32, 8),
                                        random_tensor({2, 3, 1, 2}, DType::float32, 9));
  for (size_t row : {0, 1, 2, 4, 5}) {  // batch element 0 has no keys, 1 has one query
    CHECK(r.topk.to_vector<int32_t>()[2 * row] == -1);
    CHECK(r.mass.to_vector<float>()[row] == 0);
    CHECK(r.logsumexp.to_vector<float>()[row] == -INFINITY);
    for (size_t d : {0, 1})
      CHECK((r.rest.to_vector<float>()[2 * row + d] == 0 && g.dq.to_vector<float>()[2 * row + d] == 0));
  }
  for (size_t i = 0; i < 8; ++i) CHECK((g.dk.to_vector<float>()[i] == 0 && g.dv.to_vector<float>()[i] == 0));
  CHECK(r.mass.to_vector<float>()[3] > 0);
}

TEST_CASE("centroid_topk leaves the rest out where nobody asks for it", "[centroid_topk]") {
  const Operands x({1, 2, 5, 9, 3, 4}, DType::float32);
  const CentroidTopK with = centroid_topk(x.q, x.k, x.v, 3, true, {}),
                     without = centroid_topk(x.q, x.k, x.v, 3, false, {});
  CHECK_FALSE(without.rest.defined());
  CHECK(same_bits(with.topk, without.topk));
  CHECK(same_bits(with.mass, without.mass));
}

TEST_CASE("a NaN score is never among the top keys, and stays within its batch element and head", "[centroid_topk]") {
  const Sizes s{2, 2, 3, 600, 2, 2};
  const Operands clean(s, DType::float32);
  Operands bad(s, DType::float32);
  for (int64_t row : {3, 550}) bad.k.mutable_data<float>()[Rows4(bad.k).at(1, row, 0, 1)] = NAN;
  const CentroidTopK expected = centroid_topk(clean.q, clean.k, clean.v, 598, true, {});
  const CentroidTopK result = centroid_topk(bad.q, bad.k, bad.v, 598, true, {});
  const auto topk = result.topk.to_vector<int32_t>();
  for (size_t row = 6; row < 9; ++row) {  // batch element 1, head 0
    CHECK(std::isnan(result.mass.to_vector<float>()[row]));
    for (size_t l = 0; l < 598; ++l) {
      REQUIRE(topk[row * 598 + l] != 3);
      REQUIRE(topk[row * 598 + l] != 550);
      REQUIRE(topk[row * 598 + l] >= 0);
    }
  }
  for (size_t row : {0, 1, 2, 3, 4, 5, 9, 10, 11})
    CHECK(result.mass.to_vector<float>()[row] == expected.mass.to_vector<float>()[row]);
  const Rows4 rest(result.rest), clean_rest(expected.rest);
  for (int64_t b : {0, 1})
    for (int64_t i : {0, 1, 2}) CHECK(rest(b, i, 1, 0) == clean_rest(b, i, 1, 0));
}

TEST_CASE("given top keys are used as they are", "[centroid_topk]") {
  const Sizes s{2, 2, 70, 700, 3, 4};
  const Operands x(s, DType::float64);
  const AttentionOptions options{{{}, int32s({700, 600}), {}, false}, {}, 0};
  // The top keys of other queries, one of them missing in the first row.
  Tensor given = centroid_topk(random_tensor(x.q.shape(), DType::float64, 77), x.k, x.v, 4, false, options).topk;
  given.mutable_data<int32_t>()[3] = -1;
  const BatchHeads scores = reference_scores(x.q, x.k, options), weights = reference_weights(scores);
  const BatchHeads member = in_top(scores, given.to_vector<int32_t>(), 4);
  const CentroidTopK result = centroid_topk(x.q, x.k, x.v, 4, true, options, given);
  CHECK(same_bits(result.topk, given));
  CHECK(difference(result.mass, row_sums(product(weights, member))) <= tolerance::float64);
  CHECK(difference(result.rest, times_values(product(weights, complement(member)), x.v)) <= tolerance::float64);
  CHECK(difference(result.logsumexp, reference_logsumexp(scores)) <= tolerance::float64);

  // The keys it would have chosen change nothing but the order of the sum, to which displaced keys are added late.
  const CentroidTopK chosen = centroid_topk(x.q, x.k, x.v, 4, true, options);
  const CentroidTopK again = centroid_topk(x.q, x.k, x.v, 4, true, options, chosen.topk);
  CHECK(difference(again.rest, chosen.rest) <= tolerance::float64);
  CHECK(difference(again.mass, chosen.mass) <= tolerance::float64);
}

TEST_CASE("given top keys that are masked have no mass", "[centroid_topk]") {
  const Operands x({1, 1, 2, 600, 3, 4}, DType::float64);
  const AttentionOptions options{{{}, int32s({20}), {}, false}, {}, 0};
  // Fill the memory that scores are kept in with large ones first.
  centroid_topk(affine(x.q, 0, 50), affine(x.k, 0, 50), x.v, 2, false, {});
  const CentroidTopK result =
      centroid_topk(x.q, x.k, x.v, 2, true, options, Tensor::from<int32_t>({30, 599, 5, 30}, {1, 1, 2, 2}));
  const BatchHeads weights = reference_weights(reference_scores(x.q, x.k, options));
  CHECK(difference(result.mass, {0.0, weights(0, 0, 1, 5)}) <= tolerance::float64);
}

TEST_CASE("gradients of centroid_topk agree with their formulas for every mask and size, with dropout and without",
          "[centroid_topk][grad]") {
  for (const Sizes& s : every_size()) {
    const Operands x(s, DType::float64);
    const Tensor dmass = random_tensor({s.B, s.H, s.N}, DType::float64, 98);
    const Tensor drest = random_tensor({s.B, s.N, s.H, s.M}, DType::float64, 99);
    const BatchHeads drawn = dropout_factors(s, rest_dropout(0.3));
    const int64_t top = s.S > 100 ? 32 : 3;
    for (const auto& [kind, mask] : every_mask(s))
      for (double p : {0.0, 0.3}) {
        INFO(s << " masked by " << kind << ", dropout " << p);
        const AttentionOptions options{mask, rest_dropout(p), 0};
        const CentroidTopK saved = centroid_topk(x.q, x.k, x.v, top, true, options);
        const BatchHeads scores = reference_scores(x.q, x.k, options), weights = reference_weights(scores);
        const BatchHeads member = in_top(scores, saved.topk.to_vector<int32_t>(), top);
        BatchHeads others = complement(member);
        if (p > 0) others = product(others, drawn);
        // dA_l = dm for l in top, else z_l dB . V_l.
        BatchHeads dweights = product(times_transposed(drest, x.v), others);
        const auto dm = as_double(dmass);
        for (size_t i = 0; i < dweights.values.size(); ++i)
          dweights.values[i] += member.values[i] * dm[i / size_t(s.S)];
        const auto expected = reference_score_gradient(weights, dweights, x.q, x.k, 0);
        const auto [dq, dk, dv] = centroid_topk_backward(x.q, x.k, x.v, options, saved, dmass, drest);
        CHECK(difference(dq, expected.dq) <= tolerance::float64);
        CHECK(difference(dk, expected.dk) <= tolerance::float64);
        CHECK(difference(dv, times_values(transposed(product(weights, others)), drest)) <= tolerance::float64);
      }
  }
}

TEST_CASE("gradients of mass and rest against central differences, together and alone", "[centroid_topk][grad]") {
  const Operands x({2, 2, 3, 7, 2, 3}, DType::float64);
  for (double p : {0.0, 0.4}) {
    const AttentionOptions options{{int32s({3, 2}), int32s({7, 5}), {}, false}, rest_dropout(p), 0};
    const auto split = [&](const auto& in) { return centroid_topk(in[0], in[1], in[2], 3, options); };
    CHECK_GRADIENT([&](const auto& in) { return split(in).mass; }, x.q, x.k, x.v);
    CHECK_GRADIENT([&](const auto& in) { return split(in).rest; }, x.q, x.k, x.v);
    CHECK_GRADIENT(
        [&](const auto& in) {
          const auto both = split(in);
          return reshape(both.mass, {2, 2, 3, 1, 1}) * reshape(both.rest, {1, 2, 3, 2, 3});
        },
        x.q, x.k, x.v);
  }
}

TEST_CASE("dropout acts on the rest by centroid and key, and not on the mass", "[centroid_topk]") {
  const Sizes s{2, 2, 250, 1000, 2, 0};
  const Operands x(s, DType::float64);
  const Tensor identity = identity_values(s.B, s.S, s.H, DType::float64);
  const CentroidTopK plain = centroid_topk(x.q, x.k, identity, 32, true, {});
  const CentroidTopK result = centroid_topk(x.q, x.k, identity, 32, true, {{}, rest_dropout(0.3), 0});
  CHECK(same_bits(result.mass, plain.mass));
  CHECK(same_bits(result.topk, plain.topk));
  const auto saved = as_double(plain.rest), dropped = as_double(result.rest);
  int64_t zeros = 0, all = 0;
  double worst = 0;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i] == 0) {  // a top key
      REQUIRE(dropped[i] == 0);
      continue;
    }
    ++all;
    zeros += dropped[i] == 0;
    if (dropped[i] != 0) worst = std::max(worst, std::abs(dropped[i] / saved[i] * (1 - double(0.3f)) - 1));
  }
  CHECK(all == 2 * 2 * 250 * (1000 - 32));
  CHECK(worst <= tolerance::float32);
  CHECK(std::abs(double(zeros) / double(all) - 0.3) <= tolerance::frequency);
}

TEST_CASE("centroid_topk gives the same bits on any number of threads", "[centroid_topk]") {
  for (const Sizes& s : {Sizes{1, 1, 131, 1103, 5, 3}, Sizes{3, 3, 67, 300, 4, 3}}) {
    const Operands x(s, DType::float32);
    const Tensor dmass = random_tensor({s.B, s.H, s.N}, DType::float32, 98);
    const Tensor drest = random_tensor({s.B, s.N, s.H, s.M}, DType::float32, 99);
    const AttentionOptions options{{}, rest_dropout(0.1), 0};
    check_any_threads([&] {
      const CentroidTopK saved = centroid_topk(x.q, x.k, x.v, 32, true, options);
      const auto [dq, dk, dv] = centroid_topk_backward(x.q, x.k, x.v, options, saved, dmass, drest);
      return std::vector<Tensor>{saved.topk, saved.logsumexp, saved.mass, saved.rest, dq, dk, dv};
    });
  }
}

TEST_CASE("centroid_topk refuses what it cannot compute", "[centroid_topk]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  const auto of = [](const Operands& o, int64_t top, const AttentionOptions& options = {}, const Tensor& given = {}) {
    return centroid_topk(o.q, o.k, o.v, top, true, options, given);
  };
  CHECK_ERROR(of(x, 0), "centroid_topk: k = 0, expected at least 1");
  CHECK_THROWS_AS(of(x, 0), UsageError);
  CHECK_ERROR(centroid_topk(Tensor(), x.k, x.v, 1, true, {}), "centroid_topk: q was never given a value");
  CHECK_ERROR(centroid_topk(x.k, x.k, x.q, 1, true, {}),
              "centroid_topk: expected v of shape [2, 5, 3, M], got [2, 4, 3, 6]");
  CHECK_ERROR(centroid_topk(x.v, x.k, x.v, 1, true, {}),
              "centroid_topk: expected k of shape [2, S, 3, 7], got [2, 5, 3, 6]");
  CHECK_ERROR(centroid_topk(x.q, x.k.cast(DType::float64), x.v, 1, true, {}),
              "centroid_topk: k is float64, q is float32");
  CHECK_ERROR(of(x, 1, {{{}, int32s({1, 9}), {}, false}, {}, 0}),
              "centroid_topk: key_lengths[1] is 9, expected 0 to 5");
  CHECK_ERROR(of(x, 2, {}, Tensor({2, 3, 4, 1}, DType::int32)), "centroid_topk: k = 2, but 1 top keys are given");
  CHECK_ERROR(of(x, 1, {}, Tensor({2, 3, 4, 1}, DType::int64)),
              "centroid_topk: expected the given top keys to be int32, got int64");
  CHECK_ERROR(of(x, 1, {}, Tensor::full({2, 3, 4, 1}, 5, DType::int32)),
              "centroid_topk: topk[0] is 5, expected -1 to 4");
  for (int32_t second : {0, 1}) {  // equal and falling: neither rises
    Tensor keys = Tensor::full({2, 3, 4, 2}, -1, DType::int32);
    keys.mutable_data<int32_t>()[6] = 1, keys.mutable_data<int32_t>()[7] = second;
    CHECK_ERROR(of(x, 2, {}, keys), "centroid_topk: expected top keys to rise and then be -1, got 1 before");
    keys.mutable_data<int32_t>()[6] = -1;
    CHECK_ERROR(of(x, 2, {}, keys), "centroid_topk: expected top keys to rise and then be -1, got -1 before");
  }
  const CentroidTopK saved = of(x, 2);
  CHECK_ERROR(centroid_topk_backward(x.q, x.k, x.v, {}, saved, saved.rest, saved.rest),
              "centroid_topk: expected the gradient of mass of shape [2, 3, 4], got [2, 4, 3, 7]");
  CHECK_ERROR(centroid_topk_backward(x.q, x.k, x.v, {}, saved, saved.mass, saved.mass),
              "centroid_topk: expected the gradient of rest of shape [2, 4, 3, 7], got [2, 3, 4]");
  const Tensor cuda = elsewhere({0, 4, 3, 6});
  CHECK_ERROR(centroid_topk(x.q, cuda, x.v, 1, true, {}), "centroid_topk: k is on cuda, q on cpu");
  CHECK_NEEDS_CUDA(centroid_topk(cuda, cuda, cuda, 1, true, {}), "centroid_topk");
}

#if CAIRN_HAS_CUDA  // against the CPU

namespace {

struct CudaCase {
  Sizes s;
  int64_t k;
  std::string kind = "nothing";  // of mask
  AttentionMask mask{};
  double dropout = 0;
  bool ties = false;      // scores with many ties: of halves of whole numbers, whose products and sums are exact
  bool with_rest = true;  // and gradients
  bool given = false;     // the top keys are given
  bool spoiled = false;   // by infinity and NaN, in heads 0 and 1
};

struct CudaInputs {
  CudaInputs(const Bench& bench, const CudaCase& c)
      : x(bench, c.s), options{on(bench.device, c.mask), test_dropout(c.dropout, Purpose::attention_rest_dropout), 0} {
    const auto [B, H, N, S, D, M] = c.s;
    const auto halves = [&](const Shape& shape, uint64_t seed) {
      return bench.place(affine(Bench{}.integers(shape, -2, 2, seed).cast(DType::float32), 0.5));
    };
    if (c.ties) x.q = halves(x.q.shape(), 1), x.k = halves(x.k.shape(), 2);
    if (c.spoiled) {
      change(bench, x.q, [H = H, D = D](float* data) { data[2 * H * D] = NAN; });
      change(bench, x.k, [H = H, D = D, S = S](float* data) { data[((S - 1) * H + 1) * D] = -INFINITY; });
    }
    if (!c.given) return;
    // Every third key, at most k; the second centroid has none, and one key is there that may be masked.
    std::vector<int32_t> keys;
    for (int64_t row = 0; row < B * H * N; ++row)
      for (int64_t l = 0; l < c.k; ++l) keys.push_back(int32_t(row != 1 && 3 * l + row % 3 < S ? 3 * l + row % 3 : -1));
    given = Tensor::from(keys, {B, H, N, c.k}).to(bench.device);
  }
  CentroidTopK split(const CudaCase& c) const { return centroid_topk(x.q, x.k, x.v, c.k, c.with_rest, options, given); }

  BenchOperands x;
  AttentionOptions options;
  Tensor given;
};

Results split_by_centroids(const Bench& bench, const CudaCase& c) {
  const CudaInputs in(bench, c);
  const CentroidTopK made = in.split(c);
  Results results{{"topk", made.topk}, {"logsumexp", made.logsumexp}, {"mass", made.mass}};
  if (!c.with_rest) return results;
  const CentroidTopK saved = CudaInputs(bench.on_cpu(), c).split(c);
  const auto [dq, dk, dv] = centroid_topk_backward(
      in.x.q, in.x.k, in.x.v, in.options,
      {saved.topk.to(bench.device), saved.logsumexp.to(bench.device), bench.place(saved.mass), bench.place(saved.rest)},
      bench.normal(made.mass.shape(), 4), bench.normal(made.rest.shape(), 5));
  results.insert(results.end(), {{"rest", made.rest}, {"dq", dq}, {"dk", dk}, {"dv", dv}});
  return results;
}

}  // namespace

PARITY("centroid_topk") {
  const auto add_form = [&](const CudaCase& c, Form form) {
    add_in_form(
        cases, form,
        concat("centroid_topk ", c.s, " k ", c.k, " masked by ", c.kind, " dropout ", c.dropout, c.ties ? " ties" : "",
               c.with_rest ? "" : " without rest", c.given ? " given" : "", c.spoiled ? " spoiled" : ""),
        [=](const Bench& bench) { return split_by_centroids(bench, c); });
  };
  const auto add = [&](const CudaCase& c) { add_form(c, Form::usual); };
  for (const Sizes& s : {Sizes{1, 1, 1, 1, 1, 1},
                         {0, 2, 3, 3, 2, 2},
                         {2, 0, 3, 3, 2, 2},
                         {2, 2, 0, 3, 2, 2},
                         {2, 2, 3, 0, 2, 2},
                         {2, 2, 3, 4, 0, 2},
                         {2, 2, 3, 4, 2, 0},
                         {3, 2, 5, 7, 4, 6}})
    for (const int64_t k : {1, 3, 32}) add({s, k});
  const Sizes small{3, 2, 11, 29, 5, 3}, tiled{3, 1, 67, 131, 8, 12}, wide{1, 1, 2, 1613, 4, 4};
  for (const double dropout : {0.0, 0.3}) {
    for (const auto& [kind, mask] : every_mask(small, true))
      for (const bool ties : {false, true}) add({small, ties ? 7 : 4, kind, mask, dropout, ties});
    for (const auto& [kind, mask] : every_mask(tiled, true)) {
      add({tiled, 32, kind, mask, dropout, true});
      add({{3, 1, 67, 131, 5, 3}, 5, kind, mask, dropout, false, true, true});
    }
  }
  // Ties over all of the keys and over several splits; lists longer than a warp, and than the keys.
  for (const int64_t k : {1, 2, 32, 33, 70, 600, 1200}) add({{1, 1, 3, 1100, 3, 4}, k, "nothing", {}, 0, true});
  for (const int64_t k : {1, 32, 40}) add({{1, 2, 2, 1613, 5, 4}, k, "nothing", {}, 0.1});
  add({wide, 40, "everything", every_way_masked(wide), 0.1, true});
  add({wide, 40, "key lengths", {{}, int32s({1291}), {}, false}, 0.1, false, true, true});
  for (const Tensor& lengths : {Tensor(), int32s({24, 0})})
    add({{2, 3, 11, 29, 5, 3}, 4, "key lengths", {{}, lengths, {}, false}, 0.1, false, true, false, true});
  // Wide rows, and columns of several blocks.
  for (const auto& [D, M] : {std::pair{32, 64}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {66, 130}, {128, 128}})
    add({{1, 1, 65, 70, D, M}, 9, "nothing", {}, 0.2});
  // Single queries, each with its own keys.
  const Sizes single{2, 2, 130, 130, 4, 3};
  for (const auto& [kind, mask] : every_mask(single, true)) {
    if (mask.pattern.window >= 0) continue;
    add({single, 8, kind, mask, 0, true, false});
    add({{2, 2, 130, 130, 16, 3}, 33, kind, mask, 0, false, false});
  }
  // Rows that tensor cores take: every mask, several tiles of centroids and splits of keys.
  for (const Form form : every_form) {
    const auto add_here = [&](const CudaCase& c) { add_form(c, form); };
    const Sizes whole{3, 1, 67, 131, 8, 16}, split{2, 1, 3, 1613, 16, 8};
    for (const auto& [kind, mask] : every_mask(whole, true)) add_here({whole, 32, kind, mask, 0.3, true});
    add_here({whole, 5, "everything", every_way_masked(whole), 0, true, true, true});
    add_here({whole, 33, "everything", every_way_masked(whole), 0, true, false});
    add_here({split, 32});
    add_here({split, 40, "everything", every_way_masked(split), 0.1, true});
    add_here({split, 500, "everything", every_way_masked(split), 0, false, true, true});
    add_here({split, 9, "key lengths", {{}, int32s({1291, 0}), {}, false}, 0.1, false, true, true});
    for (const Tensor& lengths : {Tensor(), int32s({24, 0})})
      add_here({{2, 3, 11, 29, 8, 8}, 4, "key lengths", {{}, lengths, {}, false}, 0.1, false, true, false, true});
    // Ties among all keys, and more large scores than there is room for in shared memory.
    for (const int64_t k : {1, 2, 33, 250, 600, 1200}) add_here({{1, 1, 3, 1100, 8, 8}, k, "nothing", {}, 0, true});
    // Every size of rows.
    for (const auto& [D, M] : {std::pair{32, 64}, {64, 32}, {64, 72}, {128, 64}, {40, 128}})
      add_here({{1, 1, 65, 140, D, M}, 9, "nothing", {}, 0.2, true});
  }
  // Groups of several tiles of keys, of which the last has one tile.
  for (const bool given : {false, true}) add({{1, 1, 2, 16420, 8, 8}, 35, "nothing", {}, 0, true, true, given});
}

#endif
