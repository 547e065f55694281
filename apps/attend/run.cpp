#include "apps/attend/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace cairn::attend {
namespace {

// Gives a variant's parameters the numbers of the inputs, where there are some, and lists them.
struct SetParameters : Fields {
  const Attention& attention;
  const Inputs& inputs;
  const RunOptions& options;
  std::vector<NamedParameter> all;

  SetParameters(const Attention& of, const Inputs& in, const RunOptions& how)
      : attention(of), inputs(in), options(how) {}
  using Fields::operator();
  void operator()(const std::string& name, Variable& parameter) override {
    Tensor value = parameter.value();
    if (const auto given = inputs.parameters.find(name); given != inputs.parameters.end()) {
      check<UsageError>(given->second.shape() == value.shape(), "tensor '", name, "': expected ", value.shape(),
                        " for attention '", attention.spec(), "', got ", given->second.shape());
      value = given->second.cast(inputs.q.dtype());
    }
    parameter = Variable(value.to(options.compute.device), options.gradients);
    all.emplace_back(name, parameter);
  }
};

// [B, S, H, columns]: row s of every head has a 1 in column s - first.
Tensor unit_values(const Inputs& in, int64_t first, int64_t columns) {
  Tensor values = Tensor::zeros({in.batches(), in.keys(), in.heads(), columns}, in.q.dtype());
  const auto fill = [&]<class T>(T) {
    T* const x = values.mutable_data<T>();
    for (int64_t b = 0; b < in.batches(); ++b)
      for (int64_t s = first; s < first + columns; ++s)
        for (int64_t h = 0; h < in.heads(); ++h) x[((b * in.keys() + s) * in.heads() + h) * columns + s - first] = 1;
  };
  in.q.dtype() == DType::float64 ? fill(double{}) : fill(float{});
  return values;
}

// Enough for the kernels, and little memory however many keys there are.
constexpr int64_t columns_at_once = 256;

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> doubles(const Tensor& x) { return x.cast(DType::float64).to_vector<double>(); }

}  // namespace

Runner::Runner(const std::string& spec, const Inputs& inputs, const RunOptions& options)
    : inputs_(inputs), options_(options), generator_(options.seed), attention_(make_attention(spec)) {
  const bool shared = attention_->shares_keys();
  check<UsageError>(shared || inputs.k.defined(), "attention '", spec, "' needs keys: the file has no tensor 'k'");
  check<UsageError>(inputs.q.dtype() != DType::float64 || options.compute.device == Device::cpu,
                    "float64 tensors are computed on the CPU: use --device cpu");
  Generator parameters(options.seed);
  attention_->initialize(inputs.heads(), inputs.q.size(3), parameters);
  SetParameters set(*attention_, inputs, options);
  attention_->fields(set);
  parameters_ = set.all;
  for (Tensor AttentionMask::*part :
       {&AttentionMask::query_lengths, &AttentionMask::key_lengths, &AttentionMask::allowed})
    if ((inputs.mask.*part).defined()) mask_.*part = (inputs.mask.*part).to(options.compute.device);
  mask_.causal = inputs.mask.causal;
  given_ = inputs.given.to(options.compute.device);
  if (given_["labels"].defined()) {
    Tensor labels = inputs.given["labels"].clone();  // queries beyond their length join no cluster
    for (int64_t row = 0; mask_.query_lengths.defined() && row < labels.elements(); ++row)
      if (row % inputs.queries() >=
          inputs.mask.query_lengths.data<int32_t>()[row / (inputs.queries() * inputs.heads())])
        labels.mutable_data<int32_t>()[row] = -1;
    given_.tensors["labels"] = labels.to(options.compute.device);
  }
  const auto leaf = [&](const Tensor& x) { return Variable(place(x), options.gradients); };
  q_ = leaf(inputs.q), v_ = leaf(inputs.v);
  k_ = inputs.k.defined() && !shared ? leaf(inputs.k) : q_;
}

Tensor Runner::place(const Tensor& x) const {
  return (x.dtype() == DType::float32 ? x.cast(options_.compute.activations) : x).to(options_.compute.device);
}

Tensor Runner::back(const Tensor& x) const {
  return x.defined() ? x.to(Device::cpu).cast(inputs_.q.dtype()) : Tensor();
}

