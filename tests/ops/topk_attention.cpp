#include "core/kernels/topk_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "autograd/ops/improved_clustered.h"
#include "tests/ops/attention_test.h"

TEST_CASE("topk_attention refuses what it cannot compute", "[topk_attention]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  const Clusters clusters = clusters_of(Tensor::zeros({2, 3, 4}, DType::int32), 3);
  Tensor topk = Tensor::zeros({2, 3, 3, 2}, DType::int32);
  check_refusals("topk_attention", heads_and({{"topk", "B H C T"}, {"the gradient", "B N H M"}}),
                 {x.q, x.k, x.v, topk, Tensor({2, 4, 3, 7})},
                 [&](const Tensors& t) { topk_attention_backward(t[0], t[1], t[2], clusters, t[3], {}, {}, t[4]); });
  topk.mutable_data<int32_t>()[0] = 5;
  CHECK_ERROR(topk_attention(x.q, x.k, x.v, clusters, topk), "topk_attention: topk[0] is 5, expected -1 to 4");
}

namespace {

enum class Labels { random, one_huge, few_used, own, one };

struct Split {
  HeadSizes s;
  int64_t C, k;
  Labels labels = Labels::random;
  double dropout = 0;
  bool same_keys = false;  // all clusters have the same top keys
  bool alone = false;      // no mass and no rest
};

Tensor labels_of(const Split& c) {
  std::vector<int32_t> labels;
  RandomStream random(11, 0, Purpose::test);
  for (int64_t i = 0; i < c.s.B * c.s.H * c.s.N; ++i) {
    int32_t label = int32_t(random.below(uint32_t(c.C + 1))) - 1;  // -1: of no cluster
    if (c.labels == Labels::one_huge && random.below(8) > 0) label = int32_t(c.C / 2);
    if (c.labels == Labels::few_used) label = label >= 0 ? label / 4 * 4 : -1;
    if (c.labels == Labels::own) label = int32_t(i % c.s.N);
    if (c.labels == Labels::one) label = int32_t(c.C / 2);
    labels.push_back(label);
  }
  return Tensor::from(labels, {c.s.B, c.s.H, c.s.N});
}

// Rising rows, then -1: of up to k keys, and of none at all for one cluster of seven; or the same keys for all.
Tensor top_keys(const Split& c) {
  std::vector<int32_t> keys;
  RandomStream random(12, 0, Purpose::test);
  for (int64_t row = 0; row < c.s.B * c.s.H * c.C; ++row) {
    if (c.same_keys) random = RandomStream(12, 0, Purpose::test);
    const size_t end = size_t((row + 1) * c.k);
    const uint32_t step = uint32_t(std::max<int64_t>(1, 2 * c.s.S / c.k));
    for (int64_t key = random.below(step); key < c.s.S && keys.size() < end && (row % 7 != 6 || c.same_keys);
         key += 1 + random.below(step))
      keys.push_back(int32_t(key));
    keys.resize(end, -1);
  }
  return Tensor::from(keys, {c.s.B, c.s.H, c.C, c.k});
}

// q, k, v, labels, top keys, and unless alone mass and rest.
Tensors operands_of(const Split& c) {
  const HeadSizes& s = c.s;
  Tensors operands{normal({s.B, s.N, s.H, s.D}), normal({s.B, s.S, s.H, s.D}, 2), normal({s.B, s.S, s.H, s.M}, 3),
                   labels_of(c), top_keys(c)};
  if (c.alone) return operands;
  operands.push_back(uniform({s.B, s.H, c.C}, 0, 1, 4));
  operands.push_back(normal({s.B, c.C, s.H, s.M}, 5));
  return operands;
}

// With a mass and a rest, recorded as a node of its own; without, as oracle-top does.
Variable forward_of(const Split& c, const Variables& t) {
  const Clusters clusters = clusters_of(t[3].value(), c.C);
  const AttentionOptions options{.dropout = test_dropout(c.dropout)};
  if (c.alone) return topk_attention(t[0], t[1], t[2], clusters, t[4].value(), options);
  Tensors x;
  for (const Variable& operand : t) x.push_back(operand.value());
  return record("topk_attention", topk_attention_forward(x[0], x[1], x[2], clusters, x[4], x[5], x[6], options),
                {t[0], t[1], t[2], t[5], t[6]}, [x, clusters, options](const Tensor& g) -> Gradients {
                  const auto d = topk_attention_backward(x[0], x[1], x[2], clusters, x[4], x[5], options, g);
                  return {d.dq, d.dk, d.dv, d.dmass, d.drest};
                });
}

// out_i = m_j (z a V_top) + rest_j, with a the softmax over the top keys of the query's cluster j.
Tensor reference_of(const Split& c, const Tensors& t) {
  const HeadSizes& s = c.s;
  BatchHeads weights = reference_scores(t[0], t[1], {});
  const auto label = t[3].to_vector<int32_t>(), topk = t[4].to_vector<int32_t>();
  const auto cluster = [&](int64_t b, int64_t h, int64_t i) -> int64_t {
    const int32_t of = label[size_t((b * s.H + h) * s.N + i)];
    return of < 0 ? -1 : (b * s.H + h) * c.C + of;
  };
  weights.rows([&](int64_t b, int64_t h, int64_t i) {
    const int64_t j = cluster(b, h, i);
    const auto first = topk.begin() + std::max<int64_t>(j, 0) * c.k;
    for (int64_t key = 0; key < s.S; ++key)
      if (j < 0 || std::find(first, first + c.k, key) == first + c.k) weights(b, h, i, key) = -INFINITY;
  });
  weights = reference_weights(weights);
  weights = reference_dropout(weights, test_dropout(c.dropout));
  Rows4 out(from_doubles(times_values(weights, t[2]), {s.B, s.N, s.H, s.M}));
  if (c.alone) return from_doubles(out.values, out.shape);
  const auto mass = as_double(t[5]);
  const Rows4 rest(t[6]);
  weights.rows([&](int64_t b, int64_t h, int64_t i) {
    const int64_t j = cluster(b, h, i);
    for (int64_t d = 0; d < s.M && j >= 0; ++d)
      out(b, i, h, d) = mass[size_t(j)] * out(b, i, h, d) + rest(b, j % c.C, h, d);
  });
  return from_doubles(out.values, out.shape);
}

}  // namespace

