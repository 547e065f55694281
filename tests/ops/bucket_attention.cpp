#include <algorithm>
#include <cmath>
#include <ostream>

#include "tests/ops/attention_test.h"

namespace cairn {

static std::ostream& operator<<(std::ostream& out, const BucketOptions& o) {
  return out << "rounds " << o.first << " to " << o.end << " of " << o.rounds << " chunk " << o.chunk
             << (o.bucket_mask ? "" : " without bucket mask") << (o.deduplicate ? " deduplicated" : "")
             << (o.self ? " with itself" : "") << (o.wrap ? "" : " without wrap");
}

}  // namespace cairn

namespace {

// Random buckets (some -1) of a few rounds, and how they are used.
struct BucketCase {
  BucketCase(const Sizes& sizes, const BucketOptions& how, int64_t bucket_count, DType dtype, uint64_t seed = 1)
      : s(sizes),
        options(how),
        x(s, dtype, seed),
        buckets(random_integers({s.B, s.H, options.rounds, s.N}, -1, int(bucket_count) - 1, DType::int32, seed + 40)),
        groups(group_buckets(buckets, bucket_count)) {}

  // In how many rounds each query sees each key: counted once, if that is asked for.
  BatchHeads seen(const AttentionMask& mask) const {
    BatchHeads result(s.B, s.H, s.N, s.N);
    for (int64_t round = options.first; round < options.end; ++round)
      for (int64_t b = 0; b < s.B; ++b)
        for (int64_t h = 0; h < s.H; ++h) {
          const int32_t* bucket = buckets.data<int32_t>() + ((b * s.H + h) * options.rounds + round) * s.N;
          std::vector<int64_t> order;
          for (int64_t i = 0; i < s.N; ++i)
            if (bucket[i] >= 0) order.push_back(i);
          std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return bucket[i] < bucket[j]; });
          const auto n = int64_t(order.size()), chunks = (n + options.chunk - 1) / options.chunk;
          for (int64_t p = 0; p < n; ++p)
            for (int64_t l = 0; l < n; ++l) {
              const int64_t i = order[size_t(p)], j = order[size_t(l)];
              const int64_t after = l / options.chunk + 1;  // the chunk behind that of j
              const bool near = p / options.chunk == l / options.chunk ||
                                p / options.chunk == (options.wrap ? after % chunks : after);
              if (near && (i != j || options.self) && (!options.bucket_mask || bucket[i] == bucket[j]) &&
                  may_attend(mask, b, h, i, j))
                result(b, h, i, j) += 1;
            }
        }
    for (double& times : result.values)
      if (options.deduplicate) times = std::min(times, 1.0);
    return result;
  }

  // Softmax over the keys, each as often as it is seen; a query that sees none sees itself.
  BatchHeads weights(const AttentionOptions& attention, std::vector<double>* logsumexp = nullptr) const {
    AttentionOptions unmasked = attention;
    unmasked.mask = {};
    BatchHeads scores = reference_scores(x.q, x.k, unmasked);
    const BatchHeads times = seen(attention.mask);
    for (size_t i = 0; i < scores.values.size(); ++i) scores.values[i] += std::log(times.values[i]);
    if (logsumexp) *logsumexp = reference_logsumexp(scores);
    BatchHeads result = reference_weights(scores);
    result.rows([&](int64_t b, int64_t h, int64_t i) {
      bool alone = true;
      for (int64_t j = 0; j < s.N; ++j) alone = alone && times(b, h, i, j) == 0;
      if (alone && may_attend(attention.mask, b, h, i, i)) result(b, h, i, i) = 1;
    });
    return result;
  }

  AttentionResult run(const AttentionOptions& attention = {}) const {
    return bucket_attention(x.q, x.k, x.v, groups, options, attention);
  }
  AttentionGradient gradient(const AttentionOptions& attention, const Tensor& g) const {
    return bucket_attention_backward(x.q, x.k, x.v, groups, options, attention, run(attention), g);
  }

  Sizes s;
  BucketOptions options;
  Operands x;
  Tensor buckets;
  Groups groups;
};

