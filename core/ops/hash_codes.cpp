#include "core/attention_ops.h"

#include <cstdint>

#include "core/dispatch.h"
#include "core/ops/attention_checks.h"

namespace cairn {

static void check_bits(const char* operation, int64_t bits) {
  check<UsageError>(bits >= 1 && bits <= 64, operation, ": bits = ", bits, ", expected 1 to 64");
}

// [rounds, columns, D]; the elements of a column from `random` on are 0.
static Tensor draw_columns(int64_t rounds, int64_t columns, int64_t D, int64_t random, const Draw& draw,
                           Device device) {
  Tensor rotations({rounds, columns, D}, DType::float32, device);
  if (D == 0) return rotations;
  CAIRN_CALL("random_rotations", rotations,
             random_rotations(stream, rounds, columns, D, random, draw.for_kernel(), rotations.mutable_data<float>()));
  return rotations;
}

Tensor random_rotations(int64_t rounds, int64_t columns, int64_t D, Draw draw, Device device) {
  check<UsageError>(rounds >= 1, "random_rotations: rounds = ", rounds, ", expected at least 1");
  check<UsageError>(columns >= 1, "random_rotations: columns = ", columns, ", expected at least 1");
  return draw_columns(rounds, columns, D, D, draw, device);
}

Tensor random_planes(int bits, int64_t D, bool bias, Draw draw, Device device) {
  check_bits("random_planes", bits);
  check(D >= 0 && D <= INT32_MAX, "random_planes: D = ", D, ", expected 0 to ", INT32_MAX);
  return draw_columns(1, bits, D + 1, bias ? D + 1 : D, draw, device).reshape({bits, D + 1});
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

Tensor hash_buckets(const Tensor& q, const Tensor& rotations, const Tensor& lengths, const BucketCount& count,
                    int64_t keys, const Tensor& key_lengths) {
  const Sizes s = expect("hash_buckets", {{"q", q, "B N H D"},
                                          of_type(DType::float32, "rotations", rotations, "R F C D"),
                                          optional(of_type(DType::int32, "lengths", lengths, "B")),
                                          optional(of_type(DType::int32, "key_lengths", key_lengths, "B"))});
  if (keys < 0) return hash_buckets(q, rotations, lengths, count, s['N'], lengths);
  check<UsageError>(count.given >= 0 && count.given <= INT32_MAX && count.given % 2 == 0, "hash_buckets: ", count.given,
                    " buckets, expected an even number below 2^31");
  check<UsageError>(count.chunk >= 1, "hash_buckets: chunk = ", count.chunk, ", expected at least 1");
  check(s['F'] == 2 && s['C'] >= count.columns(keys), "hash_buckets: expected rotations [rounds, 2, ",
        count.columns(keys), " or more, ", s['D'], "], got ", rotations.shape());
  check_clusters("hash_buckets", count(keys), 2, s['N']);
  const BucketSize size{
      s['B'], s['H'], s['N'], s['D'], s['R'], s['C'], count, keys, data_or_null<int32_t>(key_lengths)};
  check_values("hash_buckets", "lengths", lengths, 0, size.N);
  check_values("hash_buckets", "key_lengths", key_lengths, 0, keys);
  Tensor buckets({size.B, size.H, size.rounds, size.N}, DType::int32, q.device());
  CAIRN_RUN("hash_buckets", q,
            hash_buckets<T>(stream, size, head_view<T>(q), data_or_null<int32_t>(lengths), rotations.data<float>(),
                            buckets.mutable_data<int32_t>()));
  return buckets;
}

}  // namespace cairn