OPERATION("topk_attention") {
  op.takes =
      heads_and({{"labels", "B H N", Taken::labels}, {"topk", "B H C T"}, {"mass", "B H C"}, {"rest", "B C H M"}});
  op.rounds_once = op.same_bits_anywhere = false;  // weights are rounded too, and tensor cores need aligned rows
  op.backward_reads = {0, 1, 2, 3, 4};
  const auto add = [&](const Split& c, Form form = Form::usual) -> Case& {
    Case& test = op.add(concat(c.s, " k ", c.k, " C ", c.C, " labels ", int(c.labels), " dropout ", c.dropout,
                               c.same_keys ? ", the same keys" : "", c.alone ? " alone" : ""),
                        operands_of(c));
    test.form = form;
    test.forward = [c](const Variables& t) { return Variables{forward_of(c, t)}; };
    test.reference = [c](const Tensors& t) { return Tensors{reference_of(c, t)}; };
    return test;
  };
  const auto add_alone = [&](const HeadSizes& s, int64_t C, int64_t k, Labels labels, double dropout,
                             Form form = Form::usual) {
    add({s, C, k, labels, dropout, false, true}, form);
  };
  add_alone({2, 2, 7, 6, 2, 3}, 3, 3, Labels::random, 0);  // the one whose tensors are changed
  add({{2, 2, 7, 6, 2, 3}, 3, 3});
  add({{1, 2, 301, 600, 7, 5}, 13, 32}).on_cuda = false;
  for (const HeadSizes& s : {HeadSizes{1, 1, 1, 1, 1, 1},
                             {0, 2, 3, 3, 2, 2},
                             {2, 0, 3, 3, 2, 2},
                             {2, 2, 0, 3, 2, 2},
                             {2, 2, 3, 0, 2, 2},
                             {2, 2, 3, 4, 0, 2},
                             {2, 2, 3, 4, 2, 0},
                             {2, 2, 3, 4, 0, 0},
                             {3, 2, 5, 7, 4, 6}}) {
    add({s, 1, 1});
    add({s, 3, 4, Labels::random, 0.3});
  }
  add({{2, 2, 3, 4, 5, 6}, 0, 4});
  for (const Labels labels : {Labels::random, Labels::one_huge, Labels::few_used})
    for (const double dropout : {0.0, 0.3})
      for (const int64_t k : {1, 7, 32, 33, 100}) add({{2, 2, 151, 131, 5, 3}, 13, k, labels, dropout});
  // Wide rows, and columns of several blocks.
  for (const auto& [D, M] :
       {std::pair{32, 64}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {66, 130}, {128, 128}, {5, 200}})
    for (const int64_t k : {9, 41}) add({{1, 2, 40, 70, D, M}, 3, k, Labels::random, 0.2});
  // More workspace than one round has: a round for each head.
  add({{1, 2, 20, 130, 2, 128}, 1100, 128});
  add({{1, 2, 20, 130, 8, 128}, 1100, 128});
  add({{2, 2, 151, 131, 8, 16}, 13, 33, Labels::random, 0.3}, Form::older);
  for (const Form form : every_form) {
    // What tensor cores take: several tiles of members and of keys.
    for (const Labels labels : {Labels::random, Labels::one_huge, Labels::few_used})
      for (const int64_t k : {7, 32, 33, 100})
        if (k < 100 || labels == Labels::one_huge)
          add({{2, 2, 151, 131, 8, 16}, 13, k, labels, k > 32 ? 0.3 : 0}, form);
    for (const int64_t k : {5, 16, 17, 40}) {
      add({{1, 2, 40, 70, 72, 128}, 3, k, Labels::random, 0.2}, form);
      add({{1, 2, 70, 33, 64, 40}, 1, k, Labels::one, 0}, form);
    }
    add({{2, 2, 3, 4, 8, 8}, 2, 9}, form);
    // Each query a cluster of its own, as in oracle-top.
    for (const int64_t k : {8, 35}) add_alone({2, 2, 67, 131, 24, 8}, 67, k, Labels::own, 0.1, form);
    add_alone({2, 2, 151, 131, 8, 16}, 13, 33, Labels::random, 0.3, form);
    for (const int64_t k : {8, 35}) add({{2, 2, 67, 131, 24, 8}, 67, k, Labels::own, 0.1}, form);
    // Keys that more clusters have than one warp sums up by itself.
    for (const int64_t k : {8, 35}) add({{1, 2, 67, 131, 72, 64}, 67, k, Labels::own, 0, true}, form);
  }
  for (const int64_t D : {8, 3}) add({{1, 2, 33000, 40, D, 8}, 2, 5});  // tasks of several tiles
  add({{2, 2, 67, 131, 11, 7}, 67, 35, Labels::own, 0.1});
  add_alone({2, 2, 67, 131, 11, 7}, 67, 35, Labels::own, 0.1);
}

