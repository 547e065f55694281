#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "tests/ops/attention_test.h"

namespace {

// Bytes from `new` that are alive in this program, and the most that were alive at once. (Tensors take no `new`.)
std::atomic<int64_t> heap, heap_peak;

}  // namespace

#if !CAIRN_SANITIZED  // sanitizers have their own
#include <malloc.h>

#include <new>

void* operator new(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (!block) throw std::bad_alloc();
  const int64_t now = heap += int64_t(malloc_usable_size(block));
  for (int64_t peak = heap_peak; peak < now && !heap_peak.compare_exchange_weak(peak, now);) {
  }
  return block;
}
void operator delete(void* block) noexcept {
  heap -= int64_t(malloc_usable_size(block));
  std::free(block);
}
void operator delete(void* block, size_t) noexcept { operator delete(block); }
#endif

namespace {

// None and one of everything, odd sizes, and about one and more than one tile of queries (128) and of keys (512; in
// backward 256).
std::vector<HeadSizes> every_size() {
  return {{1, 1, 1, 1, 1, 1},     {3, 2, 5, 7, 4, 6},    {0, 2, 3, 3, 2, 2},      {2, 0, 3, 3, 2, 2},
          {2, 2, 0, 3, 2, 2},     {2, 2, 3, 0, 2, 2},    {2, 2, 3, 4, 0, 2},      {2, 2, 3, 4, 2, 0},
          {2, 2, 5, 600, 2, 2},   {2, 3, 31, 17, 3, 5},  {1, 1, 260, 1100, 3, 2}, {1, 2, 128, 512, 2, 3},
          {2, 1, 129, 513, 3, 2}, {9, 1, 130, 257, 2, 2}};
}

}  // namespace

TEST_CASE("attention is exact for scores so large that exponentials overflow", "[attention]") {
  const HeadSizes s{1, 1, 140, 1030, 2, 3};
  Operands x(s, DType::float64);
  x.q = affine(x.q, 1000).value();
  const BatchHeads weights = reference_weights(reference_scores(x.q, x.k, {}));
  CHECK(difference(attention(x.q, x.k, x.v).value(), times_values(weights, x.v)) <= 1000 * tolerance::float64);
}

TEST_CASE("gradient of attention where queries, keys and values are one variable", "[attention][grad]") {
  CHECK_GRADIENT([](const auto& in) { return attention(in[0], in[0], in[0]); }, random_tensor({2, 4, 2, 3}));
}

// A NaN spreads to the queries that read its tile and, in the backward pass, to the keys of these queries. If hidden
// tiles are not read, these are only a few tiles.
TEST_CASE("attention never reads the tiles that a pattern hides", "[attention]") {
  const HeadSizes s{1, 1, 3000, 3000, 2, 3};
  const Tensor g = random_tensor({1, s.N, 1, s.M}, DType::float32, 9);
  for (bool causal : {false, true}) {
    const AttentionOptions options{.mask = {.causal = causal, .pattern = {10}}};
    const auto run = [&](const Operands& x) {
      const AttentionResults r = attention_both_ways(x.q, x.k, x.v, options, g);
      return std::vector<Rows4>{Rows4(r.out), Rows4(r.dq), Rows4(r.dk), Rows4(r.dv)};
    };
    const auto clean = run(Operands(s, DType::float32));
    for (int operand : {0, 1, 2}) {
      INFO("NaN in operand " << operand << (causal ? ", causal" : ""));
      Operands x(s, DType::float32);
      Tensor& t = operand == 0 ? x.q : operand == 1 ? x.k : x.v;
      t.mutable_data<float>()[Rows4(t).at(0, 700, 0, 1)] = NAN;
      const auto result = run(x);
      CHECK(std::isnan(result[0](0, 700, 0, operand == 2 ? 1 : 0)));
      if (causal) CHECK(std::isfinite(result[0](0, 699, 0, 0)));  // it does not see the key
      for (size_t i = 0; i < result.size(); ++i)
        for (int64_t n = 0; n < 3000; ++n)
          if (std::abs(n - 700) > 500) REQUIRE(result[i](0, n, 0, 0) == clean[i](0, n, 0, 0));
    }
  }
}

