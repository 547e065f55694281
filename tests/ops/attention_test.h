#pragma once
// What the tests of the attention family share (reference.h has the formulas): operands, masks, dropout.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "core/kernels/attention.h"
#include "core/ops/attention_checks.h"
#include "tests/ops/operation.h"

namespace cairn {

struct HeadSizes {
  int64_t B, H, N, S, D, M;
};
inline void append(std::string& text, const HeadSizes& s) {
  text += concat("B ", s.B, " H ", s.H, " N ", s.N, " S ", s.S, " D ", s.D, " M ", s.M);
}
inline std::ostream& operator<<(std::ostream& out, const HeadSizes& s) { return out << concat(s); }

struct Operands {
  Operands(const HeadSizes& s, DType dtype, uint64_t seed = 1)
      : q(random_tensor({s.B, s.N, s.H, s.D}, dtype, 3 * seed)),
        k(random_tensor({s.B, s.S, s.H, s.D}, dtype, 3 * seed + 1)),
        v(random_tensor({s.B, s.S, s.H, s.M}, dtype, 3 * seed + 2)) {}
  Tensor q, k, v;
};

// q, k, v and `more`, as all operations of the family take them.
inline std::vector<Taken> heads_and(const std::vector<Taken>& more) {
  std::vector<Taken> takes = {{"q", "B N H D"}, {"k", "B S H D"}, {"v", "B S H M"}};
  takes.insert(takes.end(), more.begin(), more.end());
  return takes;
}
inline const std::vector<Taken> mask_operands = {{"query_lengths", "B", Taken::optional},
                                                 {"key_lengths", "B", Taken::optional},
                                                 {"the mask", nullptr, Taken::optional}};

// Attention, the logsumexp of each query's scores [B, H, N], and the gradients of q, k, v for the gradient g.
struct AttentionResults {
  Tensor out, logsumexp, dq, dk, dv;
};
inline AttentionResults attention_both_ways(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, const Tensor& g) {
  const Variable x(q, true), y(k, true), z(v, true), out = attention(x, y, z, options);
  backward(out, g);
  const AttentionSize size = kernel_size(expect_attention("attention", q, k, v, options), options);
  Tensor again = empty_like(out.value()), logsumexp({size.B, size.H, size.N}, sums_of(q), q.device());
  CAIRN_RUN("attention", q,
            attention_forward<T>(stream, operands<T>(size, q, k, v, options), head_view<T>(again),
                                 logsumexp.mutable_data<Accum<T>>()));
  return {out.value(), logsumexp, x.grad(), y.grad(), z.grad()};
}

// True with probability 2/3. If the mask depends on the query, the first query sees nothing.
inline Tensor random_mask(const Shape& shape, uint64_t seed = 5) {
  Tensor mask = random_integers(shape, 0, 2, DType::boolean, seed);
  if (shape.elements() > 0 && shape.rank() >= 2 && shape[-2] > 1)
    std::fill_n(mask.mutable_data<bool>(), shape[-1], false);
  return mask;
}

// Lengths 0 .. maximum, at least one of them 0 and one of them `maximum` where there are two.
inline Tensor some_lengths(int64_t B, int64_t maximum) {
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < B; ++b) lengths.push_back(int32_t(b == 0 ? maximum : b == 1 ? 0 : maximum * b / B));
  return int32s(lengths);
}

// Lengths, a boolean mask and causal.
inline AttentionMask causal_mask(const Tensor& query_lengths, const Tensor& key_lengths, const Tensor& allowed) {
  return {.query_lengths = query_lengths, .key_lengths = key_lengths, .allowed = allowed, .causal = true};
}
inline AttentionMask every_way_masked(const HeadSizes& s) {
  return causal_mask(some_lengths(s.B, s.N / 2), some_lengths(s.B, s.S - s.S / 3), random_mask({s.B, 1, s.N, s.S}));
}

// Every kind of mask, by name. For large sizes, where references are slow, or if `few`: one of each kind.
inline std::vector<std::pair<std::string, AttentionMask>> every_mask(const HeadSizes& s, bool few = false) {
  std::vector<std::pair<std::string, AttentionMask>> masks;
  masks.push_back({"nothing", {}});
  masks.push_back({"query lengths", {.query_lengths = some_lengths(s.B, s.N)}});
  masks.push_back({"key lengths", {.key_lengths = some_lengths(s.B, s.S)}});
  masks.push_back({"causal", {.causal = true}});
  if (few || s.N * s.S > 10000) {
    masks.erase(masks.begin() + 1);
    masks.push_back({"batch element, query and key", {.allowed = random_mask({s.B, 1, s.N, s.S})}});
  } else {
    for (const Shape& shape :
         {Shape{}, Shape{1}, Shape{s.S}, Shape{s.N, 1}, Shape{s.N, s.S}, Shape{s.H, 1, 1}, Shape{s.H, s.N, s.S},
          Shape{s.B, 1, 1, s.S}, Shape{s.B, 1, s.N, 1}, Shape{1, s.H, 1, s.S}, Shape{s.B, s.H, s.N, s.S}})
      masks.push_back({concat("allowed ", shape), {.allowed = random_mask(shape)}});
  }
  masks.push_back({"everything", every_way_masked(s)});
  const auto share = [&](int64_t parts) { return int32_t(s.S / parts); };
  masks.push_back({"a window", {.pattern = {share(9)}}});
  masks.push_back({"global positions", {.causal = true, .pattern = {share(40), 1}}});
  masks.push_back({"a window without itself", {.pattern = {share(9) + 1, 0, false}}});
  masks.push_back({"near blocks", {.causal = true, .pattern = {.blocks = {3, 3}}}});
  masks.push_back({"far blocks", {.pattern = {.blocks = {3, 1, true}}}});
  masks.push_back({"far blocks before", {.pattern = {.blocks = {2, 4, true, false}}}});
  masks.push_back({"everything and a pattern", every_way_masked(s)});
  masks.back().second.pattern = {share(10), 2, false};
  return masks;
}

// Dropout with a draw of its own.
inline Dropout test_dropout(double p, Purpose purpose = Purpose::attention_dropout) {
  Generator generator(7);
  generator.set_step(4);
  generator.set_first_example(3);  // a kernel that ignores it differs from the others
  return {float(p), generator.draw(2, purpose)};
}

// A result [B, N, H, D] or [B, H, N] with zeros in batch element 0, head 1, where an operand has a bad number.
inline Tensor without_head_1(Tensor x) {
  x = x.to(Device::cpu).cast(DType::float32);
  const int64_t heads = x.size(x.rank() == 4 ? 2 : 1);
  for (int64_t i = 0; i < x.elements() / x.size(0); ++i)
    if (i / x.size(-1) % heads == 1) x.mutable_data<float>()[i] = 0;
  return x;
}
}  // namespace cairn
