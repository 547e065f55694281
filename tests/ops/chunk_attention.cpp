#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/kernels/chunk_attention.h"
#include "core/ops/attention_checks.h"
#include "tests/ops/attention_test.h"

namespace {

// Buckets int32 [B, H * rounds, N], some -1.
Tensor random_buckets(const HeadSizes& s, int64_t rounds, int64_t count, int lowest = -1) {
  return integers({s.B, s.H * rounds, s.N}, lowest, int(count) - 1, 41);
}

// The positions that have a bucket, sorted by bucket and position.
std::vector<int64_t> sorted(const int32_t* bucket, int64_t n) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < n; ++i)
    if (bucket[i] >= 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return bucket[i] < bucket[j]; });
  return order;
}

// In how many rounds each query sees each key. Without key buckets, the queries are the keys.
BatchHeads seen(const Tensor& buckets, const Tensor& key_buckets, int64_t rounds, const BucketOptions& options,
                const AttentionMask& mask) {
  const bool own = key_buckets.defined();
  const Tensor& of_keys = own ? key_buckets : buckets;
  const int64_t B = buckets.size(0), H = buckets.size(1) / rounds, N = buckets.size(2), S = of_keys.size(2);
  BatchHeads result(B, H, N, S);
  for (int64_t round = 0; round < rounds; ++round)
    for (int64_t b = 0; b < B; ++b)
      for (int64_t h = 0; h < H; ++h) {
        const int32_t* bucket = buckets.data<int32_t>() + ((b * H + h) * rounds + round) * N;
        const int32_t* key_bucket = of_keys.data<int32_t>() + ((b * H + h) * rounds + round) * S;
        const std::vector<int64_t> order = sorted(bucket, N), keys = sorted(key_bucket, S);
        const auto n = int64_t(keys.size()), chunks = (n + options.chunk - 1) / options.chunk;
        for (int64_t p = 0; p < int64_t(order.size()); ++p) {
          const int64_t i = order[size_t(p)], chunk = p / options.chunk;
          const int32_t first = bucket[order[size_t(chunk * options.chunk)]];  // of the chunk's first query
          const int64_t before =
              std::count_if(keys.begin(), keys.end(), [&](int64_t x) { return key_bucket[x] < first; });
          const int64_t start = std::min(before, n - 1) / options.chunk;
          for (int64_t l = 0; l < n; ++l) {
            const int64_t j = keys[size_t(l)], other = l / options.chunk;
            const bool near = own ? other == start || other == start + 1
                                  : (other == chunk || (other + 1) % chunks == chunk) && i != j;
            if (near && (!options.bucket_mask || bucket[i] == key_bucket[j]) && may_attend(mask, b, h, i, j))
              result(b, h, i, j) += 1;
          }
        }
      }
  return result;
}

// Softmax over the keys, each as often as it is seen; a query that sees none sees itself, if it is a key.
BatchHeads weights_of(const Tensors& t, int64_t rounds, const BucketOptions& options, const AttentionOptions& attention,
                      bool own) {
  BatchHeads scores = reference_scores(t[0], t[1], {{}, {}, attention.scale});
  const BatchHeads times = seen(t[3], own ? t[4] : Tensor(), rounds, options, attention.mask);
  for (size_t i = 0; i < scores.values.size(); ++i) scores.values[i] += std::log(times.values[i]);
  BatchHeads result = reference_weights(scores);
  result.rows([&](int64_t b, int64_t h, int64_t i) {
    bool alone = true;
    for (int64_t j = 0; j < result.S; ++j) alone = alone && times(b, h, i, j) == 0;
    if (!own && alone && may_attend(attention.mask, b, h, i, i)) result(b, h, i, i) = 1;
  });
  return result;
}

// What a case computes.
struct Buckets {
  HeadSizes s;
  int64_t rounds;
  BucketOptions options;
  int64_t count;
  std::string kind = "nothing";  // of mask
  AttentionMask mask{};
  double dropout = 0, scale = 0;
  bool own = false;  // keys have buckets of their own
};

