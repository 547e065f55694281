#include "nn/attention/attention.h"
#include "nn/transformer.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;

TEST_CASE("attention specifications are read", "[attention]") {
  for (const char* spec : {"full:scale=0.5", "shared-full", "clustered-1:iterations=0,bias=false",
                           "i-clustered-15:topk=16,bits=64,refine=2,mass_gradient=false", "oracle-top-32", "position-4",
                           "i-position-4:shift=true,topk=3,mass_gradient=false", "euclidean-4:iterations=0",
                           "i-euclidean-4:topk=3", "linear", "inducing-16:scale=0.5",
                           "lsh-1:chunk=64,buckets=6,bucket_mask=false,deduplicate=true,combine=logsumexp,scale=1",
                           "lsh-2:combine=mean", "local-32", "longformer-32:global=0", "strided-2147483647"}) {
    INFO(spec);
    CHECK(make_attention(spec)->spec() == spec);
  }
}

TEST_CASE("a bad attention specification is refused with what was close and what exists", "[attention]") {
  const auto message = [](const char* spec) -> std::string {
    try {
      make_attention(spec);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::pair<const char*, const char*> cases[] = {
      // tests/apps/commands.txt has others
      {"iclustered-15", "did you mean 'i-clustered-15'?"},
      {"ful", "did you mean 'full'?"},
      {"12", "unknown attention '12'; the variants are full"},
      {"wholly-different", "the variants are full"},
      {"full-3", "full takes no number"},
      {"clustered-", "expected a number after the dash"},
      {"clustered-0", "clusters = 0, expected 1 to 2147483647"},
      {"clustered--5", "clusters = -5, expected 1 to 2147483647"},
      {"clustered-15x", "expected a whole number of clusters, got '15x'"},
      {"clustered-99999999999999999999", "expected a whole number of clusters"},
      {"i-clustered-15:topk=0", "option topk = 0, expected 1 to"},
      {"i-clustered-15:topk=", "option topk: expected a whole number, got ''"},
      {"i-clustered-15:topk=1.5", "expected a whole number, got '1.5'"},
      {"i-clustered-15:iterations=-1", "option iterations = -1"},
      {"i-clustered-15:", "expected option=value after the colon"},
      {"i-clustered-15:topk=3,", "expected option=value"},
      {"i-clustered-15:,topk=3", "expected option=value, got ''"},
      {"i-clustered-15:topk", "expected option=value, got 'topk'"},
      {"i-clustered-15:=3", "expected option=value, got '=3'"},
      {"i-clustered-15:topk=3,topk=4", "option 'topk' is given twice"},
      {"i-clustered-15:bias=yes", "option bias: expected true or false, got 'yes'"},
      {"linear:scale=0.5", "there is no option scale: the weights of linear attention are not made of scores"},
      {"linear:bits=3", "unknown option 'bits'; it has none"},
      {"position-4:iterations=3", "unknown option 'iterations'; it has scale, shift"},
      {"strided-2147483648", "neighbors = 2147483648, expected 1 to 2147483647"},
      {"longformer-3:global=-1", "option global = -1, expected 0 to 2147483647"},
      {"full:scale=nan", "option scale: expected a finite number, got 'nan'"},
      {"full:scale=-1", "option scale = -1"},
      {"lsh-4:buckets=7", "attention 'lsh-4': option buckets = 7, expected an even number"},
      {"lsh-4:combine=maen", "option combine: expected logsumexp or mean, got 'maen' (did you mean 'mean'?)"},
      {"lsh-4:combine=mean,deduplicate=true",
       "option deduplicate=true has no effect with combine=mean: one round sees no key twice"},
  };
  for (const auto& [spec, expected] : cases) {
    INFO(spec);
    CHECK_THAT(message(spec), ContainsSubstring(expected));
  }
}

TEST_CASE("defaults fill what a specification leaves open, where the variant has the option", "[attention]") {
  const std::map<std::string, std::string> defaults{{"topk", "0"}};  // out of range, so that its use shows
  CHECK_THROWS_WITH(make_attention("i-clustered-15", defaults), ContainsSubstring("option topk = 0"));
  CHECK_NOTHROW(make_attention("i-clustered-15:topk=3", defaults));
  CHECK_NOTHROW(make_attention("full", defaults));
  CHECK_NOTHROW(make_attention("linear", {{"scale", "0.5"}}));
}

TEST_CASE("weights run under another variant, except shared-full and lsh without shared weights", "[attention]") {
  Generator generator(1);
  const auto swapped = [&](const char* from, const char* to) {
    TransformerOptions options;
    options.layers = 1, options.heads = 2, options.head_size = 4, options.feed_forward = 8;
    options.attention = from;
    Encoder(options, generator).swap_attention(to);
  };
  CHECK_NOTHROW(swapped("full", "i-clustered-3"));
  for (const char* to : {"full", "linear", "shared-full", "lsh-2"}) CHECK_NOTHROW(swapped("shared-full", to));
  for (const char* to : {"shared-full", "lsh-2"})
    CHECK_THROWS_WITH(swapped("full", to), ContainsSubstring("uses the queries as keys"));
  CHECK_THROWS_WITH(swapped("full", "inducing-3"), ContainsSubstring("one has parameters of its own"));
  CHECK_THROWS_WITH(swapped("inducing-3", "full"), ContainsSubstring("one has parameters of its own"));
}
