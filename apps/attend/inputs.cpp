#include "apps/attend/inputs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/did_you_mean.h"
#include "core/ops/checks.h"
#include "nn/io/json.h"

namespace cairn::attend {
namespace {

// The key lengths, int32 [B], of a mask that broadcasts to [B, 1, 1, S] and hides only the last keys. Undefined for
// other masks.
Tensor as_key_lengths(const Tensor& mask, int64_t B, int64_t S) {
  const Shape shape{B, 1, 1, S};
  if (broadcast(mask.shape(), shape, "mask") != shape) return {};
  const Tensor rows = broadcast_to(mask, shape).value();
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < B; ++b) {
    const bool* const row = rows.data<bool>() + b * S;
    const bool* const end = std::find(row, row + S, false);
    if (std::find(end, row + S, true) != row + S) return {};
    lengths.push_back(int32_t(end - row));
  }
  return Tensor::from(lengths, {B});
}

// Reads tensors of one file. A tensor of a wrong element type stays as it is, and expect() rejects it.
struct Reader {
  const TensorFile& file;
  std::string shapes{};                      // "q [1, 8, 2, 4], v [1, 8, 2, 4]"
  std::vector<std::string> known{"points"};  // all names that are read; a Runner reads inducing's points

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

}  // namespace

Inputs read_inputs(TensorFile given) try {
  Inputs in;
  in.file = std::move(given);
  const TensorFile& file = in.file;
  for (const char* needed : {"q", "v"}) file.at(needed);
  Reader read{file};
  const char* const where = file.where.c_str();
  in.q = read.any("q");
  in.k = read.any("k");
  in.v = read.any("v");
  const Sizes s = expect(where, {{"q", in.q, "B N H D"}, optional({"k", in.k, "B S H D"}), {"v", in.v, "B S H M"}});
  if (in.q.dtype() == DType::bfloat16) {
    in.notes.push_back("bfloat16 is converted to float32, and the results are float32");
    for (auto& [name, tensor] : in.file.tensors)
      if (name == "q" || name == "k" || name == "v") tensor = {};  // its memory is free after the conversion
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
    in.given.planes = planes;
  }
  if (labels.defined()) {
    for (int64_t i = 0; i < labels.elements(); ++i)  // padding joins no cluster
      if (i % s['N'] >= in.queries_of(i / (s['N'] * s['H']))) labels.mutable_data<int32_t>()[i] = -1;
    in.given.labels = labels;
  }
  if (mask.allowed.defined()) {
    const Shape full{s['B'], s['H'], s['N'], s['S']};
    const std::string name = cairn::concat(where, ": mask");
    check(broadcast(mask.allowed.shape(), full, name.c_str()) == full, name, ": ", mask.allowed.shape(),
          " does not broadcast to [B, H, N, S] = ", full);
    const Tensor lengths = as_key_lengths(mask.allowed, s['B'], s['S']);
    if (lengths.defined() && !mask.key_lengths.defined()) {
      in.notes.push_back("the mask hides only the last keys, so it is read as key_lengths");
      mask.key_lengths = lengths;
      mask.allowed = {};
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
} catch (const DataError&) {
  throw;
} catch (const Error& error) {  // of expect() and broadcast()
  throw UsageError(error.what());
}

TensorFile example_file(int64_t length, uint64_t seed) {
  constexpr int64_t H = 4, D = 32, topics = 8;
  constexpr uint32_t example_data = 3;  // another stream than that of sample_of()
  RandomStream random(seed, 0, Purpose::data, example_data);
  std::vector<int32_t> topic;
  for (int64_t i = 0; i < length; ++i) topic.push_back(i % 16 == 0 ? int32_t(random.below(topics)) : topic.back());
  const Variable shared = gather_rows(random_normal({topics, H * D}, random), Tensor::from(topic, {length}));
  const auto rows = [&] {
    const Variable own = 0.5 * Variable(random_normal({length, H * D}, random));
    return reshape(shared + own, {1, length, H, D}).value();
  };
  return {{{"q", rows()}, {"k", rows()}, {"v", random_normal({1, length, H, D}, random)}}, {}, "the example"};
}

}  // namespace cairn::attend