Case& add(Operation& op, const Buckets& c, Tensors operands) {
  Case& test = op.add(concat(c.s, ", rounds ", c.rounds, " chunk ", c.options.chunk,
                             c.options.bucket_mask ? "" : " without bucket mask", c.own ? " own keys" : "",
                             " masked by ", c.kind, ", dropout ", c.dropout),
                      std::move(operands));
  test.forward = [c](const Variables& t) {
    return Variables{chunk_attention(t[0], t[1], t[2], clusters_of(t[3].value(), c.count), c.options,
                                     {on(t[0].device(), c.mask), test_dropout(c.dropout), c.scale},
                                     c.own ? clusters_of(t[4].value(), c.count) : Clusters())};
  };
  test.reference = [c](const Tensors& t) {
    BatchHeads weights = weights_of(t, c.rounds, c.options, {c.mask, {}, c.scale}, c.own);
    const Draw draw = test_dropout(c.dropout).draw;  // of whole keys
    const uint64_t key = reference_key(draw);
    weights.rows([&](int64_t b, int64_t h, int64_t i) {
      for (int64_t j = 0; j < c.s.S; ++j) {
        const uint64_t number = ((draw.first + uint64_t(b)) * uint64_t(c.s.S) + uint64_t(j)) * uint64_t(c.s.H);
        weights(b, h, i, j) *= dropout_factor(c.dropout, key, number + uint64_t(h));
      }
    });
    return Tensors{from_doubles(times_values(weights, t[2]), {c.s.B, c.s.N, c.s.H, c.s.M})};
  };
  return test;
}

// Keys are of about unit length, as in lsh.
Tensors operands_of(const Buckets& c) {
  const HeadSizes& s = c.s;
  const int lowest = c.mask.query_lengths.defined() ? -1 : 0;
  Tensors operands{normal({s.B, s.N, s.H, s.D}),
                   affine(normal({s.B, s.S, s.H, s.D}, 2), 1 / std::sqrt(1 + double(s.D))).value(),
                   uniform({s.B, s.S, s.H, s.M}, -1, 1, 3), random_buckets(s, c.rounds, c.count, lowest)};
  if (c.own) operands.push_back(integers({s.B, s.H * c.rounds, s.S}, -1, int(c.count) - 1, 42));
  return operands;
}

struct Shapes {
  HeadSizes s;
  int64_t rounds;
  BucketOptions options;
  int64_t buckets;
};
// Nothing, one and two positions; a lone chunk, two, an odd and an even number of them, whole ones and not; chunks of
// one and larger than a tile; several runs of chunks, and more planes than are taken at once.
std::vector<Shapes> every_shape() {
  return {{{0, 2, 3, 3, 2, 2}, 2, {2}, 2},          {{2, 0, 3, 3, 2, 2}, 2, {2}, 2},
          {{2, 2, 0, 0, 2, 2}, 2, {2}, 2},          {{2, 2, 5, 5, 0, 2}, 2, {2}, 2},
          {{2, 2, 5, 5, 2, 0}, 2, {2}, 2},          {{1, 1, 1, 1, 1, 1}, 1, {32}, 2},
          {{2, 2, 2, 2, 3, 2}, 2, {1}, 2},          {{2, 3, 17, 17, 4, 5}, 1, {32}, 3},
          {{2, 2, 19, 19, 3, 2}, 2, {10}, 4},       {{2, 2, 23, 23, 3, 2}, 3, {5}, 4},
          {{2, 1, 24, 24, 3, 2}, 3, {4, false}, 4}, {{2, 1, 24, 24, 3, 2}, 4, {4, false}, 4},
          {{1, 2, 31, 31, 3, 2}, 2, {1}, 2},        {{1, 1, 307, 307, 7, 5}, 2, {90, false}, 3},
          {{1, 1, 500, 500, 3, 2}, 1, {200}, 2},    {{33, 2, 3, 3, 2, 2}, 2, {2}, 2}};
}

}  // namespace

