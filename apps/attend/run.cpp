#include "apps/attend/run.h"

#include <algorithm>
#include <chrono>

namespace cairn::attend {
namespace {

// These positions of an axis.
Tensor select(const Tensor& x, int axis, const std::vector<int64_t>& positions) {
  std::vector<Tensor> parts;
  for (const int64_t position : positions) parts.push_back(slice(x, axis, position, position + 1));
  return concat(parts, axis);
}

// [n, 1, rows]: row positions[i] has a 1 in column i.
Tensor unit_rows(int64_t n, const Tensor& positions) {
  return compare(Compare::equal, arange(n, positions.device()).reshape({n, 1, 1}), positions);
}

// What full attention masks for some of the queries, [R] in `positions`, which are no longer where they were.
Tensor visible_to(const AttentionMask& mask, const std::vector<int64_t>& rows, const Tensor& positions, int64_t S) {
  Tensor allowed = mask.allowed;
  if (allowed.defined() && allowed.rank() >= 2 && allowed.size(-2) > 1) allowed = select(allowed, -2, rows);
  if (!mask.causal) return allowed;
  const Tensor before =
      compare(Compare::less_equal, arange(S, positions.device()), positions.reshape({positions.elements(), 1}));
  if (!allowed.defined()) return before;
  const Tensor seen = before.cast(DType::float32);
  return where(allowed, seen, affine(seen, 0)).cast(DType::boolean);
}

}  // namespace

Runner::Runner(const std::string& spec, const Inputs& inputs, const RunOptions& options)
    : inputs_(inputs), options_(options), generator_(options.seed), attention_(make_attention(spec)) {
  const bool shared = attention_->shares_keys();
  check<UsageError>(shared || inputs.k.defined(), "attention '", spec, "' needs keys: the file has no tensor 'k'");
  check<UsageError>(inputs.q.dtype() != DType::float64 || options.compute.device == Device::cpu,
                    "float64 tensors are computed on the CPU: use --device cpu");
  Generator parameters(options.seed);
  attention_->initialize(inputs.heads(), inputs.q.size(3), parameters);
  parameters_ = named_parameters(*attention_);
  for (auto& [name, parameter] : parameters_)
    if (const auto given = inputs.parameters.find(name); given != inputs.parameters.end()) {
      check<UsageError>(given->second.shape() == parameter.shape(), "tensor '", name, "': expected ", parameter.shape(),
                        " for attention '", spec, "', got ", given->second.shape());
      parameter.mutable_value() = given->second;
    }
  move_to(*attention_, options.compute.device);
  mask_ = inputs.mask;
  for (Tensor* part : {&mask_.query_lengths, &mask_.key_lengths, &mask_.allowed})
    if (part->defined()) *part = part->to(options.compute.device);
  given_ = inputs.given.to(options.compute.device);
  const auto leaf = [&](const Tensor& x) { return Variable(place(x), options.gradients); };
  q_ = leaf(inputs.q), v_ = leaf(inputs.v);
  k_ = shared ? q_ : leaf(inputs.k);
}

Tensor Runner::place(const Tensor& x) const {
  return (x.dtype() == DType::float32 ? x.cast(options_.compute.activations) : x).to(options_.compute.device);
}

Tensor Runner::back(const Tensor& x) const { return x.to(Device::cpu).cast(inputs_.q.dtype()); }

AttentionContext Runner::context() const {
  AttentionContext context;
  context.generator = &generator_;
  context.replay = &given_;
  return context;
}

Outcome Runner::run() {
  Outcome outcome;
  Tensor gradient = inputs_.grad_out;
  if (options_.gradients) {
    const Shape shape = inputs_.q.shape().with(3, inputs_.v.size(3));
    gradient = place(gradient.defined() ? gradient : Tensor::full(shape, 1, inputs_.q.dtype()));
  }
  std::vector<NamedParameter> leaves = {{"q", q_}, {"v", v_}};
  if (!attention_->shares_keys()) leaves.insert(leaves.begin() + 1, {"k", k_});
  leaves.insert(leaves.end(), parameters_.begin(), parameters_.end());
  std::vector<double> seconds;
  for (int64_t i = 0; i < options_.repeat; ++i) {
    for (auto& [name, leaf] : leaves) leaf.clear_grad();
    outcome.made = {};
    AttentionContext reporting = context();
    reporting.report = &outcome.made;
    const auto start = std::chrono::steady_clock::now();
    const Variable out = (*attention_)(q_, k_, v_, mask_, reporting);
    if (options_.gradients) backward(out, gradient);
    const Tensor result = out.value().to(Device::cpu);  // waits for the device
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    outcome.out = back(result);
  }
  if (inputs_.given["labels"].defined() && outcome.made["labels"].defined())
    for (const int32_t label : inputs_.given["labels"].to_vector<int32_t>())
      check<DataError>(label < outcome.made.numbers["clusters"], "tensor 'labels': expected numbers from -1 to ",
                       outcome.made.numbers["clusters"] - 1, " for attention '", spec(), "', got ", label);
  // Draws are named, so weights() would choose the same again, in more time.
  for (const char* choice : {"labels", "buckets"})
    if (const Tensor made = outcome.made[choice]; made.defined()) given_.tensors[choice] = made;
  std::sort(seconds.begin(), seconds.end());
  outcome.seconds = seconds[seconds.size() / 2];
  if (!options_.gradients) return outcome;
  for (const auto& [name, leaf] : leaves)  // a gradient that nothing flowed into is one of zeros
    outcome.gradients.emplace_back(
        name, leaf.grad().defined() ? back(leaf.grad()) : Tensor::zeros(leaf.shape(), inputs_.q.dtype()));
  return outcome;
}

// The output is W v, so the gradient of v is W^T times that of the output. Where column m of the output's gradient is
// the unit vector of query i, column m of v's gradient is row i of W.
Tensor Runner::weights(const std::vector<int64_t>& rows) const {
  const auto R = int64_t(rows.size());
  const Device device = options_.compute.device;
  Tensor positions = Tensor::from(std::vector<float>(rows.begin(), rows.end()), {R}).to(device);
  Tensor q = q_.value();
  AttentionMask mask = mask_;
  if (parse_attention(spec()).variant->name == std::string("full")) {  // which sees each query alone
    q = select(q, 1, rows);
    mask.allowed = visible_to(mask, rows, positions, inputs_.keys());
    mask.causal = false;
    if (mask.query_lengths.defined()) {
      std::vector<int32_t> lengths;  // rows rise
      for (int64_t b = 0; b < inputs_.batches(); ++b)
        lengths.push_back(int32_t(std::lower_bound(rows.begin(), rows.end(), inputs_.queries_of(b)) - rows.begin()));
      mask.query_lengths = Tensor::from(lengths, {inputs_.batches()}).to(device);
    }
    positions = arange(R, device);
  }
  const Tensor unit = unit_rows(q.size(1), positions).cast(q.dtype());
  const Variable v(Tensor::zeros(v_.value().shape().with(3, R), q.dtype(), device), true);
  const Variable fixed_q(q), fixed_k = attention_->shares_keys() ? fixed_q : Variable(k_.value());
  const Variable out = (*attention_)(fixed_q, fixed_k, v, mask, context());
  backward(out, broadcast_to(unit, q.shape().with(3, R)));
  const Tensor transposed = v.grad().defined() ? v.grad() : v.value();  // [B, S, H, R]
  return permute(transposed, {0, 2, 3, 1}).to(Device::cpu).cast(DType::float32);
}

}  // namespace cairn::attend