struct Shapes {
  Sizes s;
  BucketOptions options;
  int64_t buckets;
};
// Nothing, one and two positions; a lone chunk, two, an odd and an even number of them, whole ones and not; chunks of
// one and larger than a tile; several runs of chunks, and more planes than are taken at once.
std::vector<Shapes> every_shape() {
  return {{{0, 2, 3, 3, 2, 2}, {2, 0, 2, 2}, 2},
          {{2, 0, 3, 3, 2, 2}, {2, 0, 2, 2}, 2},
          {{2, 2, 0, 0, 2, 2}, {2, 0, 2, 2}, 2},
          {{2, 2, 5, 5, 0, 2}, {2, 0, 2, 2}, 2},
          {{2, 2, 5, 5, 2, 0}, {2, 0, 2, 2}, 2},
          {{1, 1, 1, 1, 1, 1}, {1, 0, 1, 32}, 2},
          {{2, 2, 2, 2, 3, 2}, {2, 0, 2, 1}, 2},
          {{2, 3, 17, 17, 4, 5}, {1, 0, 1, 32}, 3},
          {{2, 2, 19, 19, 3, 2}, {2, 0, 2, 10}, 4},
          {{2, 2, 23, 23, 3, 2}, {3, 0, 3, 5, true, true}, 4},
          {{2, 1, 24, 24, 3, 2}, {3, 0, 3, 4, false}, 4},
          {{2, 1, 24, 24, 3, 2}, {4, 1, 3, 4, false, true}, 4},
          {{1, 2, 31, 31, 3, 2}, {2, 0, 2, 1}, 2},
          {{1, 1, 307, 307, 7, 5}, {2, 0, 2, 90, false, true}, 3},
          {{1, 1, 500, 500, 3, 2}, {1, 0, 1, 200}, 2},
          {{33, 2, 3, 3, 2, 2}, {2, 0, 2, 2}, 2},
          {{2, 2, 23, 23, 3, 2}, {2, 0, 2, 5, true, false, true, false}, 4},
          {{1, 1, 307, 307, 3, 2}, {2, 0, 2, 40, false, true, true, false}, 3},
          {{2, 1, 24, 24, 3, 2}, {3, 0, 3, 4, true, true, true}, 3},
          {{2, 1, 24, 24, 3, 2}, {2, 0, 2, 4, false, false, false, false}, 3},
          {{1, 2, 7, 7, 3, 2}, {1, 0, 1, 32, false, false, true, false}, 2}};
}

}  // namespace

TEST_CASE("bucket_attention agrees with its formula", "[bucket_attention]") {
  for (const auto& [s, buckets, count] : every_shape())
    for (DType dtype : {DType::float32, DType::float64})
      for (double p : {0.0, 0.3}) {
        INFO(s << ", " << buckets << ' ' << name(dtype) << ", dropout " << p);
        const BucketCase test(s, buckets, count, dtype);
        const AttentionOptions options{{}, test_dropout(p), 0.7};
        std::vector<double> logsumexp;
        const BatchHeads weights = product(test.weights(options, &logsumexp), dropout_factors(s, options.dropout));
        const AttentionResult result = test.run(options);
        CHECK(difference(result.out, times_values(weights, test.x.v)) <= tolerance_of(dtype));
        CHECK(difference(result.logsumexp, logsumexp) <= tolerance_of(dtype));
      }
}

TEST_CASE("bucket_attention honors every mask", "[bucket_attention]") {
  const Sizes s{3, 2, 13, 13, 3, 2};
  for (const auto& [mask_name, mask] : every_mask(s))
    for (const BucketOptions& buckets : {BucketOptions{2, 0, 2, 3}, BucketOptions{2, 0, 2, 3, false, true},
                                         BucketOptions{2, 0, 2, 3, false, false, true, false}}) {
      INFO(mask_name << ", " << buckets);
      const BucketCase test(s, buckets, 3, DType::float64);
      const AttentionOptions options{mask, test_dropout(0.3), 0};
      const BatchHeads weights = test.weights(options), factors = dropout_factors(s, options.dropout);
      CHECK(difference(test.run(options).out, times_values(product(weights, factors), test.x.v)) <= tolerance::float64);
      const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float64, 9);
      const auto expected =
          reference_score_gradient(weights, product(times_transposed(g, test.x.v), factors), test.x.q, test.x.k, 0);
      const AttentionGradient result = test.gradient(options, g);
      CHECK(difference(result.dq, expected.dq) <= tolerance::float64);
      CHECK(difference(result.dk, expected.dk) <= tolerance::float64);
      CHECK(difference(result.dv, times_values(transposed(product(weights, factors)), g)) <= tolerance::float64);
    }
}

