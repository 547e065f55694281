#include "apps/attend/inputs.h"

#include <algorithm>
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
  for (const std::string& spec : every_variant()) {
    const std::unique_ptr<Attention> attention = make_attention(spec);
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
  in.where = file.where;
  in.q = read.any("q"), in.k = read.any("k"), in.v = read.any("v");
  const Sizes s = expect(where, {{"q", in.q, "B N H D"}, optional({"k", in.k, "B S H D"}), {"v", in.v, "B S H M"}});
  if (in.q.dtype() == DType::bfloat16) {
    in.notes.push_back("bfloat16 is taken as float32, and the results are float32");
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
    if (lengths.defined() && !mask.key_lengths.defined()) {
      in.notes.push_back("the mask hides a tail of keys, and is taken as key_lengths");
      mask.key_lengths = lengths, mask.allowed = {};
    }
  }
  for (const auto& [name, tensor] : file.tensors)
    if (std::find(read.known.begin(), read.known.end(), name) == read.known.end())
      in.unknown.push_back(cairn::concat(in_quotes(name), did_you_mean(name, read.known)));
  in.notes.insert(in.notes.begin(), read.shapes);
  if (s['H'] > std::max(s['N'], s['S']))
    in.notes.push_back(cairn::concat("more heads (", s['H'], ") than positions (", s['N'],
                                     "); axes are [batch, position, head, element], so PyTorch's [B, H, N, D] must be ",
                                     "transposed"));
  return in;
}

}  // namespace

std::vector<std::string> every_variant() {
  std::vector<std::string> specs;
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader({variant, "100", {}});
    variant->make(reader);
    const std::string& number = reader.number_asked();
    specs.push_back(variant->name + std::string(number.empty() ? "" : number == "rounds" ? "-4" : "-32"));
  }
  return specs;
}

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
  constexpr int64_t H = 4, D = 32, topics = 8;
  constexpr uint32_t example_data = 3;  // another stream than that of sample_of()
  RandomStream random(seed, 0, Purpose::data, example_data);
  std::vector<int32_t> topic;
  while (int64_t(topic.size()) < length) {
    const auto next = int32_t(random.below(topics));
    topic.insert(topic.end(), 6 + random.below(20), next);
  }
  topic.resize(size_t(length));
  const Tensor directions = random_normal({topics, H * D}, random);
  const Tensor shared = gather_rows(directions, Tensor::from(topic, {length}));
  const auto rows = [&] {
    const Tensor own = affine(random_normal({length, H * D}, random), 0.5);
    return binary(Binary::add, shared, own).reshape({1, length, H, D});
  };
  TensorFile file;
  file.tensors = {{"q", rows()}, {"k", rows()}, {"v", random_normal({1, length, H, D}, random)}};
  file.metadata = {{"about", "an example of attend --example"}};
  return file;
}

}  // namespace cairn::attend