Outcome Runner::run() {
  Outcome outcome;
  Tensor gradient = inputs_.grad_out;
  if (options_.gradients) {
    if (!gradient.defined())
      gradient = Tensor::full({inputs_.batches(), inputs_.queries(), inputs_.heads(), inputs_.v.size(3)}, 1,
                              inputs_.q.dtype());
    gradient = place(gradient);
  }
  std::vector<double> seconds;
  for (int64_t i = 0; i < options_.repeat; ++i) {
    for (Variable x : {q_, k_, v_}) x.clear_grad();
    for (auto& [name, parameter] : parameters_) parameter.clear_grad();
    outcome.made = {};
    AttentionContext context;
    context.generator = &generator_;
    context.replay = &given_;
    context.report = &outcome.made;
    const auto start = std::chrono::steady_clock::now();
    const Variable out = (*attention_)(q_, k_, v_, mask_, context);
    if (options_.gradients) backward(out, gradient);
    out.value().to(Device::cpu);  // waits for the device
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    outcome.out = back(out.value());
  }
  if (inputs_.given["labels"].defined() && outcome.made["labels"].defined())
    for (const int32_t label : inputs_.given["labels"].to_vector<int32_t>())
      check<DataError>(label < outcome.made.numbers["clusters"], "tensor 'labels': expected numbers from -1 to ",
                       outcome.made.numbers["clusters"] - 1, " for attention '", spec(), "', got ", label);
  std::sort(seconds.begin(), seconds.end());
  outcome.seconds = seconds[seconds.size() / 2];
  if (!options_.gradients) return outcome;
  // A gradient that nothing flowed into is one of zeros.
  const auto gradient_of = [&](const Variable& x) {
    return x.grad().defined() ? back(x.grad()) : Tensor::zeros(x.shape(), inputs_.q.dtype());
  };
  outcome.grad_q = gradient_of(q_), outcome.grad_v = gradient_of(v_);
  if (!attention_->shares_keys()) outcome.grad_k = gradient_of(k_);
  for (const auto& [name, parameter] : parameters_) outcome.grad_parameters.emplace_back(name, gradient_of(parameter));
  return outcome;
}

Tensor Runner::apply(const Tensor& values) const {
  const NoGrad no_grad;
  AttentionContext context;
  context.generator = &generator_;
  context.replay = &given_;
  const Variable q(q_.value()), k(k_.value());
  return back((*attention_)(q, k, Variable(place(values)), mask_, context).value());
}

Distance distance(const Inputs& inputs, const Runner& runner, const Tensor& out, const Runner& other,
                  const Tensor& other_out) {
  const auto a = doubles(out), b = doubles(other_out);
  std::vector<double> between(a.size());
  for (size_t i = 0; i < a.size(); ++i) between[i] = a[i] - b[i];
  double sum = 0;
  for (int64_t first = 0; first < inputs.keys(); first += columns_at_once) {
    const Tensor units = unit_values(inputs, first, std::min(columns_at_once, inputs.keys() - first));
    const auto x = doubles(runner.apply(units)), y = doubles(other.apply(units));
    for (size_t i = 0; i < x.size(); ++i) sum += std::abs(x[i] - y[i]);
  }
  int64_t rows = 0;
  for (int64_t i = 0; i < inputs.batches(); ++i)
    rows += inputs.heads() *
            (inputs.mask.query_lengths.defined() ? inputs.mask.query_lengths.data<int32_t>()[i] : inputs.queries());
  return {rows > 0 ? sum / double(rows) : NAN, norm(b) > 0 ? norm(between) / norm(b) : NAN};
}

HeadWeights dense_weights(const Inputs& inputs, const Runner& runner, int64_t heads) {
  const int64_t N = inputs.queries(), S = inputs.keys(), H = inputs.heads();
  HeadWeights weights(size_t(heads), std::vector<double>(size_t(N * S)));
  for (int64_t first = 0; first < S; first += columns_at_once) {
    const int64_t columns = std::min(columns_at_once, S - first);
    const auto x = doubles(runner.apply(unit_values(inputs, first, columns)));
    for (int64_t i = 0; i < N; ++i)
      for (int64_t h = 0; h < heads; ++h)
        std::copy_n(x.begin() + (i * H + h) * columns, columns, weights[size_t(h)].begin() + i * S + first);
  }
  return weights;
}

}  // namespace cairn::attend