TEST_CASE("the peak contains the scratch of attention and of its products", "[attention]") {
  const OneThread one_thread;
  const Operands x({1, 1, 300, 700, 8, 8}, DType::float32);
  const MemoryCount before = memory(Device::cpu);  // its scratch is here if another case has run
  reset_peak_memory(Device::cpu);
  attention(x.q, x.k, x.v);
  const int64_t tile = 256 * 512 * sizeof(float), packed = 512 * 384 * sizeof(float);
  CHECK(memory(Device::cpu).peak - (before.live - before.scratch) > tile + packed);
}

TEST_CASE("attention of 8192 tokens never holds the matrix of weights", "[attention]") {
  const HeadSizes s{1, 1, 8192, 8192, 8, 8};
  Operands x(s, DType::float32);
  const Variable q(x.q, true), k(x.k, true), v(x.v, true);
  reset_peak_memory(Device::cpu);
  const int64_t before = memory(Device::cpu).live, heap_before = heap_peak = heap.load();
  const Variable out = attention(q, k, v);
  backward(out, out.value());
  CHECK(memory(Device::cpu).peak - before < 20'000'000);  // the matrix has 268 MB
  const int64_t vectors = heap_peak - heap_before;
  CHECK(vectors < 10'000'000);
  CHECK(q.grad().shape() == q.shape());
}

TEST_CASE("attention refuses what it cannot compute", "[attention]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  const auto with = [&](const AttentionMask& mask) { return attention(x.q, x.k, x.v, {.mask = mask}); };
  CHECK_ERROR(with({.query_lengths = int32s({1, 5})}), "attention: query_lengths[1] is 5, expected 0 to 4");
  CHECK_ERROR(with({.key_lengths = int32s({6, 1})}), "attention: key_lengths[0] is 6, expected 0 to 5");
  CHECK_ERROR(with({.key_lengths = int32s({5, -1})}), "attention: key_lengths[1] is -1, expected 0 to 5");
  CHECK_ERROR(with({.allowed = random_mask({5, 4})}), "attention: shapes [5, 4] and [2, 3, 4, 5] do not broadcast");
  CHECK_ERROR(with({.allowed = random_mask({1, 2, 3, 4, 5})}),
              "attention: a mask of shape [1, 2, 3, 4, 5] does not broadcast to [B, H, N, S] = [2, 3, 4, 5]");
  CHECK_ERROR(with({.pattern = {3, -2}}), "attention: expected a pattern's global positions to be at least 0, got -2");
  CHECK_ERROR(attention(x.q, x.k, x.v, {{}, {1.5, {}}, 0}), "attention: expected a dropout probability, got 1.5");
  CHECK_ERROR(attention(x.q, x.k, x.v, {{}, {NAN, {}}, 0}), "attention: expected a dropout probability, got nan");
  CHECK_ERROR(attention(x.q.cast(DType::bfloat16), x.k.cast(DType::bfloat16), x.v.cast(DType::bfloat16)),
              "attention: bfloat16 is not computed on cpu");
  const Tensor cuda = elsewhere({0, 4, 3, 6});
  CHECK_NEEDS_CUDA(attention(cuda, cuda, cuda), "attention");
}

