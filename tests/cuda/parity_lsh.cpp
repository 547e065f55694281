// Cases of parity.h: rows of unit length, buckets, and attention within them.
#include <cmath>

#include "tests/cuda/parity.h"

namespace cairn::test {

void add_l2_normalize(std::vector<Case>& cases) {
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{1, 1}, Shape{7}, Shape{2, 3, 5}, Shape{67, 131}})
    cases.push_back({label("l2_normalize", shape), [=](const Bench& bench) {
                       const Variable x = bench.variable(bench.normal(shape));
                       return with_gradients(bench, l2_normalize(x), {{"x", x}});
                     }});
  cases.push_back(
      {"l2_normalize of zeros, of tiny and of huge numbers", [](const Bench& bench) -> Results {
         const Tensor x = bench.place(Tensor::from<float>({0, -0.0f, 1e-37f, -1e-37f, 2e38f, 1e38f, 1, 0}, {4, 2}));
         // (Gradients of tiny rows are huge.)
         return {{"y", l2_normalize(x)}, {"dx", l2_normalize_backward(x, x)}};
       }});
  cases.push_back(
      {"l2_normalize of NaN and infinity", [](const Bench& bench) -> Results {
         return {{"y", l2_normalize(bench.place(Tensor::from<float>({NAN, 1, INFINITY, 1, 3, 4}, {3, 2})))}};
       }});
}

void add_hash_buckets(std::vector<Case>& cases) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 7, 5}, Shape{2, 33, 129}, Shape{2, 3, 0}})
    cases.push_back({label("random_rotations", shape),
                     [=](const Bench& bench) -> Results {
                       const Generator generator(21, bench.device);
                       return {{"rotations", random_rotations(shape[0], shape[1], shape[2],
                                                              generator.draw(2, Purpose::rotations), bench.device)}};
                     },
                     true});
  const auto buckets = [](const Bench& bench, const Tensor& q, const BucketCount& count, const Tensor& lengths) {
    const Generator generator(22, bench.device);
    const Tensor rotations =
        random_rotations(3, count(q.size(1)) / 2, q.size(3), generator.draw(1, Purpose::rotations), bench.device);
    return hash_buckets(q, rotations, lengths, count);
  };
  for (const Shape& shape : {Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4}, Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0},
                             Shape{1, 1, 1, 1}, Shape{2, 67, 3, 5}, Shape{1, 129, 1, 33}, Shape{2, 300, 2, 64}})
    for (const BucketCount& count : {BucketCount{2, 32}, BucketCount{0, 4}, BucketCount{0, 2}, BucketCount{134, 32}})
      for (const bool some : {false, true})
        cases.push_back({label("hash_buckets", shape) + " in " + std::to_string(count(shape[1])) + " buckets" +
                             (some ? ", lengths" : ""),
                         [=](const Bench& bench) -> Results {
                           Tensor lengths;
                           if (some) {
                             std::vector<int32_t> values;
                             for (int64_t b = 0; b < shape[0]; ++b) values.push_back(int32_t(shape[1] * (b + 1) / 3));
                             lengths = Tensor::from(values, {shape[0]}).to(bench.device);
                           }
                           return {{"buckets", buckets(bench, bench.normal(shape), count, lengths)}};
                         }});
  cases.push_back(
      {"hash_buckets of zeros, NaN and infinities", [=](const Bench& bench) -> Results {
         std::vector<float> x(size_t(7 * 5), 0.0f);
         x[3] = NAN, x[5] = INFINITY, x[11] = -INFINITY, x[15] = INFINITY, x[16] = -INFINITY, x[22] = -0.0f;
         const Tensor q = bench.place(Tensor::from(x, {1, 7, 1, 5}));
         return {{"2 buckets", buckets(bench, q, {2, 32}, {})}, {"80 buckets", buckets(bench, q, {80, 32}, {})}};
       }});
}

namespace {

struct Sizes {
  int64_t B, H, N, D, M;
};

struct Conditions {
  const char* name = "plain";
  bool lengths = false, causal = false, allowed = false;
  double dropout = 0;
};

AttentionOptions options_of(const Bench& bench, const Sizes& s, const Conditions& conditions,
                            const Generator& generator) {
  AttentionOptions options;
  options.mask.causal = conditions.causal;
  if (conditions.lengths) {
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < s.B; ++b) lengths.push_back(int32_t(s.N * ((b + 2) % 4) / 3));
    options.mask.query_lengths = Tensor::from(lengths, {s.B}).to(bench.device);
    options.mask.key_lengths = options.mask.query_lengths;
  }
  if (conditions.allowed) options.mask.allowed = bench.integers({s.B, 1, s.N, s.N}, 0, 1, 5).cast(DType::boolean);
  options.dropout = {conditions.dropout, generator.draw(3, Purpose::attention_dropout)};
  return options;
}

Results run(const Bench& bench, const Sizes& s, const BucketOptions& buckets, int64_t count,
            const Conditions& conditions) {
  const Generator generator(7, bench.device);
  const Tensor q = bench.normal({s.B, s.N, s.H, s.D}, 1), k = l2_normalize(bench.normal({s.B, s.N, s.H, s.D}, 2));
  const Tensor v = bench.uniform({s.B, s.N, s.H, s.M}, -1, 1, 3), dout = bench.uniform({s.B, s.N, s.H, s.M}, -1, 1, 4);
  const Groups groups = group_buckets(
      bench.integers({s.B, s.H, buckets.rounds, s.N}, conditions.lengths ? -1 : 0, int(count) - 1), count);
  const AttentionOptions options = options_of(bench, s, conditions, generator);
  const AttentionResult result = bucket_attention(q, k, v, groups, buckets, options);
  const auto g = bucket_attention_backward(q, k, v, groups, buckets, options, result, dout);
  return {{"out", result.out}, {"logsumexp", result.logsumexp}, {"dq", g.dq}, {"dk", g.dk}, {"dv", g.dv}};
}

}  // namespace

