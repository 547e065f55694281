// Where a variant computes full attention because its number is as large as the sequence is long, it says so.
#include <cmath>

#include "tests/attention/spec_of.h"
#include "tests/attention/trials.h"
#include "tests/nn/module_test.h"

using Catch::Matchers::ContainsSubstring;

namespace {

bool says_full(const Attention& attention, int64_t queries, int64_t keys) {
  return !full_attention_note(attention, queries, keys).empty();
}

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
    if (variant->name == std::string("full") || variant->name == std::string("replayed")) continue;  // full by name
    for (int64_t number : {int64_t(3), n - 2, n - 1, n, n + 1})
      for (int64_t top : {int64_t(3), n - 1, n, n + 1}) {
        const std::unique_ptr<Attention> attention = make_attention(spec_of(*variant, number, top));
        Generator weights(3);
        attention->initialize(2, 4, weights);
        INFO(attention->spec());
        CHECK(says_full(*attention, n, n) == is_full(*attention, n, n));
        full += says_full(*attention, n, n);
      }
  }
  CHECK(full > 20);
}

TEST_CASE("with as many clusters as queries or as many top keys as keys, attention is full", "[attention]") {
  const auto at = [](const char* spec, int64_t queries, int64_t keys) {
    const std::unique_ptr<Attention> attention = make_attention(spec);
    CHECK(says_full(*attention, queries, keys) == is_full(*attention, queries, keys));
    return says_full(*attention, queries, keys);
  };
  CHECK(at("clustered-5", 5, 9));
  CHECK_FALSE(at("clustered-5", 6, 5));
  CHECK(at("i-clustered-2:topk=5", 9, 5));
  CHECK_FALSE(at("i-clustered-2:topk=5", 9, 6));
  CHECK(at("i-clustered-9:topk=2", 9, 20));
  CHECK_FALSE(at("i-euclidean-8:topk=19", 9, 20));
  CHECK(at("oracle-top-5", 9, 5));
  CHECK_FALSE(at("oracle-top-5", 5, 6));
  CHECK(at("longformer-2:global=3", 6, 6));
  CHECK_FALSE(at("longformer-2:global=3", 7, 7));
  CHECK(at("strided-1", 9, 9));
  // The default of topk is 32.
  CHECK_THAT(full_attention_note(*make_attention("i-clustered-15"), 32, 32),
             ContainsSubstring("i-clustered-15 computes full attention here, because its 32 top keys are all 32 keys"));
  CHECK_THAT(full_attention_note(*make_attention("clustered-100"), 64, 64),
             ContainsSubstring("it has a group for each of the 64 queries"));
  CHECK(full_attention_note(*make_attention("i-clustered-15"), 33, 33).empty());
  CHECK(full_attention_note(*make_attention("full"), 33, 33).empty());
}
