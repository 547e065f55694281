#include "apps/attend/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "core/did_you_mean.h"
#include "core/ops/checks.h"
#include "nn/io/json.h"

namespace cairn::attend {
namespace {

// Of all variants.
std::vector<std::string> parameter_names() {
  std::vector<std::string> names;
  Generator generator(1);
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader({variant, "100", {}});
    const std::unique_ptr<Attention> attention = variant->make(reader);
    attention->initialize(1, 1, generator);
    for (const NamedParameter& parameter : named_parameters(*attention)) names.push_back(parameter.first);
  }
  return names;
}

// A mask [B, 1, 1, S] or [S], or one between, that hides only a tail of keys, as key lengths: int32 [B]. Another mask:
// undefined.
Tensor as_key_lengths(const Tensor& mask, int64_t B, int64_t S) {
  const bool of_each = mask.rank() == 4 && mask.size(0) == B;
  if (mask.rank() < 1 || mask.size(-1) != S || mask.elements() != (of_each ? B : 1) * S) return {};
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < B; ++b) {
    const bool* const row = mask.data<bool>() + (of_each ? b * S : 0);
    const bool* const end = std::find(row, row + S, false);
    if (std::find(end, row + S, true) != row + S) return {};
    lengths.push_back(int32_t(end - row));
  }
  return Tensor::from(lengths, {B});
}

// Reads tensors of one file. What has a wrong element type stays as it is; expect() refuses it.
struct Reader {
  const TensorFile& file;
  std::string shapes{};              // "q [1, 8, 2, 4], v [1, 8, 2, 4]"
  std::vector<std::string> known{};  // names that were asked for

  // The tensor of that name, or an undefined one.
  Tensor any(const std::string& name) {
    known.push_back(name);
    const Tensor* tensor = file.find(name);
    if (!tensor) return {};
    shapes += cairn::concat(shapes.empty() ? "" : ", ", name, " ", tensor->shape());
    return *tensor;
  }
  Tensor floating(const std::string& name, DType dtype) {
    const Tensor x = any(name);
    return x.defined() && is_floating(x.dtype()) ? x.cast(dtype) : x;
  }
  // Whole numbers as int32. Error: one is outside [minimum, maximum].
  Tensor integers(const std::string& name, int64_t minimum, int64_t maximum) {
    const Tensor x = any(name);
    if (!x.defined() || (x.dtype() != DType::int32 && x.dtype() != DType::int64)) return x;
    for (const int64_t value : x.cast(DType::int64).to_vector<int64_t>())
      check<DataError>(value >= minimum && value <= maximum, file.where, ": tensor '", name,
                       "': expected numbers from ", minimum, " to ", maximum, ", got ", value);
    return x.cast(DType::int32);
  }
};

