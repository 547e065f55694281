// Cases of parity.h: full attention.
#include <algorithm>
#include <cmath>

#include "core/attention_ops.h"
#include "tests/cuda/parity.h"
#if CAIRN_CUDA_HOST
#include "cuda/emulator/host_cuda.h"
#endif

namespace cairn::test {
namespace {

struct Sizes {
  int64_t B, H, N, S, D, M;
};

std::string label(const char* what, const Sizes& s) {
  return std::string(what) + " B=" + std::to_string(s.B) + " H=" + std::to_string(s.H) + " N=" + std::to_string(s.N) +
         " S=" + std::to_string(s.S) + " D=" + std::to_string(s.D) + " M=" + std::to_string(s.M);
}

// What is masked, and how much is dropped.
struct Conditions {
  const char* name = "plain";
  bool lengths = false, causal = false;
  Shape allowed{0};  // of the boolean mask, 0: that of the sizes; {0}: there is none
  double dropout = 0, scale = 0;
  Pattern pattern{};
};

AttentionMask mask_of(const Bench& bench, const Sizes& s, const Conditions& conditions) {
  AttentionMask mask;
  mask.causal = conditions.causal;
  mask.pattern = conditions.pattern;
  if (conditions.lengths) {
    // None, some, and all that there are.
    std::vector<int32_t> queries, keys;
    for (int64_t b = 0; b < s.B; ++b) {
      queries.push_back(int32_t(s.N * ((b + 2) % 4) / 3));
      keys.push_back(int32_t(s.S * (b % 3) / 2));
    }
    mask.query_lengths = Tensor::from(queries, {s.B}).to(bench.device);
    mask.key_lengths = Tensor::from(keys, {s.B}).to(bench.device);
  }
  if (conditions.allowed.rank() > 1) {
    const int64_t full[4] = {s.B, s.H, s.N, s.S};
    Shape shape = conditions.allowed;
    for (int i = 0; i < shape.rank(); ++i)
      if (shape[i] == 0) shape = shape.with(i, full[4 - shape.rank() + i]);
    mask.allowed = bench.integers(shape, 0, 2, 5).cast(DType::boolean);
    // Query 1 (where the mask tells queries apart) has no key left.
    if (shape[-2] > 1) {
      Tensor host = mask.allowed.to(Device::cpu);
      std::fill_n(host.mutable_data<bool>() + shape[-1], shape[-1], false);
      mask.allowed = host.to(bench.device);
    }
  }
  return mask;
}

struct Inputs {
  Tensor q, k, v, dout;
  Inputs(const Bench& bench, const Sizes& s)
      : q(bench.normal({s.B, s.N, s.H, s.D}, 1)),
        k(bench.normal({s.B, s.S, s.H, s.D}, 2)),
        v(bench.uniform({s.B, s.S, s.H, s.M}, -1, 1, 3)),
        dout(bench.uniform({s.B, s.N, s.H, s.M}, -1, 1, 4)) {}

  Results run(const AttentionOptions& options) const {
    const AttentionResult forward = attention(q, k, v, options);
    const AttentionGradient g = attention_backward(q, k, v, options, forward, dout);
    return {{"out", forward.out}, {"logsumexp", forward.logsumexp}, {"dq", g.dq}, {"dk", g.dk}, {"dv", g.dv}};
  }
};

// Which of the kernels are asked for.
enum class Form {
  usual,       // tensor cores for bfloat16, if the device has them
  older,       // on the emulator, bfloat16 as on a device without
  float_tf32,  // tensor cores for float32 too
};

class WithForm {
 public:
  explicit WithForm(Form form) {
    if (form == Form::float_tf32) set_float32_products(Float32Products::tf32);
#if CAIRN_CUDA_HOST
    if (form == Form::older) architecture_ = host_cuda::claim_architecture(75);
#endif
  }
  ~WithForm() {
    set_float32_products(products_);
#if CAIRN_CUDA_HOST
    if (architecture_) host_cuda::claim_architecture(architecture_);
#endif
  }
  WithForm(const WithForm&) = delete;
  WithForm& operator=(const WithForm&) = delete;

