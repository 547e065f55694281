#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

Tensor random_planes(int bits, int64_t D, bool bias, Draw draw, Device device) {
  check_bits("random_planes", bits);
  check(D >= 0 && D <= INT32_MAX, "random_planes: D = ", D, ", expected 0 to ", INT32_MAX);
  Tensor planes = random_rotations(1, bits, D + 1, draw, device).reshape({bits, D + 1});
  if (!bias) assign(planes, 1, D, Tensor::zeros({bits, 1}, DType::float32, device));
  return planes;
}

Tensor hash_codes(const Tensor& q, const Tensor& planes) {
  const Sizes s = expect("hash_codes", {{"q", q, "B N H D"}, of_type(DType::float32, "planes", planes, "P E")});
  check(s['E'] == s['D'] + 1, "hash_codes: expected planes of shape [bits, ", s['D'] + 1, "], got ", planes.shape());
  check_bits("hash_codes", s['P']);
  const HashSize size{s['B'], s['H'], s['N'], s['D'], int(s['P'])};
  Tensor codes({size.B, size.H, size.N}, DType::uint64, q.device());
  CAIRN_RUN("hash_codes", q,
            hash_codes<T>(stream, size, head_view<T>(q), planes.data<float>(), codes.mutable_data<uint64_t>()));
  return codes;
}

}  // namespace cairn