// The inputs, whose shapes and element types are checked by throwing an Error.
Inputs checked_inputs(const TensorFile& file) {
  Reader read{file};
  const char* const where = file.where.c_str();
  Inputs in;
  in.q = read.any("q"), in.k = read.any("k"), in.v = read.any("v");
  const Sizes s = expect(where, {{"q", in.q, "B N H D"}, optional({"k", in.k, "B S H D"}), {"v", in.v, "B S H M"}});
  if (in.q.dtype() == DType::bfloat16) {
    in.bfloat16 = true;
    for (Tensor* x : {&in.q, &in.k, &in.v})
      if (x->defined()) *x = x->cast(DType::float32);
  }
  in.grad_out = read.floating("grad_out", in.q.dtype());
  AttentionMask& mask = in.mask;
  mask.query_lengths = read.integers("query_lengths", 0, s['N']);
  mask.key_lengths = read.integers("key_lengths", 0, s['S']);
  mask.allowed = read.any("mask");
  if (mask.allowed.defined() && mask.allowed.dtype() == DType::uint8) mask.allowed = mask.allowed.cast(DType::boolean);
  const Tensor planes = read.floating("planes", DType::float32);
  Tensor labels = read.integers("labels", -1, std::numeric_limits<int32_t>::max());
  for (const std::string& name : parameter_names())
    if (const Tensor x = read.floating(name, in.q.dtype()); x.defined()) in.parameters[name] = x;

  const Sizes all = expect(where,
                           {optional({"grad_out", in.grad_out, "B N H M"}),
                            optional(of_type(DType::int32, "query_lengths", mask.query_lengths, "B")),
                            optional(of_type(DType::int32, "key_lengths", mask.key_lengths, "B")),
                            optional(of_type(DType::boolean, "mask", mask.allowed, nullptr)),
                            optional(of_type(DType::float32, "planes", planes, "P E")),
                            optional(of_type(DType::int32, "labels", labels, "B H N"))},
                           s);
  if (planes.defined()) {
    check(all['E'] == s['D'] + 1 && all['P'] >= 1 && all['P'] <= 64, where,
          ": expected planes of shape [bits, D + 1] = [1 to 64, ", s['D'] + 1, "], got ", planes.shape());
    in.given.tensors["planes"] = planes;
  }
  if (labels.defined()) {
    for (int64_t i = 0; i < labels.elements(); ++i)  // queries beyond their length join no cluster
      if (i % s['N'] >= in.queries_of(i / (s['N'] * s['H']))) labels.mutable_data<int32_t>()[i] = -1;
    in.given.tensors["labels"] = labels;
  }
  if (mask.allowed.defined()) {
    const Shape full{s['B'], s['H'], s['N'], s['S']};
    const std::string name = cairn::concat(where, ": mask");
    check(broadcast(mask.allowed.shape(), full, name.c_str()) == full, name, ": ", mask.allowed.shape(),
          " does not broadcast to [B, H, N, S] = ", full);
    const Tensor lengths = as_key_lengths(mask.allowed, s['B'], s['S']);
    in.tail_mask = lengths.defined() && !mask.key_lengths.defined();
    if (in.tail_mask) mask.key_lengths = lengths, mask.allowed = {};
  }
  for (const auto& [name, tensor] : file.tensors)
    if (std::find(read.known.begin(), read.known.end(), name) == read.known.end())
      in.unknown.push_back(cairn::concat(in_quotes(name), did_you_mean(name, read.known)));
  in.shapes = read.shapes;
  return in;
}

}  // namespace

Inputs read_inputs(const TensorFile& file) {
  file.at("q"), file.at("v");
  try {
    return checked_inputs(file);
  } catch (const DataError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

TensorFile example_file(int64_t length, uint64_t seed) {
  constexpr int64_t H = 4, D = 32;
  constexpr uint32_t topics = 8;
  RandomStream random(seed, 0, Purpose::data, 3);
  std::vector<float> directions(size_t(H * topics * D));
  for (float& x : directions) x = random.normal();
  std::vector<uint32_t> topic;
  while (int64_t(topic.size()) < length) topic.insert(topic.end(), 6 + random.below(20), random.below(topics));
  const auto rows = [&] {
    std::vector<float> x;
    for (int64_t i = 0; i < length; ++i)
      for (int64_t h = 0; h < H; ++h)
        for (int64_t d = 0; d < D; ++d) {
          const int64_t pair = d / 2;
          const double angle = double(i) / std::pow(300.0, 2 * double(pair) / D);
          const double position = d % 2 ? std::cos(angle) : std::sin(angle);
          x.push_back(0.9f * directions[size_t((h * topics + topic[size_t(i)]) * D + d)] + float(1.2 * position) +
                      0.4f * random.normal());
        }
    return Tensor::from(x, {1, length, H, D});
  };
  TensorFile file;
  file.tensors = {{"q", rows()}, {"k", rows()}, {"v", random_normal({1, length, H, D}, random)}};
  file.metadata = {{"about", "an example of attend --example"}};
  return file;
}

}  // namespace cairn::attend
