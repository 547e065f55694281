#include "core/kernels/centroid_topk.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "autograd/ops/improved_clustered.h"
#include "tests/ops/attention_test.h"

namespace {

// For each row the `top` keys with the largest scores, in rising order, then -1. In a tie the lower index wins; masked
// keys and NaN are never among them.
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

// None and one of everything, odd sizes, and more than one block of centroids (64) and tile of keys (512; 256
// backward).
std::vector<HeadSizes> every_size() {
  return {{1, 1, 1, 1, 1, 1},   {3, 2, 5, 7, 4, 6},   {0, 2, 3, 3, 2, 2},     {2, 0, 3, 3, 2, 2},
          {2, 2, 0, 3, 2, 2},   {2, 2, 3, 0, 2, 2},   {2, 2, 3, 4, 0, 2},     {2, 2, 3, 4, 2, 0},
          {2, 2, 5, 600, 2, 2}, {2, 3, 11, 17, 3, 5}, {1, 1, 70, 1100, 3, 2}, {1, 2, 64, 512, 2, 3},
          {9, 1, 65, 513, 3, 2}};
}

Dropout rest_dropout(double p) { return test_dropout(p, Purpose::attention_rest_dropout); }

Tensor zeros_like(const Tensor& x) { return Tensor::zeros(x.shape(), x.dtype(), x.device()); }

// The top keys, the mass and the rest. The last two are recorded as nodes of their own: the gradient is linear in their
// gradients, so each node gives it zeros for the other one.
Variables recorded(const Variables& t, const CentroidTopK& saved, const AttentionOptions& options) {
  const auto node = [&](bool of_mass) {
    return record("centroid_topk", of_mass ? saved.mass : saved.rest, {t[0], t[1], t[2]},
                  [of_mass, options, logsumexp = saved.logsumexp, q = SavedTensor(t[0].value()),
                   k = SavedTensor(t[1].value()), v = SavedTensor(t[2].value()), topk = SavedTensor(saved.topk),
                   mass = SavedTensor(saved.mass), rest = SavedTensor(saved.rest)](const Tensor& g) {
                    Tensor dk = zeros_like(k()), dv = zeros_like(v());
                    const Tensor dq = centroid_topk_backward(
                        q(), k(), v(), options, {topk(), logsumexp, mass(), rest()}, of_mass ? g : zeros_like(mass()),
                        of_mass ? zeros_like(rest()) : g, dk, dv);
                    return Gradients{dq, dk, dv};
                  });
  };
  return {saved.topk, node(true), node(false)};
}

// What a case computes of its operands.
struct Split {
  HeadSizes s;
  int64_t top;
  std::string kind = "nothing";  // of mask
  AttentionMask mask{};
  double dropout = 0;
  Tensor given{};  // the top keys