namespace {

Tensors operands_of(const HeadSizes& s) {
  return {normal({s.B, s.N, s.H, s.D}), normal({s.B, s.S, s.H, s.D}, 2), uniform({s.B, s.S, s.H, s.M}, -1, 1, 3)};
}

// out, logsumexp, dq, dk, dv.
Tensors both_ways(const ParityRun& run, const AttentionOptions& options) {
  const Tensors& t = run.operands;
  const AttentionOptions here{on(t[0].device(), options.mask), options.dropout, options.scale};
  const AttentionResults r = attention_both_ways(t[0], t[1], t[2], here, run.weights[0]);
  return {r.out, r.logsumexp, r.dq, r.dk, r.dv};
}

Case& add(Operation& op, const std::string& name, const Tensors& operands, const AttentionOptions& options = {},
          Form form = Form::usual) {
  Case& test = op.add(name, operands);
  test.form = form;
  test.forward = [options](const Variables& t) {
    return Variables{attention(t[0], t[1], t[2], {on(t[0].device(), options.mask), options.dropout, options.scale})};
  };
  test.reference = [options](const Tensors& t) {
    const BatchHeads weights = reference_weights(reference_scores(t[0], t[1], options));
    const Shape shape = t[0].shape().with(3, t[2].size(3));
    return Tensors{from_doubles(times_values(reference_dropout(weights, options.dropout), t[2]), shape)};
  };
  test.parity = [options](const ParityRun& run) { return both_ways(run, options); };
  return test;
}

// A case without a reference. spoil(x, i) changes operand i (q, k, v; 3: the gradient of the output), and both devices
// must agree on compared(result).
template <class Spoil, class Compared>
Case& add_compared(Operation& op, const std::string& name, Tensors t, const AttentionOptions& options, Form form,
                   Spoil spoil, Compared compared) {
  for (const size_t i : {0, 1, 2}) t[i] = spoil(t[i], i);
  Case& test = add(op, name, t, options, form);
  test.values = test.differences = false;
  test.parity = [=](const ParityRun& run) {
    const Tensor& g = run.weights[0];
    const Tensors weights = {spoil(g.to(Device::cpu).cast(DType::float64), 3).cast(g.dtype()).to(g.device())};
    return both_ways({run.operands, run.on_cpu, weights, run.rounded}, options);
  };
  test.compared = compared;
  return test;
}

Tensor filled(Tensor x, int64_t begin, int64_t end, double value) {
  std::fill(x.mutable_data<double>() + begin, x.mutable_data<double>() + end, value);
  return x;
}

// Which weights are dropped: with q = k = 0 and the identity as values, the output is dropout's factors. The gradient
// of the output has ones alone, so that no sum of theirs is 0 on one device and almost 0 on the other.
void add_dropped(Operation& op, Form form) {
  const int64_t n = 72;
  const Tensor zeros = Tensor::zeros({1, n, 1, 8}, DType::float64);
  add_compared(
      op, "which weights are dropped", {zeros, zeros, identity_values(1, n, 1, DType::float64)},
      {.dropout = test_dropout(0.5)}, form,
      [](const Tensor& x, size_t i) { return i == 3 ? Tensor::full(x.shape(), 1, x.dtype()) : x; },
      [](const Tensor& x) { return x.cast(DType::boolean); });
}

// NaN beyond the lengths changes nothing.
void add_nan_beyond_lengths(Operation& op, Form form) {
  Case& test = add_compared(
      op, "never looks beyond the lengths", operands_of({1, 2, 150, 530, 8, 8}),
      {.mask = {.query_lengths = int32s({70}), .key_lengths = int32s({67})}}, form,
      [](const Tensor& x, size_t i) { return filled(x, (i % 3 == 0 ? 70 : 67) * 2 * 8, x.elements(), NAN); },
      [](const Tensor& x) { return x; });
  test.values = test.differences = true;
}

// Row 450 of an operand is NaN. It spoils the tiles that read it, and in the gradients the tiles that read these. Rows
// far away stay clean, because tiles outside of the window are not read.
void add_nan_far_away(Operation& op, bool causal, Form form) {
  for (const size_t operand : {0, 1, 2, 3})
    add_compared(
        op, concat("skips tiles outside of a window", causal ? ", causal" : ""), operands_of({1, 1, 900, 900, 8, 8}),
        {.mask = {.causal = causal, .pattern = {5}}}, form,
        [=](const Tensor& x, size_t i) { return i == operand ? filled(x, 450 * 8, 451 * 8, NAN) : x; },
        [](Tensor x) {
          const int64_t row = x.elements() / 900;
          std::fill_n(x.mutable_data<float>() + 60 * row, 780 * row, 0);
          return x;
        });
}

// A bad number in batch element 0, row 3, head 1 changes no other head.
void add_bad_number(Operation& op, size_t operand, double bad, Form form) {
  add_compared(
      op, concat(bad, " in operand ", operand, " stays within its head"), operands_of({2, 2, 40, 70, 8, 8}), {}, form,
      [=](const Tensor& x, size_t i) {
        return i == operand ? with(x, {{(3 * 2 + 1) * 8 + 5, bad}}) : x;
      },
      [](const Tensor& x) { return without_head_1(x); });
}

}  // namespace

