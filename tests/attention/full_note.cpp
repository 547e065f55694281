// A variant that computes full attention, because its number is as large as the sequence is long, says so.
#include "tests/attention/spec_of.h"
#include "tests/attention/trials.h"
#include "tests/nn/module_test.h"

namespace {

// Does it compute what full attention computes, on random queries and keys?
bool is_full(const Attention& attention, int64_t queries, int64_t keys) {
  const Generator generator(7);
  AttentionContext context;
  context.generator = &generator;
  const Variable q(random_tensor({1, queries, 2, 4}, DType::float32, 1)),
      k(random_tensor({1, keys, 2, 4}, DType::float32, 2)), v(random_tensor({1, keys, 2, 3}, DType::float32, 3));
  const Tensor out = attention(q, k, v, {}, context).value();
  const Tensor full = (*make_attention("full"))(q, k, v, {}, context).value();
  return difference(out, as_double(full)) <= tolerance_of(DType::float32);
}

}  // namespace

TEST_CASE("a variant says that it computes full attention where it does, and only there", "[attention][copy-task]") {
  constexpr int64_t n = 12;
  int full = 0;
  for (const AttentionVariant* variant : attention_variants()) {
    if (variant->name == std::string("full")) continue;  // full by name
    const bool cross = reference::references().at(variant->name).cross;
    for (const auto& [queries, keys] : {std::pair(n, n), std::pair(n, n + 1), std::pair(n + 1, n)})
      for (const int64_t number : {int64_t(3), n - 2, n - 1, n, n + 1})
        for (const int64_t top : {int64_t(3), n - 1, n, n + 1}) {
          if (queries != keys && !cross) continue;
          const std::unique_ptr<Attention> attention = make_attention(spec_of(*variant, number, top));
          Generator weights(3);
          attention->initialize(2, 4, weights);
          INFO(attention->spec() << ' ' << queries << " queries, " << keys << " keys");
          const bool says = !full_attention_note(*attention, queries, keys).empty();
          CHECK(says == is_full(*attention, queries, keys));
          full += says;
        }
  }
  CHECK(full > 50);
  CHECK(full_attention_note(*make_attention("i-clustered-15"), 32, 32) ==
        "i-clustered-15 computes full attention here, because its 32 top keys are all 32 keys; its results say nothing "
        "about smaller numbers");  // 32: the default
  CHECK(full_attention_note(*make_attention("i-clustered-15"), 33, 33).empty());
  CHECK(!full_attention_note(*make_attention("strided-1"), 33, 33).empty());
}