void add_bucket_attention(std::vector<Case>& cases) {
  const auto add = [&](const Sizes& s, const BucketOptions& buckets, int64_t count, const Conditions& conditions = {}) {
    cases.push_back({label("bucket_attention", {s.B, s.N, s.H, s.D, s.M}) + " in chunks of " +
                         std::to_string(buckets.chunk) + ", " + conditions.name,
                     [=](const Bench& bench) { return run(bench, s, buckets, count, conditions); }});
  };
  for (const Sizes& s : std::vector<Sizes>{
           {0, 2, 3, 2, 2}, {2, 0, 3, 2, 2}, {2, 2, 0, 2, 2}, {2, 2, 5, 0, 2}, {2, 2, 5, 2, 0}, {1, 1, 1, 1, 1}})
    add(s, {2, 0, 2, 2}, 2);
  // A lone chunk, smaller and larger than a tile; two; odd and even numbers of them; many and less than one in a tile;
  // one element wide.
  add({2, 2, 31, 3, 5}, {1, 0, 1, 32}, 3);
  add({1, 1, 150, 8, 8}, {2, 0, 2, 1000}, 2);
  add({1, 1, 150, 8, 8}, {2, 0, 2, 80}, 2);
  add({1, 2, 67, 5, 40}, {3, 0, 3, 5}, 4);
  add({1, 1, 96, 16, 16}, {3, 1, 2, 32}, 4);
  add({1, 1, 200, 8, 12}, {2, 0, 2, 32, false}, 8);
  add({1, 1, 200, 8, 12}, {3, 0, 3, 40, false, true}, 4);
  add({1, 1, 140, 4, 4}, {2, 0, 2, 1, false}, 2);
  add({1, 1, 70, 136, 68}, {2, 0, 2, 32}, 3);
  add({1, 1, 70, 68, 136}, {2, 0, 2, 32, true, true}, 3);
  add({1, 1, 200, 8, 12}, {2, 0, 2, 32, false, false, true, false}, 8);
  add({1, 2, 67, 5, 40}, {3, 0, 3, 5, true, true, true}, 4);
  add({1, 1, 96, 16, 16}, {2, 0, 2, 16, false, true, false, false}, 4);
  for (const Conditions& each :
       {Conditions{"lengths", true}, Conditions{"causal", false, true}, Conditions{"a mask", false, false, true},
        Conditions{"dropout", false, false, false, 0.25}, Conditions{"everything", true, true, true, 0.3}})
    for (const bool deduplicate : {false, true}) {
      add({4, 2, 9, 4, 3}, {2, 0, 2, 3, true, deduplicate}, 3, each);
      add({3, 1, 90, 16, 24}, {3, 0, 3, 16, false, deduplicate}, 3, each);
      add({3, 1, 90, 16, 24}, {3, 0, 3, 16, false, deduplicate, true, false}, 3, each);
    }

  // Results with those of batch element 0, head 1 left out, one of whose numbers is bad.
  for (const int operand : {0, 1, 2, 3})
    cases.push_back({"NaN in operand " + std::to_string(operand) + " of bucket_attention stays within its head",
                     [=](const Bench& bench) {
                       const Shape shape{2, 40, 2, 8};
                       Tensor in[4] = {bench.normal(shape, 1), bench.normal(shape, 2), bench.normal(shape, 3),
                                       bench.normal(shape, 4)};
                       Tensor host = in[operand].to(Device::cpu).cast(DType::float32);
                       host.mutable_data<float>()[(3 * 2 + 1) * 8 + 5] = NAN;  // of row 3
                       in[operand] = bench.place(host);
                       const BucketOptions buckets{2, 0, 2, 8};
                       const Groups groups = group_buckets(bench.integers({2, 2, 2, 40}, 0, 3), 4);
                       const auto saved = bucket_attention(in[0], in[1], in[2], groups, buckets);
                       const auto g = bucket_attention_backward(in[0], in[1], in[2], groups, buckets, {}, saved, in[3]);
                       Results results{{"out", saved.out}, {"dq", g.dq}, {"dk", g.dk}, {"dv", g.dv}};
                       for (auto& [name, result] : results) {
                         result = result.to(Device::cpu).cast(DType::float32);
                         for (int64_t i = 0; i < result.elements() / 2; ++i)
                           if (i / 8 % 2 == 1) result.mutable_data<float>()[i] = 0;
                       }
                       return results;
                     }});
  cases.push_back(
      {"bucket_attention of one variable, with gradients", [](const Bench& bench) {
         const Variable x = bench.variable(bench.uniform({2, 21, 2, 8}, -1, 1));
         const Groups groups = group_buckets(bench.integers({2, 2, 2, 21}, 0, 3), 4);
         return with_gradients(bench, bucket_attention(x, l2_normalize(x), x, groups, {2, 0, 2, 4}), {{"x", x}});
       }});
}

}  // namespace cairn::test