OPERATION("chunk_attention") {
  op.takes = heads_and({{"labels", nullptr, Taken::labels}});  // a row for each head and round
  op.takes.insert(op.takes.end(), mask_operands.begin(), mask_operands.end());
  op.rounds_once = op.same_bits_anywhere = false;  // the rounds are added up
  const auto add_case = [&](const HeadSizes& s, int64_t rounds, const BucketOptions& options, int64_t count,
                            const std::string& kind = "nothing", const AttentionMask& mask = {},
                            double dropout = 0) -> Case& {
    const Buckets c{s, rounds, options, count, kind, mask, dropout};
    return add(op, c, operands_of(c));
  };
  // The tests change the tensors of the first case: the gradient reads all of them, and the result.
  const HeadSizes first{2, 2, 5, 5, 3, 3};
  const AttentionMask all = every_way_masked(first);
  Case& changed = add_case(first, 2, {3}, 2, "everything", all);
  changed.operands.insert(changed.operands.end(), {all.query_lengths, all.key_lengths, all.allowed});
  changed.forward = [](const Variables& t) {
    return Variables{chunk_attention(t[0], t[1], t[2], clusters_of(t[3].value(), 2), {3},
                                     {.mask = causal_mask(t[4].value(), t[5].value(), t[6].value())})};
  };
  op.backward_reads = {0, 1, 2, 3, 4, 5, 6};
  op.backward_reads_results = true;

  for (const auto& [s, rounds, options, count] : every_shape())
    for (const double dropout : {0.0, 0.3}) {
      const Buckets c{s, rounds, options, count, "nothing", {}, dropout, 0.7};
      Tensors operands = operands_of(c);
      operands[3] = random_buckets(s, rounds, count);
      add(op, c, operands).on_cuda = s.N <= 5 && dropout == 0;
    }
  const HeadSizes masked{3, 2, 13, 13, 3, 2};
  for (const auto& [kind, mask] : every_mask(masked))
    for (const BucketOptions& options : {BucketOptions{3}, BucketOptions{3, false}})
      add_case(masked, 2, options, 3, kind, mask, 0.3).on_cuda = false;
  for (const BucketOptions& options : {BucketOptions{20}, BucketOptions{7, false}})
    add_case({2, 2, 701, 701, 7, 5}, 2, options, 5, "nothing", {}, 0.2).on_cuda = false;
  // Keys of their own: fewer, more and as many; no key of a bucket, or all of one; many chunks of queries that meet the
  // same keys, in several parts.
  const auto add_own = [&](const HeadSizes& s, int64_t rounds, const BucketOptions& options, int64_t count,
                           const std::string& kind = "nothing", const AttentionMask& mask = {}) -> Case& {
    const Buckets c{s, rounds, options, count, kind, mask, 0.3, 0, true};
    return add(op, c, operands_of(c));
  };
  const std::vector<HeadSizes> sizes{{2, 2, 0, 3, 2, 2},   {2, 2, 3, 0, 2, 2},  {2, 2, 5, 5, 0, 2},  {1, 1, 1, 1, 1, 1},
                                     {2, 3, 17, 23, 4, 5}, {2, 2, 31, 9, 3, 2}, {1, 2, 40, 40, 8, 8}};
  for (const HeadSizes& s : sizes)
    for (const int64_t count : {1, 4, 30})
      for (const BucketOptions& options : {BucketOptions{3}, BucketOptions{4, false}, BucketOptions{50}})
        add_own(s, 2, options, count).on_cuda = s.N > 15;
  add_own({1, 1, 1500, 300, 3, 2}, 1, {90, false}, 1).on_cuda = false;
  const HeadSizes apart{3, 2, 13, 11, 3, 2};
  for (const auto& [kind, mask] : every_mask(apart))
    if (mask.pattern.all()) {
      Case& test = add_own(apart, 2, {3, false}, 3, kind, mask);
      test.on_cuda = mask.causal;
      test.rounded_tolerance = 1.5 * tolerance::bfloat16;  // a key's gradient is the sum of ten rounded numbers
    }
  // A lone chunk, smaller and larger than a tile; two; odd and even numbers of them; many and less than one in a tile;
  // one element wide.
  add_case({2, 2, 31, 31, 3, 5}, 1, {32}, 3);
  add_case({1, 1, 150, 150, 8, 8}, 2, {1000}, 2);
  add_case({1, 1, 150, 150, 8, 8}, 2, {80}, 2);
  // In bfloat16, half of the difference comes from the saved output, whose product with the gradient is subtracted from
  // terms of its size. The rest: a key's gradient is the sum of six rounded numbers.
  add_case({1, 2, 67, 67, 5, 40}, 3, {5}, 4).rounded_tolerance = 1.5 * tolerance::bfloat16;
  add_case({1, 1, 96, 96, 16, 16}, 3, {32}, 4);
  add_case({1, 1, 200, 200, 8, 12}, 2, {32, false}, 8);
  add_case({1, 1, 200, 200, 8, 12}, 3, {40, false}, 4);
  add_case({1, 1, 140, 140, 4, 4}, 2, {1, false}, 2);
  add_case({1, 1, 70, 70, 136, 68}, 2, {32}, 3);
  add_case({1, 1, 70, 70, 68, 136}, 2, {32}, 3);
  const HeadSizes small{4, 2, 9, 9, 4, 3}, tiled{3, 1, 90, 90, 16, 24};
  for (const auto& [kind, mask] : every_mask(small, true))
    if (mask.pattern.all())  // else most queries see one key, and their gradients are only rounding
      add_case(small, 2, {3}, 3, kind, mask, mask.causal ? 0.3 : 0);
  for (const auto& [kind, mask] : every_mask(tiled, true))
    add_case(tiled, 3, {16, false}, 3, kind, mask, mask.causal ? 0.3 : 0);
  add_case(tiled, 3, {16, false}, 3, "nothing", {}, 0.25);
  for (const size_t operand : {0, 1, 2}) {
    const Buckets c{{2, 2, 40, 40, 8, 8}, 2, {8}, 4, concat("NaN in operand ", operand)};
    Tensors operands = operands_of(c);
    operands[operand] = with(operands[operand], {{(3 * 2 + 1) * 8 + 5, NAN}});  // batch element 0, row 3, head 1
    Case& test = add(op, c, operands);
    test.values = test.differences = false;
    test.compared = [](const Tensor& x) { return without_head_1(x); };
  }
}

