#include "nn/attention/offset_heads.h"

#include <cmath>
#include <cstddef>

namespace cairn {

void start_at_offsets(MultiHeadAttention& attention, const std::vector<int>& offsets) {
  check<UsageError>(int64_t(offsets.size()) == attention.heads, "offset heads: expected ", attention.heads,
                    " offsets, one for each head, got ", offsets.size());
  const bool shared = attention.key == nullptr;
  for (const int offset : offsets)
    check<UsageError>(
        !shared || offset == 0, "offset heads: attention '", attention.attention->spec(),
        "' uses the queries as keys, so a head can only start at its own position: expected offset 0, got ", offset);
  const Tensor& weight = (shared ? attention.query : *attention.key).weight.value();
  const int64_t rows = weight.size(0), features = weight.size(1), head_size = rows / attention.heads;
  check<UsageError>(features % 2 == 0, "offset heads: expected an even number of features, got ", features);
  const std::vector<float> from = weight.to_vector<float>();
  std::vector<float> query(from.size()), key(from.size());
  for (int64_t i = 0; i < features; i += 2) {
    const double frequency = 1 / period_of(i, features);
    const double a = frequency >= 0.1 ? 3.9 : 0.4;
    for (int64_t row = 0; row < rows; ++row) {
      const double angle = frequency * offsets[size_t(row / head_size)];
      const auto at = size_t(row * features + i);
      const double of_sine = a * from[at], of_cosine = a * from[at + 1];
      key[at] = float(of_sine);
      key[at + 1] = float(of_cosine);
      query[at] = float(of_sine * std::cos(angle) - of_cosine * std::sin(angle));
      query[at + 1] = float(of_sine * std::sin(angle) + of_cosine * std::cos(angle));
    }
  }
  const Device device = weight.device();
  attention.query.weight.mutable_value() = Tensor::from(query, {rows, features}).to(device);
  if (!shared) attention.key->weight.mutable_value() = Tensor::from(key, {rows, features}).to(device);
}

}  // namespace cairn