TEST_CASE("gradients of bucket_attention agree with their formulas", "[bucket_attention][grad]") {
  for (const auto& [s, buckets, count] : every_shape())
    for (double p : {0.0, 0.3}) {
      INFO(s << ", " << buckets << ", dropout " << p);
      const BucketCase test(s, buckets, count, DType::float64);
      const AttentionOptions options{{}, test_dropout(p), 0.7};
      const Tensor g = random_tensor({s.B, s.N, s.H, s.M}, DType::float64, 9);
      const BatchHeads weights = test.weights(options), factors = dropout_factors(s, options.dropout);
      const auto expected =
          reference_score_gradient(weights, product(times_transposed(g, test.x.v), factors), test.x.q, test.x.k, 0.7);
      const AttentionGradient result = test.gradient(options, g);
      CHECK(difference(result.dq, expected.dq) <= tolerance::float64);
      CHECK(difference(result.dk, expected.dk) <= tolerance::float64);
      CHECK(difference(result.dv, times_values(transposed(product(weights, factors)), g)) <= tolerance::float64);
    }
}

TEST_CASE("gradient of bucket_attention against central differences", "[bucket_attention][grad]") {
  for (const BucketOptions& buckets : {BucketOptions{2, 0, 2, 3}, BucketOptions{3, 0, 3, 2, false, true},
                                       BucketOptions{2, 0, 2, 2, false, false, true, false}})
    for (double p : {0.0, 0.4}) {
      INFO(buckets << ", dropout " << p);
      const BucketCase test({2, 2, 7, 7, 2, 3}, buckets, 3, DType::float64);
      const AttentionOptions options{{}, test_dropout(p), 0};
      CHECK_GRADIENT(
          [&](const auto& in) { return bucket_attention(in[0], in[1], in[2], test.groups, buckets, options); },
          test.x.q, test.x.k, test.x.v);
    }
}

TEST_CASE("in one bucket and one chunk bucket_attention is attention without the diagonal", "[bucket_attention]") {
  const Sizes s{2, 2, 31, 31, 3, 4};
  for (int64_t chunk : {31, 32, 1000}) {
    const BucketCase test(s, {1, 0, 1, chunk}, 1, DType::float64);
    AttentionMask mask;
    mask.allowed = Tensor::full({31, 31}, true, DType::boolean);
    for (int64_t i = 0; i < 31; ++i) mask.allowed.mutable_data<bool>()[i * 32] = false;
    const Groups all = group_buckets(Tensor::zeros({s.B, s.H, 1, s.N}, DType::int32), 1);
    CHECK(difference(bucket_attention(test.x.q, test.x.k, test.x.v, all, test.options, {}).out,
                     attention(test.x.q, test.x.k, test.x.v, {mask, {}, 0}).out) <= tolerance::float64);
  }
}

TEST_CASE("NaN and infinity stay within their batch element and head in bucket_attention", "[bucket_attention]") {
  BucketCase test({2, 2, 30, 30, 3, 4}, {2, 0, 2, 5, true, true}, 3, DType::float32);
  const Tensor g = random_tensor({2, 30, 2, 4}, DType::float32, 9);
  check_stays_within_head(test.s, [&](const Operands& x) {
    test.x = x;
    const auto b = test.gradient({}, g);
    return std::vector<Tensor>{test.run().out, b.dq, b.dk, b.dv};
  });
}

TEST_CASE("bucket_attention needs memory that grows with the number of positions, not its square",
          "[bucket_attention]") {
  const Sizes s{1, 1, 6000, 6000, 4, 4};
  const BucketCase test(s, {2, 0, 2, 32, true, true}, 188, DType::float32);
  const Tensor g = random_tensor({1, 6000, 1, 4}, DType::float32, 9);
  reset_peak_memory(Device::cpu);
  const int64_t before = peak_without_scratch();
  test.gradient({}, g);
  CHECK(peak_without_scratch() - before < 6000 * 100);
}

