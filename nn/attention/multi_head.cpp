#include "nn/attention/multi_head.h"

#include "core/trace.h"

namespace cairn {
namespace {

// Does it have parameters of its own, drawn or not?
bool learns(Attention& attention) {
  struct Seen : Fields {
    bool any = false;
    using Fields::operator();
    void operator()(const std::string&, Variable&) override { any = true; }
  } seen;
  attention.fields(seen);
  return seen.any;
}

// The features of all heads together. Error: no head, heads of size 0, or a product that overflows.
int64_t features_of(int64_t heads, int64_t head_size) {
  check<UsageError>(heads >= 1, "attention: ", heads, " heads, expected at least 1");
  check<UsageError>(head_size >= 1, "attention: heads of size ", head_size, ", expected at least 1");
  return Shape{heads, head_size}.elements();
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(int64_t features, int64_t heads_, int64_t head_size, double dropout_,
                                       std::unique_ptr<Attention> attention_, Generator& generator)
    : query(features, features_of(heads_, head_size), generator),
      key(attention_->shares_keys() ? nullptr : std::make_unique<Linear>(features, heads_ * head_size, generator)),
      value(features, heads_ * head_size, generator),
      out(heads_ * head_size, features, generator),
      heads(heads_),
      dropout(dropout_),
      attention(std::move(attention_)),
      trained_with(attention->spec()) {
  attention->initialize(heads, head_size, generator);
}

void MultiHeadAttention::fields(Fields& f) {
  f("query", query);
  if (key) f("key", *key);
  f("value", value);
  f("out", out);
  f("attention", *attention);
}

void MultiHeadAttention::swap_attention(std::unique_ptr<Attention> other) {
  check<UsageError>(!other->shares_keys() || !key, "attention '", other->spec(), "' uses the queries as keys; these ",
                    "weights were trained with keys of their own ('", trained_with, "')");
  check<UsageError>(!learns(*other) && !learns(*attention), "attention '", trained_with, "' cannot be swapped for '",
                    other->spec(), "': one has parameters of its own");
  attention = std::move(other);
}

Variable MultiHeadAttention::operator()(const Variable& x, const Variable& memory, const AttentionMask& mask,
                                        const Context& context) const {
  const trace::Span span("attention", "module", attention->spec());
  check_sequences("attention", x, query.weight.size(1));
  check_sequences("attention: memory", memory, value.weight.size(1));
  // Heads are a view of the same memory: [B, N, heads * size] as [B, N, heads, size].
  const auto split = [this](const Variable& y) { return reshape(y, {y.size(0), y.size(1), heads, y.size(2) / heads}); };
  const Variable q = split(query(x)), k = key ? split((*key)(memory)) : q, v = split(value(memory));
  if (observation) *observation = {observation->choices, q, k, v, mask};
  const AttentionContext inner{context, observation ? &observation->choices : nullptr, dropout};
  const Variable y = (*attention)(q, k, v, mask, inner);
  return out(reshape(y, {y.size(0), y.size(1), y.size(2) * y.size(3)}));
}

}  // namespace cairn
