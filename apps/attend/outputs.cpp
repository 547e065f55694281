#include "apps/attend/outputs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"

namespace cairn::attend {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// [B, H, C, k] from fewer clusters or keys; what is missing gets `value`.
template <class T>
Tensor padded(const Tensor& x, int64_t clusters, int64_t columns, T value) {
  const int64_t B = x.size(0), H = x.size(1), C = x.size(2), k = x.rank() == 4 ? x.size(3) : 1;
  const std::vector<T> from = x.to_vector<T>();
  std::vector<T> to(size_t(B * H * clusters * columns), value);
  for (int64_t row = 0; row < B * H * C; ++row)
    std::copy_n(from.begin() + row * k, k, to.begin() + (row / C * clusters + row % C) * columns);
  return Tensor::from(to, x.rank() == 4 ? Shape{B, H, clusters, columns} : Shape{B, H, clusters});
}

// Clusters without members have no top keys and no mass.
template <class T>
Tensor without_empty(Tensor x, const std::vector<int32_t>& counts, T value) {
  const int64_t k = x.rank() == 4 ? x.size(3) : 1;
  T* const data = x.mutable_data<T>();
  for (size_t row = 0; row < counts.size(); ++row)
    if (counts[row] == 0) std::fill_n(data + int64_t(row) * k, k, value);
  return x;
}

}  // namespace

TensorFile output_file(const std::string& spec, const Inputs& inputs, const Outcome& outcome) {
  TensorFile file;
  file.metadata = {{"attention", spec}};
  const auto add = [&](const std::string& name, const Tensor& x) {
    if (x.defined()) file.tensors.emplace_back(name, x.to(Device::cpu));
  };
  add("out", outcome.out);
  add("grad_q", outcome.grad_q);
  add("grad_k", outcome.grad_k);
  add("grad_v", outcome.grad_v);
  for (const auto& [name, gradient] : outcome.grad_parameters) add("grad_" + name, gradient);
  const AttentionChoices& made = outcome.made;
  const Tensor codes = made["codes"], labels = made["labels"], topk = made["topk"], mass = made["mass"];
  if (codes.defined()) {  // the same 64 bits
    const auto bits = codes.to_vector<uint64_t>();
    add("codes", Tensor::from(std::vector<int64_t>(bits.begin(), bits.end()), codes.shape()));
  }
  for (const auto& [name, choice] : made.tensors)
    if (choice.dtype() == DType::int32 && name != "topk") add(name, choice);
  if (!labels.defined()) return file;
  const int64_t C = made.numbers.at("clusters"), N = inputs.queries();
  std::vector<int32_t> counts(size_t(inputs.batches() * inputs.heads() * C), 0);
  const auto label = labels.to_vector<int32_t>();
  for (size_t i = 0; i < label.size(); ++i)
    if (label[i] >= 0) ++counts[size_t(int64_t(i) / N * C + label[i])];
  add("counts", Tensor::from(counts, {inputs.batches(), inputs.heads(), C}));
  if (topk.defined())
    add("topk", without_empty<int32_t>(padded<int32_t>(topk, C, made.numbers.at("top"), -1), counts, -1));
  if (mass.defined()) {
    const Tensor all = mass.to(Device::cpu).cast(inputs.q.dtype());
    add("mass", all.dtype() == DType::float64 ? without_empty<double>(padded<double>(all, C, 1, 0), counts, 0)
                                              : without_empty<float>(padded<float>(all, C, 1, 0), counts, 0));
  }
  return file;
}

Json results_json(const Request& request, const Inputs& inputs, const std::vector<Result>& results) {
  Json json = {
      {"in", request.in}, {"queries", inputs.queries()}, {"keys", inputs.keys()}, {"gradients", request.run.gradients}};
  if (!request.out.empty()) json["out"] = request.out;
  if (!request.picture.empty()) json["picture"] = request.picture;
  if (!request.compare.empty()) json["compare"] = request.compare;
  json["results"] = Json::array();
  for (const Result& result : results) {
    Json one = {{"attention", result.spec}};
    if (!result.problem.empty())
      one["problem"] = result.problem;
    else
      one["seconds"] = result.outcome.seconds;
    if (!request.compare.empty() && result.problem.empty())
      one.update({{"l1", finite_or_null(result.distance.l1)}, {"error", finite_or_null(result.distance.error)}});
    json["results"].push_back(one);
  }
  return json;
}

std::string results_text(const Request& request, const std::vector<Result>& results) {
  size_t width = 9;
  for (const Result& result : results) width = std::max(width, result.spec.size());
  const auto cell = [](double value, int columns, int decimals) {
    return std::isfinite(value) ? formatted("%*.*f", columns, decimals, value) : formatted("%*s", columns, "-");
  };
  std::string text = std::string("attention") + std::string(width - 9, ' ') +
                     (request.run.gradients ? "  ms (with gradients)" : "            ms");
  if (!request.compare.empty()) text += "  L1 of rows  error of output   (to " + request.compare + ")";
  text += "\n";
  for (const Result& result : results) {
    text += result.spec + std::string(width - result.spec.size(), ' ');
    if (!result.problem.empty()) {
      text += "  - " + result.problem + "\n";
      continue;
    }
    text += cell(result.outcome.seconds * 1e3, request.run.gradients ? 21 : 14, 3);
    if (!request.compare.empty()) text += cell(result.distance.l1, 12, 4) + cell(result.distance.error, 17, 4);
    text += "\n";
  }
  return text;
}

}  // namespace cairn::attend