TEST_CASE("bucket_attention gives the same bits on any number of threads", "[bucket_attention]") {
  for (const BucketOptions& buckets : {BucketOptions{2, 0, 2, 20}, BucketOptions{2, 0, 2, 7, false, true}}) {
    const BucketCase test({2, 2, 701, 701, 7, 5}, buckets, 5, DType::float32);
    const Tensor g = random_tensor({2, 701, 2, 5}, DType::float32, 9);
    check_any_threads([&] {
      const AttentionOptions options{{}, test_dropout(0.2), 0};
      const auto b = test.gradient(options, g);
      return std::vector<Tensor>{test.run(options).out, b.dq, b.dk, b.dv};
    });
  }
}

TEST_CASE("a bucket that changes before the backward pass of bucket_attention is an error", "[bucket_attention]") {
  const BucketCase test({1, 1, 4, 4, 2, 2}, {1, 0, 1, 2}, 2, DType::float64);
  const Variable q(test.x.q, true), k(test.x.k), v(test.x.v);
  const Variable out = bucket_attention(q, k, v, test.groups, test.options);
  Tensor(test.groups.labels()).mutable_data<int32_t>()[0] = 1;
  CHECK_THROWS_AS(backward(out, out.value()), Error);
}

TEST_CASE("bucket_attention refuses what it cannot compute", "[bucket_attention]") {
  const BucketCase t({2, 3, 4, 4, 6, 7}, {2, 0, 2, 2}, 3, DType::float32);
  const auto run = [&](const Groups& groups, const BucketOptions& buckets) {
    return bucket_attention(t.x.q, t.x.k, t.x.v, groups, buckets, {});
  };
  CHECK_ERROR(bucket_attention(Tensor(), t.x.k, t.x.v, t.groups, t.options, {}),
              "bucket_attention: q was never given a value");
  const Tensor longer({2, 5, 3, 6}), values({2, 5, 3, 7});
  CHECK_ERROR(bucket_attention(t.x.q, longer, values, t.groups, t.options, {}),
              "bucket_attention: 4 queries and 5 keys, expected as many");
  CHECK_ERROR(run({}, t.options), "bucket_attention: labels was never given a value");
  CHECK_ERROR(run(t.groups, {1, 0, 1, 2}), "bucket_attention: expected labels of shape [2, 3, 4], got [2, 6, 4]");
  CHECK_ERROR(run(t.groups, {2, 0, 3, 2}), "bucket_attention: rounds 0 up to 3 of 2, expected one or more of them");
  CHECK_ERROR(run(t.groups, {2, -1, 1, 2}), "bucket_attention: rounds -1 up to 1 of 2");
  CHECK_ERROR(run(t.groups, {2, 1, 1, 2}), "bucket_attention: rounds 1 up to 1 of 2");
  CHECK_ERROR(run(t.groups, {2, 0, 2, 0}), "bucket_attention: chunk = 0, expected at least 1");
  CHECK_ERROR(t.gradient({}, t.x.q), "bucket_attention: expected the gradient of shape [2, 4, 3, 7], got [2, 4, 3, 6]");
  CHECK_ERROR(group_buckets(Tensor::zeros({2, 3, 4}, DType::int32), 2),
              "group_buckets: expected buckets of shape [B, H, R, N], got [2, 3, 4]");
  const Tensor cuda = elsewhere({0, 4, 3, 6});
  CHECK_ERROR(bucket_attention(cuda, cuda, cuda, group(Tensor({0, 6, 4}, DType::int32), 1), {2, 0, 2, 2}, {}),
              "bucket_attention: labels is on cpu, expected cuda");
}

#if CAIRN_HAS_CUDA  // against the CPU

static Results run(const BenchOperands& x, const Groups& groups, const BucketOptions& buckets,
                   const AttentionOptions& options) {
  const AttentionResult result = bucket_attention(x.q, x.k, x.v, groups, buckets, options);
  const auto g = bucket_attention_backward(x.q, x.k, x.v, groups, buckets, options, result, x.dout);
  return {{"out", result.out}, {"logsumexp", result.logsumexp}, {"dq", g.dq}, {"dk", g.dk}, {"dv", g.dv}};
}