OPERATION("attention") {
  op.takes = heads_and(mask_operands);
  op.rounds_once = op.same_bits_anywhere = false;  // weights are rounded too, and tensor cores need aligned rows
  const auto add_masked = [&](const HeadSizes& s, const std::string& kind, const AttentionMask& mask,
                              double dropout = 0, Form form = Form::usual, double scale = 0) -> Case& {
    return add(op, concat(s, " masked by ", kind, ", dropout ", dropout, ", scale ", scale), operands_of(s),
               {mask, test_dropout(dropout), scale}, form);
  };
  // The tests change the tensors of the first case: the gradient reads all of them, and the result.
  const HeadSizes first{2, 2, 3, 4, 3, 3};
  const AttentionMask all = every_way_masked(first);
  Case& changed = add_masked(first, "everything", all);
  changed.operands.insert(changed.operands.end(), {all.query_lengths, all.key_lengths, all.allowed});
  changed.forward = [](const Variables& t) {
    return Variables{attention(t[0], t[1], t[2], {.mask = causal_mask(t[3].value(), t[4].value(), t[5].value())})};
  };
  op.backward_reads = {0, 1, 2, 3, 4, 5};
  op.backward_reads_results = true;

  for (const HeadSizes& s : every_size())
    for (const auto& [kind, mask] : every_mask(s))
      for (const double dropout : {0.0, 0.3})
        add_masked(s, kind, mask, dropout).on_cuda = s.S <= 7 && kind == "nothing" && dropout == 0;
  for (const double scale : {1.0, 0.125, -2.0}) add_masked({2, 2, 5, 6, 4, 3}, "nothing", {}, 0, Form::usual, scale);
  add_masked({1, 2, 150, 600, 7, 5}, "nothing", {}, 0.1).on_cuda = false;  // keys in parts, backward
  // Primes; one more and one less than a tile has; numbers of keys that differ from those of queries, and sizes of
  // values that differ from those of keys.
  for (const HeadSizes& s : {HeadSizes{2, 3, 31, 17, 3, 5},
                             {1, 2, 67, 131, 5, 40},
                             {1, 1, 64, 128, 32, 32},
                             {1, 2, 65, 63, 64, 64},
                             {1, 1, 37, 70, 40, 16},
                             {1, 1, 70, 37, 128, 128},
                             {1, 1, 19, 67, 136, 260}})
    add_masked(s, "nothing", {});
  const HeadSizes small{4, 2, 5, 6, 4, 3}, tiled{3, 1, 70, 66, 16, 24};
  for (const auto& [kind, mask] : every_mask(small)) add_masked(small, kind, mask, mask.causal ? 0.3 : 0);
  for (const Form form : every_form) {
    for (const auto& [kind, mask] : every_mask(tiled, true)) add_masked(tiled, kind, mask, mask.causal ? 0.3 : 0, form);
    for (const double dropout : {0.25, 1.0}) add_masked(tiled, "nothing", {}, dropout, form);
    add_masked(tiled, "nothing", {}, 0, form, -0.75);
    // Windows and strides that leave out tiles in the middle, beginning and ending within tiles.
    add_masked({1, 1, 300, 300, 8, 8}, "a window", {.pattern = {30}}, 0.2, form);
    add_masked({1, 1, 300, 280, 8, 8}, "a window without itself", {.pattern = {70, 0, false}}, 0, form);
    add_masked({1, 1, 290, 300, 8, 8}, "a causal window", {.causal = true, .pattern = {7, 3}}, 0.2, form);
  }
  add_masked({1, 1, 290, 300, 8, 8}, "global positions", {.pattern = {2, 70}});
  add_masked({1, 1, 70, 66, 8, 8}, "a very wide window", {.pattern = {2147483647}});
  // Every row size for which there are tensor-core kernels; more than one tile of queries and of keys.
  for (const Form form : every_form) {
    for (const HeadSizes& s : {HeadSizes{1, 2, 1, 1, 8, 8}, {2, 1, 33, 70, 40, 64}, {1, 1, 140, 67, 128, 72}}) {
      add_masked(s, "nothing", {}, 0, form);
      add_masked(s, "everything", every_way_masked(s), 0.3, form);
    }
    add_masked({1, 1, 130, 146, 8, 8}, "causal", {.causal = true}, 0, form);
  }
  // Few queries and many keys: the tensor-core kernels split the keys. Some queries have no visible key.
  const HeadSizes few{2, 1, 5, 1100, 16, 24};
  for (const Form form : every_form) {
    add_masked(few, "nothing", {}, 0.2, form);
    add_masked(few, "key lengths", {.key_lengths = int32s({600, 0})}, 0, form);
    const AttentionMask mask{
        .query_lengths = int32s({5, 3}), .key_lengths = int32s({1100, 700}), .allowed = random_mask({5, 1100})};
    add_masked(few, "lengths, query and key", mask, 0, form);
  }
  // A tile of hidden keys, then scores so low that their exponentials are 0 unless their own maximum is subtracted.
  Tensor late = Tensor::full({600}, 1, DType::boolean);
  std::fill_n(late.mutable_data<bool>(), 512, false);
  const Tensor q = Tensor::full({1, 3, 1, 8}, -5, DType::float64), k = Tensor::full({1, 600, 1, 8}, 10, DType::float64);
  add(op, "scores of -400 after hidden keys", {q, k, normal({1, 600, 1, 8})}, {{.allowed = late}, {}, 1}).on_cuda =
      false;
  for (const Form form : every_form) {
    add_dropped(op, form);
    add_nan_beyond_lengths(op, form);
    for (const bool causal : {false, true}) add_nan_far_away(op, causal, form);
    for (const size_t operand : {0, 1, 2, 3})
      for (const double bad : {double(NAN), -double(INFINITY)}) add_bad_number(op, operand, bad, form);
  }
}