  AttentionOptions options(Device device) const { return {on(device, mask), rest_dropout(dropout), 0}; }
  CentroidTopK run(const Tensors& t, bool with_rest = true) const {
    const Device device = t[0].device();
    return centroid_topk(t[0], t[1], t[2], top, with_rest, options(device),
                         given.defined() ? given.to(device) : Tensor());
  }
};

Tensors random_operands(const HeadSizes& s) {
  return {normal({s.B, s.N, s.H, s.D}), normal({s.B, s.S, s.H, s.D}, 2), uniform({s.B, s.S, s.H, s.M}, -1, 1, 3)};
}
// Scores with many ties: of halves of whole numbers, whose products and sums are exact.
Tensors with_ties(const HeadSizes& s) {
  Tensors t = random_operands(s);
  for (const size_t i : {0, 1}) t[i] = affine(integers(t[i].shape(), -2, 2, i + 1).cast(DType::float64), 0.5).value();
  return t;
}
// Every third key, at most `top`; none for the second centroid. Some of the keys may be masked.
Tensor given_keys(const HeadSizes& s, int64_t top) {
  std::vector<int32_t> keys;
  for (int64_t row = 0; row < s.B * s.H * s.N; ++row)
    for (int64_t l = 0; l < top; ++l) {
      const int64_t key = 3 * l + row % 3;
      keys.push_back(int32_t(row != 1 && key < s.S ? key : -1));
    }
  return Tensor::from(keys, {s.B, s.H, s.N, top});
}

Case& add(Operation& op, const Split& c, Tensors operands) {
  Case& test = op.add(
      concat(c.s, " top ", c.top, c.given.defined() ? " given" : "", " masked by ", c.kind, " dropout ", c.dropout),
      std::move(operands));
  test.forward = [c](const Variables& t) {
    const Tensors x{t[0].value(), t[1].value(), t[2].value()};
    return recorded(t, c.run(x), c.options(x[0].device()));
  };
  test.reference = [c](const Tensors& t) {
    const BatchHeads scores = reference_scores(t[0], t[1], c.options(Device::cpu));
    BatchHeads weights = reference_weights(scores);
    const auto topk = c.given.defined() ? c.given.to_vector<int32_t>() : reference_topk(scores, c.top);
    const std::vector<double> mass = take_top_keys(weights, topk);
    weights = reference_dropout(weights, rest_dropout(c.dropout));
    return Tensors{Tensor::from(topk, {c.s.B, c.s.H, c.s.N, c.top}), from_doubles(mass, {c.s.B, c.s.H, c.s.N}),
                   from_doubles(times_values(weights, t[2]), {c.s.B, c.s.N, c.s.H, c.s.M})};
  };
  // The gradient subtracts delta = m dm + rest . drest, with m and rest saved, from terms that add up to it.
  test.parity = [c](const ParityRun& run) {
    const CentroidTopK made = c.run(run.operands), saved = c.run(run.on_cpu);
    const Device device = run.operands[0].device();
    const Tensor &q = run.operands[0], &k = run.operands[1], &v = run.operands[2];
    const CentroidTopK placed{saved.topk.to(device), saved.logsumexp.to(device), run.place(saved.mass),
                              run.place(saved.rest)};
    const auto backward = [&](Tensor dk, Tensor dv) {
      const Tensor dq =
          centroid_topk_backward(q, k, v, c.options(device), placed, run.weights[1], run.weights[2], dk, dv);
      return Tensors{dq, dk, dv};
    };
    const Tensors own = backward(zeros_like(k), zeros_like(v)), added = backward(k.clone(), v.clone());
    return Tensors{made.topk, made.logsumexp, made.mass, made.rest, own[0], own[1], own[2], added[1], added[2]};
  };
  return test;
}

// The function jumps where the top keys change, so ties have no gradient unless the top keys are given.
void add_ties(Operation& op, const Split& c, Form form = Form::usual) {
  Case& test = add(op, c, with_ties(c.s));
  test.differences = c.given.defined();
  test.form = form;
}
// NaN and minus infinity, in heads 0 and 1. (Tensor cores turn an infinite float32 into NaN, so the infinite one needs
// an older GPU.)
void add_spoiled(Operation& op, const Split& c, Form form = Form::usual) {
  const auto [B, H, N, S, D, M] = c.s;
  Tensors t = random_operands(c.s);
  t[0] = with(t[0], {{2 * H * D, NAN}});
  if (form == Form::older) t[1] = with(t[1], {{((S - 1) * H + 1) * D, -INFINITY}});
  Case& test = add(op, c, t);
  test.differences = false;
  test.form = form;
}
// There is no gradient without the rest.
void add_without_rest(Operation& op, const Split& c, Tensors operands, Form form = Form::usual) {
  Case& test = add(op, c, std::move(operands));
  test.gradient = false;
  test.form = form;
  test.forward = [c](const Variables& t) {
    const CentroidTopK made = c.run({t[0].value(), t[1].value(), t[2].value()}, false);
    CHECK_FALSE(made.rest.defined());
    return Variables{Variable(made.topk), Variable(made.mass)};
  };
  test.reference = [whole = test.reference](const Tensors& t) { return Tensors{whole(t)[0], whole(t)[1]}; };
  test.parity = [c](const ParityRun& run) {
    const CentroidTopK made = c.run(run.operands, false);
    return Tensors{made.topk, made.logsumexp, made.mass};
  };
}

}  // namespace