PARITY("bucket_attention") {
  const auto add = [&](const Sizes& s, const BucketOptions& buckets, int64_t count, const char* kind = "nothing",
                       const AttentionMask& mask = {}, double dropout = 0) {
    cases.add(concat("bucket_attention ", s, " in chunks of ", buckets.chunk, " masked by ", kind, ", dropout ",
                     dropout, buckets.deduplicate ? ", deduplicated" : ""),
              [=](const Bench& bench) {
                BenchOperands x(bench, s);
                x.k = l2_normalize(x.k);
                const int lowest = mask.query_lengths.defined() ? -1 : 0;
                return run(
                    x, group_buckets(bench.integers({s.B, s.H, buckets.rounds, s.N}, lowest, int(count) - 1), count),
                    buckets, {on(bench.device, mask), test_dropout(dropout), 0});
              });
  };
  for (const Sizes& s : {Sizes{0, 2, 3, 3, 2, 2},
                         {2, 0, 3, 3, 2, 2},
                         {2, 2, 0, 0, 2, 2},
                         {2, 2, 5, 5, 0, 2},
                         {2, 2, 5, 5, 2, 0},
                         {1, 1, 1, 1, 1, 1}})
    add(s, {2, 0, 2, 2}, 2);
  // A lone chunk, smaller and larger than a tile; two; odd and even numbers of them; many and less than one in a tile;
  // one element wide.
  add({2, 2, 31, 31, 3, 5}, {1, 0, 1, 32}, 3);
  add({1, 1, 150, 150, 8, 8}, {2, 0, 2, 1000}, 2);
  add({1, 1, 150, 150, 8, 8}, {2, 0, 2, 80}, 2);
  add({1, 2, 67, 67, 5, 40}, {3, 0, 3, 5}, 4);
  add({1, 1, 96, 96, 16, 16}, {3, 1, 2, 32}, 4);
  add({1, 1, 200, 200, 8, 12}, {2, 0, 2, 32, false}, 8);
  add({1, 1, 200, 200, 8, 12}, {3, 0, 3, 40, false, true}, 4);
  add({1, 1, 140, 140, 4, 4}, {2, 0, 2, 1, false}, 2);
  add({1, 1, 70, 70, 136, 68}, {2, 0, 2, 32}, 3);
  add({1, 1, 70, 70, 68, 136}, {2, 0, 2, 32, true, true}, 3);
  add({1, 1, 200, 200, 8, 12}, {2, 0, 2, 32, false, false, true, false}, 8);
  add({1, 2, 67, 67, 5, 40}, {3, 0, 3, 5, true, true, true}, 4);
  add({1, 1, 96, 96, 16, 16}, {2, 0, 2, 16, false, true, false, false}, 4);
  const Sizes small{4, 2, 9, 9, 4, 3}, tiled{3, 1, 90, 90, 16, 24};
  for (const bool deduplicate : {false, true}) {
    for (const auto& [kind, mask] : every_mask(small, true))
      if (mask.pattern.all())  // else most queries see one key, and of such gradients rounding is all there is
        add(small, {2, 0, 2, 3, true, deduplicate}, 3, kind.c_str(), mask, mask.causal ? 0.3 : 0);
    for (const auto& [kind, mask] : every_mask(tiled, true))
      for (const bool wrap : {false, true})
        add(tiled, {3, 0, 3, 16, false, deduplicate, true, wrap}, 3, kind.c_str(), mask, mask.causal ? 0.3 : 0);
    add(tiled, {3, 0, 3, 16, false, deduplicate}, 3, "nothing", {}, 0.25);
  }
  for (const int operand : {0, 1, 2, 3})
    cases.add(concat("NaN in operand ", operand, " of bucket_attention stays within its head"),
              [=](const Bench& bench) {
                BenchOperands x(bench, {2, 2, 40, 40, 8, 8});
                change(bench, x[operand],
                       [](float* data) { data[(3 * 2 + 1) * 8 + 5] = NAN; });  // batch element 0, row 3, head 1
                return without_head_1(run(x, group_buckets(bench.integers({2, 2, 2, 40}, 0, 3), 4), {2, 0, 2, 8}, {}));
              });
  cases.add("bucket_attention of one variable, with gradients", [](const Bench& bench) {
    const Variable x = bench.variable(bench.uniform({2, 21, 2, 8}, -1, 1));
    const Groups groups = group_buckets(bench.integers({2, 2, 2, 21}, 0, 3), 4);
    return with_gradients(bench, bucket_attention(x, l2_normalize(x), x, groups, {2, 0, 2, 4}), {{"x", x}});
  });
}

#endif