#if CAIRN_HAS_CUDA

// Everything that attention computes, as float32.
static std::vector<float> results(const HeadSizes& s, DType dtype, const AttentionOptions& options) {
  Tensors t = operands_of(s);
  t.push_back(normal({s.B, s.N, s.H, s.M}, 4));
  for (Tensor& x : t) x = x.cast(dtype).to(Device::cuda);
  std::vector<float> all;
  for (const Tensor& result : both_ways({t, t, {t[3]}, false}, options)) {
    const auto values = result.to(Device::cpu).cast(DType::float32).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
// Of two tiles of queries and of keys, with dropout.
static std::vector<float> results(Form form, DType dtype) {
  const WithForm with(form);
  return results({2, 2, 70, 67, 16, 16}, dtype, {{.causal = true}, test_dropout(0.2), 0});
}

TEST_CASE("attention on CUDA gives the same bits every time", "[gpu]") {
  for (const auto& [form, dtype] :
       {std::pair{Form::usual, DType::float32}, {Form::usual, DType::bfloat16}, {Form::older, DType::float32}}) {
    const auto first = results(form, dtype);
    in_every_order([&, form = form, dtype = dtype] { CHECK(results(form, dtype) == first); });
  }
}

// With whole tiles and without a mask, bfloat16 has kernels of its own. In the last case the keys are split.
TEST_CASE("attention on CUDA gives the same bits with a mask that hides nothing", "[gpu]") {
  const AttentionOptions masked{.mask = {.allowed = Tensor::full({1}, 1, DType::boolean)}};
  for (const HeadSizes& s : {HeadSizes{1, 2, 256, 128, 32, 32},
                             {1, 1, 64, 128, 128, 128},
                             {2, 1, 128, 384, 64, 64},
                             {1, 1, 128, 512, 64, 64}})
    CHECK(results(s, DType::bfloat16, {}) == results(s, DType::bfloat16, masked));
}

#if CAIRN_CUDA_HOST
TEST_CASE("attention on CUDA takes tensor cores where it may", "[gpu]") {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    CHECK(results(Form::older, dtype) != results(Form::usual, dtype));
}
#endif

#endif
