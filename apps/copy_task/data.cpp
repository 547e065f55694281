#include "apps/copy_task/data.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/trace.h"

namespace cairn::copy_task {

Batch make_batch(int64_t batch, int64_t length, RandomStream& random, bool causal) {
  const trace::Span span("data", "program");
  const int64_t n = sequence_length(length), half = length + 1, masked = masked_per_half(length);
  Batch result{Tensor({batch, n}, DType::int32), Tensor({batch, n}, DType::int32)};
  auto* input = result.input.mutable_data<int32_t>();
  auto* target = result.target.mutable_data<int32_t>();
  std::vector<int64_t> position(static_cast<size_t>(length));
  for (int64_t b = 0; b < batch; ++b, input += n, target += n) {
    target[0] = target[half] = separator;
    for (int64_t i = 1; i <= length; ++i) target[i] = target[half + i] = int32_t(1 + random.below(symbols));
    std::copy_n(target, n, input);
    if (causal) {
      std::fill_n(input + half + 1, length, mask_token);
      continue;
    }
    // 2 * masked different positions of w: the first ones are masked in the first copy, the others in the second.
    std::iota(position.begin(), position.end(), 1);
    for (int64_t i = 0; i < 2 * masked; ++i) {
      std::swap(position[size_t(i)], position[size_t(i + random.below(uint32_t(length - i)))]);
      input[position[size_t(i)] + (i < masked ? 0 : half)] = mask_token;
    }
  }
  return result;
}

}  // namespace cairn::copy_task