TEST_CASE("chunk_attention needs memory that grows with the number of positions, not its square", "[chunk_attention]") {
  const auto needed = [](int64_t N) {
    const HeadSizes s{1, 1, N, N, 4, 4};
    const Operands x(s, DType::float32);
    const Variable q(x.q, true), k(x.k, true), v(x.v, true);
    const Clusters buckets = clusters_of(random_buckets(s, 2, N / 32), N / 32);
    reset_peak_memory(Device::cpu);
    const int64_t before = peak_without_scratch();
    backward(chunk_attention(q, k, v, buckets, {32}), x.v);
    return peak_without_scratch() - before;
  };
  CHECK(needed(12000) - needed(6000) < 6000 * 100);
}

TEST_CASE("chunk_attention refuses what it cannot compute", "[chunk_attention]") {
  const HeadSizes s{2, 3, 4, 4, 6, 7};
  const struct {
    Operands x;
    BucketOptions options;
    Clusters buckets;
  } t{Operands(s, DType::float32), {2}, clusters_of(random_buckets(s, 2, 3), 3)};
  const auto run = [&](const Clusters& buckets, const BucketOptions& options) {
    return chunk_attention(t.x.q, t.x.k, t.x.v, buckets, options);
  };
  const Tensor longer({2, 5, 3, 6}), values({2, 5, 3, 7});
  CHECK_ERROR(chunk_attention(t.x.q, longer, values, t.buckets, t.options),
              "chunk_attention: 4 queries and 5 keys, expected as many");
  for (const auto& [rows, rounds] : {std::pair(0, 1), {2, 1}, {7, 2}})
    CHECK_ERROR(run(clusters_of(Tensor::zeros({2, rows, 4}, DType::int32), 3), t.options),
                concat("chunk_attention: expected labels of shape ", Shape{2, 3 * rounds, 4}, ", got [2, ", rows));
  CHECK_ERROR(chunk_attention(t.x.q, t.x.k, t.x.v, t.buckets, t.options, {}, clusters_of(t.buckets.labels(), 4)),
              "chunk_attention: 4 buckets of keys, expected 3");
  CHECK_ERROR(run(t.buckets, {0}), "chunk_attention: chunk = 0, expected at least 1");
  const Tensor many({1, 1 << 20, 1 << 12, 0});
  CHECK_ERROR(chunk_attention(many, many, many, {}, {2}),
              "chunk_attention: 4294967296 rows of queries or keys, expected at most 2147483647");
  const Tensor cuda = elsewhere({0, 4, 3, 6});
  CHECK_ERROR(chunk_attention(cuda, cuda, cuda, clusters_of(Tensor({0, 6, 4}, DType::int32), 1), {2}),
              "chunk_attention: labels is on cpu, expected cuda");
}

