#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor random_planes(int bits, int64_t D, bool bias, Draw draw, Device device) {
  check_bits("random_planes", bits);
  check(D >= 0 && D <= INT32_MAX, "random_planes: D = ", D, ", expected 0 to ", INT32_MAX);
  Tensor planes({bits, D + 1}, DType::float32, device);
  CAIRN_DISPATCH("random_planes", float, planes,
                 random_planes(current_stream(device), bits, D, bias, draw.for_kernel(), planes.mutable_data<float>()));
  return planes;
}

Tensor hash_codes(const Tensor& q, const Tensor& planes) {
  check_operands("hash_codes", {{"q", q}});
  check(q.rank() == 4, "hash_codes: expected q [B, N, H, D], got ", q.shape());
  check_tensor("hash_codes", "planes", planes, DType::float32, q.device());
  check(planes.rank() == 2 && planes.size(1) == q.size(3) + 1, "hash_codes: expected planes [bits, ", q.size(3) + 1,
        "], got ", planes.shape());
  check_bits("hash_codes", planes.size(0));
  const HashSize size{q.size(0), q.size(2), q.size(1), q.size(3), int(planes.size(0))};
  Tensor codes({size.B, size.H, size.N}, DType::uint64, q.device());
  CAIRN_RUN("hash_codes", q,
            hash_codes<T>(stream, size, head_view<T>(q), planes.data<float>(), codes.mutable_data<uint64_t>()));
  return codes;
}

}  // namespace cairn
