#include "apps/attend/inputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/did_you_mean.h"
#include "nn/io/json.h"

namespace cairn::attend {
namespace {

// One file, whose errors name it and the tensor.
struct Reader {
  const TensorFile& file;
  std::vector<std::string> known{};

  // The tensor of that name, or an undefined one.
  Tensor optional(const char* name) {
    known.emplace_back(name);
    const Tensor* tensor = file.find(name);
    return tensor ? *tensor : Tensor();
  }
  void expect_dtype(const char* name, const Tensor& x, std::initializer_list<DType> dtypes) const {
    std::string list;
    for (DType dtype : dtypes) list += (list.empty() ? "" : " or ") + std::string(cairn::name(dtype));
    check<DataError>(std::find(dtypes.begin(), dtypes.end(), x.dtype()) != dtypes.end(), file.where, ": tensor '", name,
                     "': expected ", list, ", got ", cairn::name(x.dtype()));
  }
  // `pattern` says in letters what the shape is to be: "[B, S, H, D]".
  void expect_shape(const char* name, const Tensor& x, const Shape& shape, const char* pattern) const {
    check<UsageError>(x.shape() == shape, file.where, ": tensor '", name, "': expected ", pattern, " = ", shape,
                      ", got ", x.shape());
  }

  // Whole numbers as int32, each within [least, most].
  Tensor integers(const char* name, const Tensor& x, int64_t minimum, int64_t maximum) const {
    expect_dtype(name, x, {DType::int32, DType::int64});
    std::vector<int32_t> values;
    for (const int64_t value : x.cast(DType::int64).to_vector<int64_t>()) {
      check<DataError>(value >= minimum && value <= maximum, file.where, ": tensor '", name,
                       "': expected numbers from ", minimum, " to ", maximum, ", got ", value, " at ", values.size());
      values.push_back(int32_t(value));
    }
    return Tensor::from(values, x.shape());
  }
};

// Does [.., s] broadcast to `full`?
bool broadcasts(const Shape& shape, const Shape& full) {
  if (shape.rank() > full.rank()) return false;
  for (int i = 1; i <= shape.rank(); ++i)
    if (shape[-i] != 1 && shape[-i] != full[-i]) return false;
  return true;
}

// Of all variants.
std::vector<std::string> parameter_names() {
  struct Names : Fields {
    std::vector<std::string> all;
    using Fields::operator();
    void operator()(const std::string& name, Variable&) override { all.push_back(name); }
  } names;
  for (const AttentionVariant* variant : attention_variants()) {
    SpecReader reader(variant->name, "100", {}, {});
    variant->make(reader)->fields(names);
  }
  return names.all;
}

}  // namespace

Inputs read_inputs(const TensorFile& file) {
  Reader read{file};
  Inputs in;
  in.q = file.at("q"), in.v = file.at("v");
  in.k = read.optional("k");
  read.known.insert(read.known.end(), {"q", "v"});
  for (const auto& [name, x] : {std::pair{"q", in.q}, {"k", in.k}, {"v", in.v}}) {
    if (!x.defined()) continue;
    read.expect_dtype(name, x, {DType::float32, DType::float64});
    check<DataError>(x.dtype() == in.q.dtype(), file.where, ": tensor '", name, "': expected ",
                     cairn::name(in.q.dtype()), " like q, got ", cairn::name(x.dtype()));
    check<UsageError>(x.rank() == 4, file.where, ": tensor '", name, "': expected four axes, [batch, position, head, ",
                      "element], got ", x.shape());
  }
  const int64_t B = in.q.size(0), N = in.q.size(1), H = in.q.size(2), D = in.q.size(3), S = in.v.size(1);
  const Shape values{B, S, H, in.v.size(3)};
  read.expect_shape("v", in.v, values, "[B, S, H, M] with q's B and H");
  if (in.k.defined()) read.expect_shape("k", in.k, {B, S, H, D}, "[B, S, H, D]");

  for (const auto& [name, maximum, lengths] :
       {std::tuple{"query_lengths", N, &in.mask.query_lengths}, std::tuple{"key_lengths", S, &in.mask.key_lengths}}) {
    const Tensor x = read.optional(name);
    if (!x.defined()) continue;
    read.expect_shape(name, x, {B}, "[B]");
    *lengths = read.integers(name, x, 0, maximum);
  }
  if (const Tensor x = read.optional("mask"); x.defined()) {
    read.expect_dtype("mask", x, {DType::boolean, DType::uint8});
    check<UsageError>(broadcasts(x.shape(), {B, H, N, S}), file.where, ": tensor 'mask': ", x.shape(),
                      " does not broadcast to [B, H, N, S] = ", Shape{B, H, N, S});
    in.mask.allowed = x.cast(DType::boolean);
  }
  if (const Tensor x = read.optional("grad_out"); x.defined()) {
    read.expect_dtype("grad_out", x, {DType::float32, DType::float64});
    read.expect_shape("grad_out", x, {B, N, H, in.v.size(3)}, "[B, N, H, M]");
    in.grad_out = x.cast(in.q.dtype());
  }
  for (const std::string& name : parameter_names())
    if (const Tensor x = read.optional(name.c_str()); x.defined()) {
      read.expect_dtype(name.c_str(), x, {DType::float32, DType::float64});
      in.parameters[name] = x;
    }
  if (const Tensor x = read.optional("planes"); x.defined()) {
    read.expect_dtype("planes", x, {DType::float32, DType::float64});
    check<UsageError>(x.rank() == 2 && x.size(1) == D + 1 && x.size(0) >= 1 && x.size(0) <= 64, file.where,
                      ": tensor 'planes': expected [bits, D + 1] = [1 to 64, ", D + 1, "], got ", x.shape());
    in.given.tensors["planes"] = x.cast(DType::float32);
  }
  if (const Tensor x = read.optional("labels"); x.defined()) {
    read.expect_shape("labels", x, {B, H, N}, "[B, H, N]");
    in.given.tensors["labels"] = read.integers("labels", x, -1, std::numeric_limits<int32_t>::max());
  }
  for (const auto& [name, tensor] : file.tensors)
    if (std::find(read.known.begin(), read.known.end(), name) == read.known.end())
      in.unknown.push_back(concat(in_quotes(name), did_you_mean(name, read.known)));
  return in;
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