OPERATION("centroid_topk") {
  op.takes = heads_and({});
  op.backward_reads = {0, 1, 2};
  op.backward_reads_results = true;
  op.gradients_round_once = false;                 // they are sums of two nodes' gradients
  op.rounds_once = op.same_bits_anywhere = false;  // weights are rounded too, and tensor cores need aligned rows
  const auto add_plain = [&](const Split& c, Form form = Form::usual) { add(op, c, random_operands(c.s)).form = form; };

  for (const HeadSizes& s : every_size())
    for (const int64_t top : {1, 3, 32}) {
      if (s.S > 100 && top != 32) continue;
      for (const auto& [kind, mask] : every_mask(s))
        for (const double dropout : {0.0, 0.3}) {
          Case& test = add(op, {s, top, kind, mask, dropout}, random_operands(s));
          test.on_cuda = s.S <= 7 && kind == "nothing" && dropout == 0;
        }
    }
  const HeadSizes small{3, 2, 11, 29, 5, 3}, tiled{3, 1, 67, 131, 8, 12}, wide{1, 1, 2, 1613, 4, 4};
  for (const double dropout : {0.0, 0.3}) {
    for (const auto& [kind, mask] : every_mask(small, true)) {
      add_plain({small, 4, kind, mask, dropout});
      add_ties(op, {small, 7, kind, mask, dropout});
    }
    for (const auto& [kind, mask] : every_mask(tiled, true)) {
      add_ties(op, {tiled, 32, kind, mask, dropout});
      const HeadSizes odd{3, 1, 67, 131, 5, 3};
      add_plain({odd, 5, kind, mask, dropout, given_keys(odd, 5)});
    }
  }
  // Ties over all of the keys and over several splits; lists longer than a warp, and than the keys.
  for (const int64_t top : {1, 2, 32, 33, 70, 600, 1200}) add_ties(op, {{1, 1, 3, 1100, 3, 4}, top});
  for (const int64_t top : {1, 32, 40}) add_plain({{1, 2, 2, 1613, 5, 4}, top, "nothing", {}, 0.1});
  add_ties(op, {wide, 40, "everything", every_way_masked(wide), 0.1});
  const AttentionMask fewer{.key_lengths = int32s({1291})};
  add_plain({wide, 40, "key lengths", fewer, 0.1, given_keys(wide, 40)});
  const HeadSizes heads{2, 3, 11, 29, 5, 3};
  for (const Tensor& lengths : {Tensor(), int32s({24, 0})})
    add_spoiled(op, {heads, 4, "key lengths", {.key_lengths = lengths}, 0.1});
  // Wide rows, and columns of several blocks.
  for (const auto& [D, M] : {std::pair{32, 64}, {64, 32}, {64, 64}, {128, 64}, {64, 128}, {66, 130}, {128, 128}})
    add_plain({{1, 1, 65, 70, D, M}, 9, "nothing", {}, 0.2});
  // Single queries, each with its own keys.
  const HeadSizes single{2, 2, 130, 130, 4, 3}, wider{2, 2, 130, 130, 16, 3};
  for (const auto& [kind, mask] : every_mask(single, true)) {
    if (mask.pattern.window >= 0) continue;
    add_without_rest(op, {single, 8, kind, mask}, with_ties(single));
    add_without_rest(op, {wider, 33, kind, mask}, random_operands(wider));
  }
  add_without_rest(op, {wide, 40}, random_operands(wide));
  // Rows that tensor cores take: every mask, several tiles of centroids and splits of keys.
  for (const Form form : every_form) {
    const HeadSizes whole{3, 1, 67, 131, 8, 16}, split{2, 1, 3, 1613, 16, 8}, spoiled{2, 3, 11, 29, 8, 8};
    for (const auto& [kind, mask] : every_mask(whole, true)) add_ties(op, {whole, 32, kind, mask, 0.3}, form);
    add_ties(op, {whole, 5, "everything", every_way_masked(whole), 0, given_keys(whole, 5)}, form);
    add_without_rest(op, {whole, 33, "everything", every_way_masked(whole)}, with_ties(whole), form);
    add_plain({split, 32}, form);
    add_ties(op, {split, 40, "everything", every_way_masked(split), 0.1}, form);
    add_plain({split, 500, "everything", every_way_masked(split), 0, given_keys(split, 500)}, form);
    const AttentionMask lengths{.key_lengths = int32s({1291, 0})};
    add_plain({split, 9, "key lengths", lengths, 0.1, given_keys(split, 9)}, form);
    for (const Tensor& keys : {Tensor(), int32s({24, 0})})
      add_spoiled(op, {spoiled, 4, "key lengths", {.key_lengths = keys}, 0.1}, form);
    // Ties among all keys, and more large scores than there is room for in shared memory.
    for (const int64_t top : {1, 2, 33, 250, 600, 1200}) add_ties(op, {{1, 1, 3, 1100, 8, 8}, top}, form);
    for (const auto& [D, M] : {std::pair{32, 64}, {64, 32}, {64, 72}, {128, 64}, {40, 128}})
      add_ties(op, {{1, 1, 65, 140, D, M}, 9, "nothing", {}, 0.2}, form);
  }
  // Groups of several tiles of keys, of which the last has one tile. All warps of a block have a centroid.
  const HeadSizes long_groups{1, 1, 4, 20000, 8, 8};
  for (const Tensor& given : {Tensor(), given_keys(long_groups, 35)})
    add_ties(op, {long_groups, 35, "nothing", {}, 0, given});
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

#if CAIRN_HAS_CUDA

TEST_CASE("centroid_topk on CUDA passes over given top keys that are no keys", "[centroid_topk][gpu]") {
  const HeadSizes s{1, 2, 70, 131, 8, 16};
  const Tensors t = random_operands(s);
  const auto results = [&](const std::vector<int32_t>& instead) {
    Tensor given = given_keys(s, 9);
    for (int64_t i = 0; i < given.elements(); i += 4)
      given.mutable_data<int32_t>()[i] = instead[size_t(i / 4) % instead.size()];
    const auto on_device = [&](size_t i) { return t[i].cast(DType::float32).to(Device::cuda); };
    const Tensor q = on_device(0), k = on_device(1), v = on_device(2);
    const CentroidTopK made = centroid_topk(q, k, v, 9, true, {}, given.to(Device::cuda));
    Tensor dk = zeros_like(k), dv = zeros_like(v);
    const Tensor dq = centroid_topk_backward(q, k, v, {}, made, made.mass, made.rest, dk, dv);
    std::vector<std::vector<float>> all;
    for (const Tensor& x : {made.mass, made.rest, dq, dk, dv}) all.push_back(x.to_vector<float>());
    return all;
  };
  CHECK(results({INT32_MAX, -2, 131, INT32_MIN}) == results({-1}));
}

TEST_CASE("centroid_topk on CUDA has no more keys than ints count in groups", "[centroid_topk][gpu]") {
  AttentionOperands<float> in{};
  in.size.S = int64_t{1} << 30;
  CHECK_ERROR(gpu::centroid_topk_forward<float>({}, in, 1, true, nullptr, nullptr, nullptr, {}),
              "centroid_topk on CUDA: expected fewer than 2^30 queries and keys, got 0 and 1073741824");
}

#endif

TEST_CASE("centroid_topk refuses what it cannot compute", "[centroid_topk]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  const auto of = [&](int64_t top, const Tensor& given = {}) {
    return centroid_topk(x.q, x.k, x.v, top, true, {}, given);
  };
  CHECK_ERROR(of(0), "centroid_topk: top = 0, expected at least 1");
  CHECK_THROWS_AS(of(0), UsageError);
  check_refusals("centroid_topk", heads_and({{"the given top keys", "B H N T", Taken::optional}}),
                 {x.q, x.k, x.v, Tensor::zeros({2, 3, 4, 1}, DType::int32)},
                 [](const Tensors& t) { centroid_topk(t[0], t[1], t[2], 1, true, {}, t[3]); });
  const CentroidTopK r = of(1);
  check_refusals("centroid_topk", heads_and({{"the gradient of mass", "B H N"}, {"the gradient of rest", "B N H M"}}),
                 {x.q, x.k, x.v, r.mass, r.rest}, [&](const Tensors& t) {
                   Tensor dk = zeros_like(x.k), dv = zeros_like(x.v);
                   centroid_topk_backward(t[0], t[1], t[2], {}, r, t[3], t[4], dk, dv);
                 });
  CHECK_ERROR(of(2, Tensor({2, 3, 4, 1}, DType::int32)), "centroid_topk: top = 2, but 1 top keys are given");
  CHECK_ERROR(of(1, Tensor::full({2, 3, 4, 1}, 5, DType::int32)), "centroid_topk: topk[0] is 5, expected -1 to 4");
  for (int32_t second : {0, 1}) {  // equal and falling: neither rises
    Tensor keys = Tensor::full({2, 3, 4, 2}, -1, DType::int32);
    keys.mutable_data<int32_t>()[6] = 1, keys.mutable_data<int32_t>()[7] = second;
    CHECK_ERROR(of(2, keys), "centroid_topk: expected top keys to rise and then be -1, got 1 before");
    keys.mutable_data<int32_t>()[6] = -1;
    CHECK_ERROR(of(2, keys), "centroid_topk: expected top keys to rise and then be -1, got -1 before");
  }
  const Tensor cuda = elsewhere({0, 4, 3, 6});
  CHECK_NEEDS_CUDA(centroid_topk(cuda, cuda, cuda, 1, true, {}), "centroid_topk");
}