 private:
  Float32Products products_ = float32_products();
  int architecture_ = 0;
};

constexpr Form every_form[] = {Form::usual, Form::older, Form::float_tf32};

// A run that the form makes no difference to has no results.
Case in_form(Form form, const std::string& name, std::function<Results(const Bench&)> run) {
  const char* const names[] = {"", ", older device", ", TF32"};
  return {name + names[int(form)],
          [=](const Bench& bench) -> Results {
            if (form == (bench.rounded ? Form::float_tf32 : Form::older)) return {};
            const WithForm with(form);
            return run(bench);
          },
          false, form == Form::float_tf32 ? tolerance::tf32 : tolerance::float32};
}

Case parity(const Sizes& s, const Conditions& conditions, Form form = Form::usual) {
  return in_form(form, label(conditions.name, s), [=](const Bench& bench) {
    const Generator generator(7, bench.device);
    return Inputs(bench, s).run({mask_of(bench, s, conditions),
                                 {conditions.dropout, generator.draw(3, Purpose::attention_dropout)},
                                 conditions.scale});
  });
}

// Values that make the output the factors of dropout, and a gradient that makes dv their transpose.
Results dropped_weights(const Bench& bench) {
  const int64_t n = 72;
  std::vector<float> identity(size_t(n * n));
  for (int64_t i = 0; i < n; ++i) identity[size_t(i * n + i)] = 1;
  const Tensor zeros = bench.place(Tensor::zeros({1, n, 1, 8})), v = bench.place(Tensor::from(identity, {1, n, 1, n}));
  const Generator generator(8, bench.device);
  const AttentionOptions options{{}, {0.5, generator.draw(1, Purpose::attention_dropout)}, 0};
  const AttentionResult forward = attention(zeros, zeros, v, options);
  const AttentionGradient g = attention_backward(zeros, zeros, v, options, forward, v);
  return {{"kept", forward.out.cast(DType::boolean)}, {"kept of dv", g.dv.cast(DType::boolean)}};
}

// Results with those of batch element 0, head 1 left out, one of whose numbers is bad.
Results with_bad_number(const Bench& bench, int operand, float bad) {
  const Sizes s{2, 2, 40, 70, 8, 8};
  Inputs in(bench, s);
  Tensor* const tensors[] = {&in.q, &in.k, &in.v, &in.dout};
  Tensor host = tensors[operand]->to(Device::cpu).cast(DType::float32);
  host.mutable_data<float>()[(3 * s.H + 1) * 8 + 5] = bad;  // of row 3
  *tensors[operand] = bench.place(host);
  Results results = in.run({});
  for (auto& [name, result] : results) {
    result = result.to(Device::cpu).cast(DType::float32);
    float* const x = result.mutable_data<float>();
    for (int64_t i = 0; i < result.elements() / 2; ++i)  // of batch element 0: [N, H, 8], or logsumexp, [H, N]
      if (result.rank() == 4 ? i / 8 % 2 == 1 : i / s.N == 1) x[i] = 0;
  }
  return results;
}

Results with_nan_beyond_lengths(const Bench& bench) {
  const Sizes s{1, 2, 150, 150, 8, 8};
  AttentionOptions options;
  options.mask.query_lengths = Tensor::from(std::vector<int32_t>{70}, {1}).to(bench.device);
  options.mask.key_lengths = Tensor::from(std::vector<int32_t>{67}, {1}).to(bench.device);
  Inputs in(bench, s);
  for (Tensor* x : {&in.q, &in.k, &in.v, &in.dout}) {
    Tensor host = x->to(Device::cpu).cast(DType::float32);
    const int64_t valid = x == &in.q || x == &in.dout ? 70 : 67;
    std::fill(host.mutable_data<float>() + valid * s.H * 8, host.mutable_data<float>() + host.elements(), NAN);
    *x = bench.place(host);
  }
  return in.run(options);
}

// Results far away from row 450 of an operand, which is NaN: it spoils the tiles that read it, and in the gradients
// those that read these, but tiles outside of the window are not read.
Results with_nan_far_away(const Bench& bench, int operand, bool causal) {
  const Sizes s{1, 1, 900, 900, 8, 8};
  Inputs in(bench, s);
  Tensor* const tensors[] = {&in.q, &in.k, &in.v, &in.dout};
  Tensor host = tensors[operand]->to(Device::cpu).cast(DType::float32);
  std::fill_n(host.mutable_data<float>() + 450 * 8, 8, NAN);
  *tensors[operand] = bench.place(host);
  AttentionOptions options;
  options.mask.causal = causal;
  options.mask.pattern.window = 5;
  Results results = in.run(options);
  for (auto& [name, result] : results) {
    result = result.to(Device::cpu).cast(DType::float32);
    const int64_t row = result.elements() / 900;
    std::fill_n(result.mutable_data<float>() + 60 * row, 780 * row, 0);
  }
  return results;
}

}  // namespace

void add_attention(std::vector<Case>& cases) {
  // None, one and a few of everything; primes; one more and one less than tiles have; other numbers of keys than of
  // queries, other sizes of values than of keys.
  for (const Sizes& s : std::vector<Sizes>{{0, 2, 3, 3, 2, 2},
                                           {2, 0, 3, 3, 2, 2},
                                           {2, 2, 0, 3, 2, 2},
                                           {2, 2, 3, 0, 2, 2},
                                           {2, 2, 3, 4, 0, 2},
                                           {2, 2, 3, 4, 2, 0},
                                           {1, 1, 1, 1, 1, 1},
                                           {3, 2, 5, 7, 4, 6},
                                           {2, 3, 31, 17, 3, 5},
                                           {1, 2, 67, 131, 5, 40},
                                           {1, 1, 64, 128, 32, 32},
                                           {1, 2, 65, 63, 64, 64},
                                           {1, 1, 37, 70, 40, 16},
                                           {1, 1, 70, 37, 128, 128},
                                           {1, 1, 19, 67, 136, 260}})
    cases.push_back(parity(s, {}));
  const Conditions conditions[] = {{"lengths", true},
                                   {"causal", false, true},
                                   {"a mask", false, false, {0, 0, 0, 0}},
                                   {"a mask of keys", false, false, {1, 0}},
                                   {"a mask of heads and queries", false, false, {0, 0, 1}},
                                   {"a mask of batch and queries and keys", false, false, {0, 1, 0, 0}},
                                   {"everything", true, true, {0, 1, 0, 0}, 0.3},
                                   {"dropout", false, false, {0}, 0.25},
                                   {"dropout of everything", false, false, {0}, 1},
                                   {"a scale", false, false, {0}, 0, -0.75},
                                   {"a window", false, false, {0}, 0, 0, {3}},
                                   {"everything and a pattern", true, true, {0, 1, 0, 0}, 0.3, 0, {2, 5, 1}}};
  for (const Conditions& each : conditions) {
    cases.push_back(parity({4, 2, 5, 6, 4, 3}, each));
    for (const Form form : every_form) cases.push_back(parity({3, 1, 70, 66, 16, 24}, each, form));
  }
  // Every size of rows that tensor cores have kernels for, more than one tile of queries and of keys.
  for (const Sizes& s : std::vector<Sizes>{{1, 2, 1, 1, 8, 8}, {2, 1, 33, 70, 40, 64}, {1, 1, 140, 67, 128, 72}})
    for (const Form form : {Form::usual, Form::float_tf32}) {
      cases.push_back(parity(s, {}, form));
      cases.push_back(parity(s, conditions[6], form));
    }
  for (const Form form : {Form::usual, Form::float_tf32})
    cases.push_back(parity({1, 1, 130, 146, 8, 8}, {"causal", false, true}, form));

  // Windows and strides that leave out tiles in the middle, beginning and ending within tiles.
  for (const Form form : every_form) {
    cases.push_back(parity({1, 1, 300, 300, 8, 8}, {"a window", false, false, {0}, 0.2, 0, {30}}, form));
    cases.push_back(parity({1, 1, 300, 280, 8, 8}, {"a stride", false, false, {0}, 0, 0, {7, 131}}, form));
    cases.push_back(parity({1, 1, 290, 300, 8, 8}, {"a causal stride", false, true, {0}, 0.2, 0, {7, 131, 3}}, form));
  }
  cases.push_back(parity({1, 1, 290, 300, 8, 8}, {"global positions", false, false, {0}, 0, 0, {2, 0, 70}}));
  cases.push_back(parity({1, 1, 70, 66, 8, 8}, {"a very wide window", false, false, {0}, 0, 0, {2147483647}}));

  for (const Form form : every_form) {
    cases.push_back(in_form(form, "which weights are dropped", dropped_weights));
    cases.push_back(in_form(form, "attention never looks beyond the lengths", with_nan_beyond_lengths));
    for (const bool causal : {false, true})
      cases.push_back(
          in_form(form, std::string("attention leaves out tiles outside of a window") + (causal ? ", causal" : ""),
                  [=](const Bench& bench) {
                    Results results;
                    for (const int operand : {0, 1, 2, 3})
                      for (const Result& result : with_nan_far_away(bench, operand, causal)) results.push_back(result);
                    return results;
                  }));
    for (const int operand : {0, 1, 2, 3})
      for (const float bad : {NAN, -INFINITY})
        cases.push_back(in_form(
            form,
            std::to_string(bad) + " in operand " + std::to_string(operand) + " stays within its batch element and head",
            [=](const Bench& bench) { return with_bad_number(bench, operand, bad); }));
  }
  cases.push_back({"attention of one variable, with gradients", [](const Bench& bench) {
                     const Variable x = bench.variable(bench.uniform({2, 11, 2, 8}, -1, 1));
                     return with_gradients(bench, attention(x, x, x), {{"x", x}});
                   }});
}

}  // namespace cairn::test
