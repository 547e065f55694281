#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ops/attention_test.h"

namespace {

using Sets = std::vector<KeySet>;

// What a case computes. The second set's dropout is another one.
struct Joined {
  HeadSizes s;
  Sets sets;
  std::string kind = "nothing";  // of mask
  AttentionMask mask{};
  double dropout = 0;

  AttentionOptions options(Device device) const { return {.mask = on(device, mask), .scale = 0.7}; }
  Sets drawn() const {
    Sets result = sets;
    for (size_t r = 0; r < sets.size(); ++r)
      result[r].dropout = test_dropout(dropout, r == 0 ? Purpose::attention_dropout : Purpose::class_dropout);
    return result;
  }
};

Tensor reference(const Joined& c, const Tensors& t) {
  AttentionOptions options = c.options(Device::cpu);
  BatchHeads scores = reference_scores(t[0], t[1], options), factors(c.s.B, c.s.H, c.s.N, c.s.S);
  scores.rows([&](int64_t b, int64_t h, int64_t i) {
    for (int64_t j = 0; j < c.s.S; ++j) {
      const double score = scores(b, h, i, j);
      scores(b, h, i, j) = -INFINITY;
      for (const KeySet& set : c.drawn()) {
        const int64_t classes = std::min(set.classes, std::max(c.s.N, c.s.S)), r = i % classes;
        if (j % classes != r || !set.pattern.sees(i / classes, j / classes)) continue;
        const int64_t row = ((int64_t(set.dropout.draw.first) + b) * classes + r) * c.s.H + h;
        scores(b, h, i, j) = score;
        factors(b, h, i, j) =
            dropout_factor(c.dropout, reference_key(set.dropout.draw), uint64_t(row), i / classes, j / classes);
      }
    }
  });
  const BatchHeads weights = product(reference_weights(scores), factors);
  return from_doubles(times_values(weights, t[2]), {c.s.B, c.s.N, c.s.H, c.s.M});
}

Case& add(Operation& op, const Joined& c) {
  const HeadSizes& s = c.s;
  std::string name = concat(s, ", masked by ", c.kind, ", dropout ", c.dropout);
  for (const KeySet& set : c.sets) name += concat(", classes ", set.classes, " window ", set.pattern.window);
  // Keys of about unit length, so that the softmax has more than one large weight.
  Case& test = op.add(name, {normal({s.B, s.N, s.H, s.D}),
                             affine(normal({s.B, s.S, s.H, s.D}, 2), 1 / std::sqrt(1 + double(s.D))).value(),
                             uniform({s.B, s.S, s.H, s.M}, -1, 1, 3)});
  // In bfloat16, the gradient subtracts the product with a saved, rounded output, and adds up the sets' rounded parts.
  // Masked by everything, most queries see one key or two: the true gradient is near 0, and the rounding is not.
  test.rounded_tolerance = (c.kind == "everything" ? 8 : 2) * tolerance::bfloat16;
  test.forward = [c](const Variables& t) {
    return Variables{joined_attention(t[0], t[1], t[2], c.drawn(), c.options(t[0].device()))};
  };
  test.reference = [c](const Tensors& t) { return Tensors{reference(c, t)}; };
  return test;
}

// A window and the positions at multiples of its width; a window of every third position; three sets, of which the
// first may be empty; more classes than positions.
const Sets every_sets[] = {
    {{1, {2, 0, false}}, {3}}, {{3, {1}}}, {{1, {0, 0, false}}, {2, {0}}, {2, {4, 0, false}}}, {{99}}};

}  // namespace

OPERATION("joined_attention") {
  op.takes = heads_and(mask_operands);
  // The sets are added up, and tensor cores need aligned rows.
  op.rounds_once = op.gradients_round_once = op.same_bits_anywhere = false;
  // The tests change the tensors of the first case: the gradient reads all of them, and the result.
  const HeadSizes first{2, 2, 5, 5, 3, 3};
  const AttentionMask all = every_way_masked(first);
  Case& changed = add(op, {first, every_sets[0], "everything", all});
  changed.operands.insert(changed.operands.end(), {all.query_lengths, all.key_lengths, all.allowed});
  changed.forward = [](const Variables& t) {
    return Variables{joined_attention(t[0], t[1], t[2], every_sets[0],
                                      {.mask = causal_mask(t[3].value(), t[4].value(), t[5].value()), .scale = 0.7})};
  };
  op.backward_reads = {0, 1, 2, 3, 4, 5};
  op.backward_reads_results = true;

  const std::vector<HeadSizes> sizes{{0, 2, 3, 3, 2, 2},   {2, 0, 3, 3, 2, 2}, {2, 2, 0, 3, 2, 2}, {2, 2, 3, 0, 2, 2},
                                     {2, 2, 3, 4, 0, 2},   {2, 2, 3, 4, 2, 0}, {1, 1, 1, 1, 1, 1}, {2, 2, 12, 12, 3, 2},
                                     {2, 2, 13, 13, 8, 4}, {2, 3, 7, 11, 4, 5}};
  for (const Sets& sets : every_sets) {
    for (const HeadSizes& s : sizes)
      for (const double dropout : {0.0, 0.3}) add(op, {s, sets, "nothing", {}, dropout}).on_cuda = s.N >= 7;
    const HeadSizes masked{3, 2, 11, 11, 3, 2};
    for (const auto& [kind, mask] : every_mask(masked))
      if (mask.pattern.all()) add(op, {masked, sets, kind, mask, 0.3}).on_cuda = mask.causal;
  }
  add(op, {{1, 2, 700, 700, 8, 8}, {{1, {19, 0, false}}, {20}}, "nothing", {}, 0.2}).on_cuda = false;
  for (const double dropout : {0.0, 0.2})
    add(op, {{2, 1, 150, 150, 8, 8}, {{1, {9, 0, false}}, {10}}, "causal", {.causal = true}, dropout});
}

TEST_CASE("joined_attention refuses what it cannot compute", "[joined_attention]") {
  const Operands x({2, 3, 4, 5, 6, 7}, DType::float32);
  CHECK_ERROR(joined_attention(x.q, x.k, x.v, {{0}}), "joined_attention: classes = 0, expected at least 1");
  const char* only = "joined_attention: expected sets of keys, and no pattern or dropout but theirs";
  CHECK_ERROR(joined_attention(x.q, x.k, x.v, {}), only);
  CHECK_ERROR(joined_attention(x.q, x.k, x.v, {{1}}, {.mask = {.pattern = {3}}}), only);
  CHECK_ERROR(joined_attention(x.q, x.k, x.v, {{1}}, {.dropout = test_dropout(0.5)}), only);
}
