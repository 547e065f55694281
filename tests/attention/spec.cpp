#include "nn/attention/attention.h"
#include "nn/transformer.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only
using Catch::Matchers::ContainsSubstring;

TEST_CASE("attention specifications are read", "[attention]") {
  for (const char* spec : {"full",
                           "shared-full",
                           "clustered-100",
                           "i-clustered-100",
                           "oracle-top-32",
                           "i-clustered-15:topk=16,bits=64",
                           "clustered-1:iterations=0,bias=false",
                           "full:scale=0.5",
                           "i-clustered-100:mass_gradient=false",
                           "position-4",
                           "i-position-4:shift=true,topk=3,mass_gradient=false",
                           "euclidean-4:iterations=0",
                           "i-euclidean-4:topk=3",
                           "linear",
                           "inducing-16",
                           "inducing-16:scale=0.5",
                           "lsh-4",
                           "lsh-1:chunk=64,buckets=6,bucket_mask=false,deduplicate=true,combine=logsumexp,scale=1",
                           "lsh-2:combine=mean",
                           "local-32",
                           "longformer-32",
                           "longformer-32:global=0",
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
      {"clusterd-15", "unknown attention 'clusterd-15' (did you mean 'clustered-15'?); there are full, shared-full"},
      {"iclustered-15", "did you mean 'i-clustered-15'?"},
      {"ful", "did you mean 'full'?"},
      {"", "unknown attention ''"},
      {"12", "unknown attention '12'; there are full"},
      {"wholly-different", "there are full"},
      {"full-3", "full takes no number"},
      {"clustered", "expected a number of clusters, as in clustered-100"},
      {"clustered-", "expected a number behind the dash"},
      {"clustered-0", "clusters = 0, expected 1 to 2147483647"},
      {"clustered--5", "clusters = -5, expected 1 to 2147483647"},
      {"clustered-15x", "expected a whole number of clusters, got '15x'"},
      {"clustered-99999999999999999999", "expected a whole number of clusters"},
      {"clustered-3000000000", "expected 1 to 2147483647"},
      {"oracle-top-0", "keys = 0, expected 1 to 2147483647"},
      {"i-clustered-15:topk=0", "option topk = 0, expected 1 to"},
      {"i-clustered-15:topk=-1", "option topk = -1"},
      {"i-clustered-15:topk=", "option topk: expected a whole number, got ''"},
      {"i-clustered-15:topk=1.5", "expected a whole number, got '1.5'"},
      {"i-clustered-15:bits=0", "option bits = 0, expected 1 to 64"},
      {"i-clustered-15:bits=65", "option bits = 65, expected 1 to 64"},
      {"i-clustered-15:iterations=-1", "option iterations = -1"},
      {"i-clustered-15:tokp=3", "unknown option 'tokp' (did you mean 'topk'?); it has scale, bits, iterations, bias"},
      {"clustered-15:topk=3", "unknown option 'topk'"},
      {"i-clustered-15:", "expected option=value behind the colon"},
      {"i-clustered-15:topk=3,", "expected option=value"},
      {"i-clustered-15:,topk=3", "expected option=value, got ''"},
      {"i-clustered-15:topk", "expected option=value, got 'topk'"},
      {"i-clustered-15:=3", "expected option=value, got '=3'"},
      {"i-clustered-15:topk=3,topk=4", "option 'topk' is given twice"},
      {"i-clustered-15:bias=yes", "option bias: expected true or false, got 'yes'"},
      {"linear:scale=0.5", "there is no option scale: the weights of linear attention are not made of scores"},
      {"linear:bits=3", "unknown option 'bits'; it has none"},
      {"linear-3", "linear takes no number"},
      {"inducing", "expected a number of points, as in inducing-100"},
      {"inducing-0", "points = 0, expected 1 to 2147483647"},
      {"euclidean-4:bits=3", "unknown option 'bits'; it has scale, iterations"},
      {"position", "expected a number of groups, as in position-100"},
      {"position-4:iterations=3", "unknown option 'iterations'; it has scale, shift"},
      {"local", "expected a number of neighbors, as in local-100"},
      {"local-0", "neighbors = 0, expected 1 to 2147483647"},
      {"strided-2147483648", "neighbors = 2147483648, expected 1 to 2147483647"},
      {"longformer-3:global=-1", "option global = -1, expected 0 to 2147483647"},
      {"longformer-3:global=2147483648", "option global = 2147483648, expected 0 to"},
      {"local-3:global=1", "unknown option 'global'"},
      {"full:scale=nan", "option scale: expected a finite number, got 'nan'"},
      {"full:scale=inf", "option scale: expected a finite number, got 'inf'"},
      {"full:scale=-1", "option scale = -1"},
      {"lsh", "expected a number of rounds, as in lsh-100"},
      {"lsh-0", "rounds = 0, expected 1 to 2147483647"},
      {"lsh-4:chunk=0", "option chunk = 0, expected 1 to"},
      {"lsh-4:buckets=-2", "option buckets = -2, expected 0 to"},
      {"lsh-4:buckets=7", "attention 'lsh-4': option buckets = 7, expected an even number"},
      {"lsh-4:combine=max", "option combine: expected logsumexp or mean, got 'max'"},
      {"lsh-4:combine=maen", "got 'maen' (did you mean 'mean'?)"},
      {"lsh-4:deduplicate=1", "option deduplicate: expected true or false, got '1'"},
      {"lsh-4:combine=mean,deduplicate=true", "option deduplicate=true: no key is seen twice in one round"},
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
  TransformerOptions options;
  options.layers = 1, options.heads = 2, options.head_size = 4, options.feed_forward = 8;
  options.attention = "full";
  Encoder separate(options, generator);
  CHECK_NOTHROW(separate.swap_attention("i-clustered-3"));
  CHECK_NOTHROW(separate.swap_attention("linear"));
  CHECK_THROWS_WITH(separate.swap_attention("inducing-3"), ContainsSubstring("one has parameters of its own"));
  for (const char* spec : {"shared-full", "lsh-2"})
    CHECK_THROWS_WITH(separate.swap_attention(spec), ContainsSubstring("has the queries for keys"));
  options.attention = "shared-full";
  Encoder shared(options, generator);
  for (const char* spec : {"full", "clustered-3", "oracle-top-2", "linear", "longformer-3", "shared-full", "lsh-2"})
    CHECK_NOTHROW(shared.swap_attention(spec));
  options.attention = "inducing-3";
  Encoder learned(options, generator);
  CHECK_THROWS_WITH(learned.swap_attention("full"), ContainsSubstring("one has parameters of its own"));
}