// Operands: q, k, v, labels and the keys' lengths; the top keys are given, because the function jumps where they
// change.
OPERATION("improved_clustered") {
  op.rounds_once = op.gradients_round_once = op.same_bits_anywhere = false;
  op.backward_reads = {0, 1, 2, 3, 4};
  for (const Split& c : {Split{{2, 2, 7, 6, 2, 3}, 3, 2},
                         {{2, 3, 41, 29, 5, 4}, 4, 7, Labels::few_used, 0.3},
                         {{3, 2, 67, 131, 16, 8}, 5, 32, Labels::one_huge, 0.3},
                         {{2, 2, 3, 4, 5, 6}, 2, 9}}) {
    const Tensor given = top_keys(c), lengths = some_lengths(c.s.B, c.s.S);
    Case& test = op.add(concat(c.s, " k ", c.k, " C ", c.C, " dropout ", c.dropout),
                        {normal({c.s.B, c.s.N, c.s.H, c.s.D}), normal({c.s.B, c.s.S, c.s.H, c.s.D}, 2),
                         normal({c.s.B, c.s.S, c.s.H, c.s.M}, 3), labels_of(c), lengths});
    const auto run = [=](const auto& q, const auto& k, const auto& v, const Tensor& labels, const Tensor& key_lengths) {
      const AttentionMask mask{.key_lengths = key_lengths};
      return improved_clustered(q, k, v, clusters_of(labels, c.C), c.k, {mask, test_dropout(c.dropout)},
                                {mask, test_dropout(c.dropout, Purpose::attention_rest_dropout)}, true,
                                given.to(labels.device()));
    };
    test.forward = [=](const Variables& t) {
      const auto [out, topk, mass] = run(t[0], t[1], t[2], t[3].value(), t[4].value());
      return Variables{out, mass.clone()};
    };
    test.reference = [=](const Tensors& t) {
      const Tensor means = from_doubles(reference_cluster_mean(t[0], t[3], c.C), t[0].shape().with(1, c.C));
      BatchHeads weights = reference_weights(reference_scores(means, t[1], {.mask = {.key_lengths = t[4]}}));
      const Tensor mass = from_doubles(take_top_keys(weights, given.to_vector<int32_t>()), {c.s.B, c.s.H, c.C});
      weights = reference_dropout(weights, test_dropout(c.dropout, Purpose::attention_rest_dropout));
      const Tensor rest = from_doubles(times_values(weights, t[2]), {c.s.B, c.C, c.s.H, c.s.M});
      return Tensors{reference_of(c, {t[0], t[1], t[2], t[3], given, mass, rest}), mass};
    };
  }
}

