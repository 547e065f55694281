#include "apps/attend/outputs.h"

#include <algorithm>

namespace cairn::attend {
namespace {

// A choice of each cluster, [B, H, C'] or [B, H, C', k'], as one of C clusters and k columns. What is missing, and what
// clusters without members have, becomes `value`.
template <class T>
Tensor of_clusters(const Tensor& x, const Tensor& counts, int64_t columns, T value) {
  const int64_t made = x.size(2), k = x.rank() == 4 ? x.size(3) : 1, C = counts.size(2);
  const std::vector<T> from = x.to_vector<T>();
  const std::vector<int32_t> members = counts.to_vector<int32_t>();
  std::vector<T> to(members.size() * size_t(columns), value);
  for (int64_t row = 0; row < counts.elements(); ++row)
    if (members[size_t(row)] > 0)
      std::copy_n(from.begin() + (row / C * made + row % C) * k, k, to.begin() + row * columns);
  return Tensor::from(to, x.rank() == 4 ? Shape{x.size(0), x.size(1), C, columns} : counts.shape());
}

}  // namespace

TensorFile output_file(const std::string& spec, const Inputs& inputs, const Outcome& outcome) {
  TensorFile file;
  file.metadata = {{"attention", spec}};
  file.tensors = {{"out", outcome.out}};
  for (const auto& [name, gradient] : outcome.gradients) file.tensors.emplace_back("grad_" + name, gradient);
  const AttentionChoices made = outcome.made.to(Device::cpu);
  if (const Tensor codes = made["codes"]; codes.defined()) {  // the same 64 bits
    const auto bits = codes.to_vector<uint64_t>();
    file.tensors.emplace_back("codes", Tensor::from(std::vector<int64_t>(bits.begin(), bits.end()), codes.shape()));
  }
  for (const char* name : {"labels", "buckets"})
    if (const Tensor choice = made[name]; choice.defined()) file.tensors.emplace_back(name, choice);
  const Tensor labels = made["labels"];
  if (!labels.defined()) return file;
  const int64_t C = made.numbers.at("clusters"), N = inputs.queries();
  Tensor counts = Tensor::zeros({inputs.batches(), inputs.heads(), C}, DType::int32);
  int32_t* const members = counts.mutable_data<int32_t>();
  for (int64_t i = 0; i < labels.elements(); ++i)
    if (const int32_t label = labels.data<int32_t>()[i]; label >= 0) ++members[i / N * C + label];
  file.tensors.emplace_back("counts", counts);
  if (const Tensor topk = made["topk"]; topk.defined())
    file.tensors.emplace_back("topk", of_clusters<int32_t>(topk, counts, made.numbers.at("top"), -1));
  if (const Tensor mass = made["mass"]; mass.defined())
    file.tensors.emplace_back("mass",
                              of_clusters<double>(mass.cast(DType::float64), counts, 1, 0).cast(inputs.q.dtype()));
  return file;
}

}  // namespace cairn::attend
