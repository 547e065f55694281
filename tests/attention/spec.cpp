#include "nn/attention/attention.h"
#include "nn/transformer.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;

TEST_CASE("attention specifications are read", "[attention]") {
  for (const char* spec :
       {"full:scale=0.5", "shared-full", "clustered-1:iterations=0,bias=false",
        "i-clustered-15:topk=16,bits=64,refine=2,mass_gradient=false", "oracle-top-32", "position-4",
        "i-position-4:shift=true,topk=3,mass_gradient=false", "euclidean-4:iterations=0", "i-euclidean-4:topk=3",
        "linear", "inducing-16:scale=0.5", "lsh-1:chunk=64,buckets=6,bucket_mask=false,combine=logsumexp,scale=1",
        "lsh-2:combine=mean", "lsh-4:keys=own", "local-32", "local-4:dilation=3", "longformer-32:global=0",
        "strided-2147483647"}) {
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
      {"clustered-", "unknown attention 'clustered-' (did you mean 'clustered'?)"},
      {"clustered-0", "clusters: expected a whole number from 1 to 2147483647, got '0'"},
      {"clustered--5", "did you mean 'clustered-5'?"},
      {"clustered-15x", "unknown attention 'clustered-15x'"},
      {"clustered-99999999999999999999", "clusters: expected a whole number from 1 to 2147483647"},
      {"i-clustered-15:topk=0", "option topk: expected a whole number from 1 to 1048576, got '0'"},
      {"i-clustered-15:topk=", "option topk: expected a whole number from 1 to 1048576, got ''"},
      {"i-clustered-15:topk=1.5", "got '1.5'"},
      {"i-clustered-15:iterations=-1", "option iterations: expected a whole number from 0 to 1000, got '-1'"},
      {"i-clustered-15:", "expected option=value, got ''"},
      {"i-clustered-15:topk=3,", "expected option=value, got ''"},
      {"i-clustered-15:,topk=3", "expected option=value, got ''"},
      {"i-clustered-15:topk", "expected option=value, got 'topk'"},
      {"i-clustered-15:=3", "expected option=value, got '=3'"},
      {"i-clustered-15:topk=3,topk=4", "option 'topk' is given twice"},
      {"i-clustered-15:bias=yes", "option bias: expected true or false, got 'yes'"},
      {"linear:scale=0.5", "unknown option 'scale'; it has none"},
      {"linear:bits=3", "unknown option 'bits'; it has none"},
      {"position-4:iterations=3", "unknown option 'iterations'; it has scale, shift"},
      {"strided-2147483648", "neighbors: expected a whole number from 1 to 2147483647"},
      {"local-3:dilation=0", "option dilation: expected a whole number from 1 to 2147483647, got '0'"},
      {"longformer-3:global=-1", "option global: expected a whole number from 0 to 2147483647"},
      {"full:scale=nan", "option scale: expected a number from 0 to 1e+06, got 'nan'"},
      {"full:scale=-1", "got '-1'"},
      {"lsh-4:buckets=7", "attention 'lsh-4': option buckets = 7, expected an even number"},
      {"lsh-4:keys=queres", "option keys: expected queries or own, got 'queres'"},
      {"lsh-4:combine=maen", "option combine: expected logsumexp or mean, got 'maen'"},
  };
  for (const auto& [spec, expected] : cases) {
    INFO(spec);
    CHECK_THAT(message(spec), ContainsSubstring(expected));
  }
}

TEST_CASE("defaults fill what a specification leaves open, where the variant has the option", "[attention]") {
  const std::map<std::string, std::string> defaults{{"topk", "0"}};  // out of range, so that its use shows
  CHECK_THROWS_WITH(make_attention("i-clustered-15", defaults), ContainsSubstring("option topk: expected"));
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