#if CAIRN_HAS_CUDA

// Everything that topk_attention computes, as float32. Tasks of several tiles, keys of many clusters, dropout. Each
// third top key is one of `instead`.
static std::vector<float> results(Form form, DType dtype, const std::vector<int32_t>& instead = {}) {
  const WithForm with(form);
  std::vector<float> all;
  const auto collect = [&](const Tensor& result) {
    const auto values = result.to(Device::cpu).cast(DType::float32).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  };
  for (const Split& c : {Split{{1, 2, 150, 67, 16, 16}, 5, 40, Labels::random, 0.2},
                         Split{{1, 2, 67, 40, 16, 16}, 67, 20, Labels::own, 0.2, true}}) {
    Variables in;
    Tensors operands = operands_of(c);
    int32_t* const topk = operands[4].mutable_data<int32_t>();
    for (int64_t i = 0; i < operands[4].elements() && !instead.empty(); i += 3)
      topk[i] = instead[size_t(i / 3) % instead.size()];
    for (const Tensor& x : operands) {
      const bool floating = is_floating(x.dtype());
      in.emplace_back((floating ? x.cast(dtype) : x).to(Device::cuda), floating);
    }
    const Variable y = forward_of(c, in);
    backward(y, normal(y.shape(), 9).cast(dtype).to(Device::cuda));
    collect(y.value());
    for (const Variable& x : in)
      if (x.requires_grad()) collect(x.grad());
  }
  return all;
}

TEST_CASE("topk_attention on CUDA gives the same bits every time", "[gpu]") {
  for (const auto& [form, dtype] :
       {std::pair{Form::usual, DType::float32}, {Form::usual, DType::bfloat16}, {Form::older, DType::float32}})
    for (const auto& instead : {std::vector<int32_t>{}, {3}}) {  // nothing, or a key several times
      const auto first = results(form, dtype, instead);
      in_every_order([&, form = form, dtype = dtype] { CHECK(results(form, dtype, instead) == first); });
    }
}

TEST_CASE("topk_attention on CUDA passes over top keys that are no keys", "[gpu]") {
  for (const Form form : every_form)
    CHECK(results(form, DType::float32, {INT32_MAX, -2, 67, INT32_MIN}) == results(form, DType::float32, {-1}));
}

TEST_CASE("a member that is missing has no part in topk_attention's gradient of the mass", "[gpu]") {
  for (const int64_t k : {3, 40}) {  // q . k is minus infinity for the five members; 0 times infinity would be NaN
    Tensors t = operands_of({{1, 1, 5, 67, 16, 16}, 1, k, Labels::one});
    t[0] = Tensor::full(t[0].shape(), 1, DType::float64);
    t[1] = with(t[1], {{16 * t[4].data<int32_t>()[0], -INFINITY}});
    const auto on_device = [&](size_t i) { return t[i].cast(DType::bfloat16).to(Device::cuda); };
    const Tensor q = on_device(0);
    const auto g = topk_attention_backward(q, on_device(1), on_device(2), clusters_of(t[3].to(Device::cuda), 1),
                                           t[4].to(Device::cuda), on_device(5), {}, q);
    CHECK(std::isfinite(as_double(g.dmass)[0]));
  }
}

TEST_CASE("topk_attention on CUDA has no more parts than ints count", "[gpu]") {
  AttentionOperands<float> none{};
  CHECK_ERROR(gpu::topk_attention_backward<float>({}, none, 1 << 20, 1 << 20, {}, nullptr, nullptr, {}, nullptr, {}, {},
                                                  {}, nullptr, {}),
              "topk_attention on CUDA: expected C, k and (N / 64 + C + 1) k below 2^30, got C = 1048576, k = 1048576, "
              "N = 0");
}

#if CAIRN_CUDA_HOST
TEST_CASE("topk_attention on CUDA takes tensor cores where it may", "[gpu]") {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    CHECK(results(Form::older, dtype) != results(Form::usual, dtype));
}
#endif

#endif