#if CAIRN_HAS_CUDA
// In the tables, a part has all slots on CUDA.
TEST_CASE("CUDA finds the rows of a part of the slots and the pairs that see each other as the CPU does",
          "[chunk_attention][gpu]") {
  const HeadSizes s{2, 2, 67, 67, 1, 1};
  const AttentionMask masked = every_way_masked(s), masked_there = on(Device::cuda, masked);
  const Clusters buckets = clusters_of(random_buckets(s, 3, 4), 4),
                 there = clusters_of(buckets.labels().to(Device::cuda), 4);
  const AttentionSize size{2, 2, 67, 67, 1, 1};
  for (const int64_t chunk : {5, 40, 66})
    for (const auto& [first, slots] : {std::pair(1, 1), {2, 3}, {3, 2}}) {
      ChunkSlots c{{chunk}, 2, 2, 67, 67, 3, 4, view(buckets), {}, 1, first, slots};
      Tensor rows({c.before() + slots, chunk}, DType::int32), queries({c.before() + slots}, DType::int32);
      Tensor allowed = Tensor::zeros({slots, chunk, c.keys()}, DType::boolean);
      Tensor rows_there = rows.to(Device::cuda), queries_there = queries.to(Device::cuda),
             allowed_there = allowed.to(Device::cuda);
      cpu::chunk_rows({}, c, rows.mutable_data<int32_t>(), queries.mutable_data<int32_t>(), nullptr);
      c.rows = rows.data<int32_t>(), c.queries = queries.data<int32_t>();
      cpu::chunk_mask({}, c, kernel_mask(masked, size), allowed.mutable_data<bool>());
      c.buckets = view(there);
      gpu::chunk_rows({}, c, rows_there.mutable_data<int32_t>(), queries_there.mutable_data<int32_t>(), nullptr);
      c.rows = rows_there.data<int32_t>(), c.queries = queries_there.data<int32_t>();
      gpu::chunk_mask({}, c, kernel_mask(masked_there, size), allowed_there.mutable_data<bool>());
      INFO("chunk " << chunk << ", slots from " << first);
      CHECK(same_bits(rows_there.to(Device::cpu), rows));
      CHECK(same_bits(queries_there.to(Device::cpu), queries));
      CHECK(same_bits(allowed_there.to(Device::cpu), allowed));
    }
}
#endif
