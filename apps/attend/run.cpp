#include "apps/attend/run.h"

#include <algorithm>

#include "apps/common/progress.h"

namespace cairn::attend {

Runner::Runner(const std::string& spec, const Inputs& inputs, const RunOptions& options)
    : inputs_(inputs), options_(options), generator_(options.seed), attention_(make_attention(spec)) {
  const bool shared = attention_->shares_keys();
  check<UsageError>(shared || inputs.k.defined(), "attention '", spec, "' needs keys: the file has no tensor 'k'");
  check<UsageError>(inputs.q.dtype() != DType::float64 || options.compute.device == Device::cpu,
                    "float64 tensors are computed on the CPU: use --device cpu");
  attention_->initialize(inputs.heads(), inputs.q.size(3), generator_);
  parameters_ = named_parameters(*attention_);
  for (auto& [name, parameter] : parameters_)
    if (const Tensor* given = inputs.file.find(name)) {
      check<UsageError>(given->shape() == parameter.shape(), "tensor '", name, "': expected ", parameter.shape(),
                        " for attention '", spec, "', got ", given->shape());
      parameter.mutable_value() = given->cast(inputs.q.dtype());
    }
  move_to(*attention_, options.compute.device);
  mask_ = inputs.mask;
  for (Tensor* part : {&mask_.query_lengths, &mask_.key_lengths, &mask_.allowed})
    if (part->defined()) *part = part->to(options.compute.device);
  given_ = inputs.given.to(options.compute.device);
  const int64_t clusters = attention_->clusters();
  if (clusters == 0) given_.labels = {};  // they have no use
  if (given_.labels.defined())
    for (const int32_t label : inputs.given.labels.to_vector<int32_t>())
      check<DataError>(label < clusters, inputs.file.where, ": tensor 'labels': expected numbers from -1 to ",
                       clusters - 1, " for attention '", spec, "', got ", label);
  const auto leaf = [&](const Tensor& x) { return Variable(place(x), options.gradients); };
  q_ = leaf(inputs.q);
  k_ = shared ? q_ : leaf(inputs.k);
  v_ = leaf(inputs.v);
  run();
}

Tensor Runner::place(const Tensor& x) const {
  return (x.dtype() == DType::float32 ? x.cast(options_.compute.activations) : x).to(options_.compute.device);
}

Tensor Runner::back(const Tensor& x) const { return x.to(Device::cpu).cast(inputs_.q.dtype()); }

void Runner::run() {
  Tensor gradient = inputs_.grad_out;
  if (options_.gradients) {
    const Shape shape = inputs_.q.shape().with(3, inputs_.v.size(3));
    gradient = place(gradient.defined() ? gradient : Tensor::full(shape, 1, inputs_.q.dtype()));
  }
  NamedVariables leaves = {{"q", q_}, {"k", k_}, {"v", v_}};
  if (attention_->shares_keys()) leaves.erase(leaves.begin() + 1);
  leaves.insert(leaves.end(), parameters_.begin(), parameters_.end());
  std::vector<double> times;
  for (double total = 0; times.size() < 5 && total < 1; total += times.back()) {
    for (auto& [name, leaf] : leaves) leaf.clear_grad();
    made = given_;
    const Stopwatch time;
    const Variable result = (*attention_)(q_, k_, v_, mask_, {{.generator = &generator_}, &made});
    if (options_.gradients) backward(result, gradient);
    const Tensor on_cpu = result.value().to(Device::cpu);  // waits for the device
    times.push_back(time.seconds());
    out = back(on_cpu);
  }
  made = made.to(Device::cpu);
  std::sort(times.begin(), times.end());
  seconds = times[times.size() / 2];
  if (!options_.gradients) return;
  for (const auto& [name, leaf] : leaves)  // a gradient that no operation added to is zero
    gradients.emplace_back(name,
                           leaf.grad().defined() ? back(leaf.grad()) : Tensor::zeros(leaf.shape(), inputs_.q.dtype()));
}

// The output is W v, so the gradient of v is W^T times that of the output. If column m of the output's gradient is the
// unit vector of query i, then column m of v's gradient is row i of W.
Tensor Runner::weights(const std::vector<int64_t>& rows) const {
  const auto R = int64_t(rows.size());
  const Device device = options_.compute.device;
  Tensor positions = Tensor::from(std::vector<int32_t>(rows.begin(), rows.end()), {R}).to(device);
  Tensor q = q_.value();
  AttentionMask mask = mask_;
  const bool full = parse_attention(attention_->spec()).variant->name == std::string("full");
  if (full && !mask.allowed.defined()) {  // its rows do not depend on other queries
    std::vector<Variable> chosen;
    for (const int64_t row : rows) chosen.push_back(slice(q, 1, row, row + 1));
    q = concat(chosen, 1).value();
    std::vector<int32_t> lengths;  // rows rise
    for (int64_t b = 0; b < inputs_.batches(); ++b) lengths.push_back(int32_t(inputs_.valid_of(rows, b)));
    mask.query_lengths = Tensor::from(lengths, {inputs_.batches()}).to(device);
    if (mask.causal)
      mask.allowed = compare(Compare::less_equal, arange(inputs_.keys(), device), positions.reshape({R, 1}));
    mask.causal = false;  // the rows have new positions
    positions = arange(R, device);
  }
  const Tensor unit = compare(Compare::equal, arange(q.size(1), device).reshape({q.size(1), 1, 1}), positions);
  const Variable v(Tensor::zeros(v_.value().shape().with(3, R), q.dtype(), device), true);
  const Variable fixed_q(q), fixed_k = attention_->shares_keys() ? fixed_q : Variable(k_.value());
  AttentionChoices choices = made.to(device);
  const Variable result = (*attention_)(fixed_q, fixed_k, v, mask, {{.generator = &generator_}, &choices});
  backward(result, broadcast_to(unit.cast(q.dtype()), q.shape().with(3, R)).value());
  const Tensor transposed = v.grad().defined() ? v.grad() : v.value();  // [B, S, H, R]
  return permute(transposed, {0, 2, 3, 1}).value().to(Device::cpu).cast(DType::float32);
}

TensorFile Runner::output(const std::string& spec) const {
  TensorFile file;
  file.metadata = {{"attention", spec}};
  file.tensors = {{"out", out}};
  for (const auto& [name, gradient] : gradients) file.tensors.emplace_back("grad_" + name, gradient);
  if (const Tensor codes = made.codes; codes.defined()) {  // the same 64 bits
    const auto bits = codes.to_vector<uint64_t>();
    file.tensors.emplace_back("codes", Tensor::from(std::vector<int64_t>(bits.begin(), bits.end()), codes.shape()));
  }
  for (const auto& [name, buckets] : {std::pair("buckets", made.buckets), {"key_buckets", made.key_buckets}})
    if (buckets.defined()) file.tensors.emplace_back(name, buckets);
  const Tensor labels = made.labels;
  if (!labels.defined()) return file;
  file.tensors.emplace_back("labels", labels);
  const int64_t B = inputs_.batches(), H = inputs_.heads(), N = inputs_.queries(), C = attention_->clusters();
  Tensor counts = Tensor::zeros({B, H, C}, DType::int32);
  int32_t* const members = counts.mutable_data<int32_t>();
  for (int64_t i = 0; i < labels.elements(); ++i)
    if (const int32_t label = labels.data<int32_t>()[i]; label >= 0) ++members[i / N * C + label];
  file.tensors.emplace_back("counts", counts);
  // [B, H, C', k']: at most as many clusters as queries, and at most as many keys as there are.
  const Tensor chosen = made.topk;
  if (!chosen.defined()) return file;
  const int64_t clusters = chosen.size(2), keys = chosen.size(3), k = attention_->topk();
  const Tensor masses = made.mass.cast(DType::float64);
  Tensor topk = Tensor::full({B, H, C, k}, -1, DType::int32), mass = Tensor::zeros({B, H, C}, DType::float64);
  for (int64_t row = 0; row < counts.elements(); ++row) {
    if (members[row] == 0) continue;
    const int64_t from = row / C * clusters + row % C;
    std::copy_n(chosen.data<int32_t>() + from * keys, keys, topk.mutable_data<int32_t>() + row * k);
    mass.mutable_data<double>()[row] = masses.data<double>()[from];
  }
  file.tensors.emplace_back("topk", topk);
  file.tensors.emplace_back("mass", mass.cast(inputs_.q.dtype()));
  return file;
}

}  // namespace cairn::attend
