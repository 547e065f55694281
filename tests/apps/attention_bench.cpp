// The costs that attention-bench compares times with. commands.txt tests its commands. No test asserts times.
#include "apps/attention_bench/bench.h"

#include <utility>

#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only
using attention_bench::What;

TEST_CASE("the costs of attention follow its formulas", "[attention-bench]") {
  attention_bench::Problem p;  // 6 heads of 64
  p.what = What::attention, p.length = 4096, p.backward = false;
  p.attention = "full";
  CHECK(cost_of(p).flops == 1536.0 * 4096 * 4096);
  p.backward = true;
  CHECK(cost_of(p).flops == 5376.0 * 4096 * 4096);
  p.attention = "i-clustered-100";
  CHECK(cost_of(p).flops == (6 * 2 * 63 * 64 + 5376.0 * 132) * 4096);

  // Forward FLOPs per query and head of size 64, at length 4096.
  p.backward = false;
  const std::pair<const char*, double> cases[] = {{"shared-full", 4 * 64 * 4096},
                                                  {"clustered-100:bits=32", 2 * 32 * 64 + 4 * 64 * 100},
                                                  {"oracle-top-32", 2 * 64 * 4096 + 4 * 64 * 32},
                                                  {"position-100", 4 * 64 * 100},
                                                  {"i-position-100:topk=8", 4 * 64 * 108},
                                                  {"euclidean-100", 2 * 64 * 100 * 11 + 4 * 64 * 100},
                                                  {"i-euclidean-100:iterations=3", 2 * 64 * 100 * 4 + 4 * 64 * 132},
                                                  {"lsh-2", 2 * (64 * (12 + 12) + 4 * 64 * 64)},
                                                  {"lsh-1:chunk=16,buckets=8", 64 * 8 + 4 * 64 * 32},
                                                  {"local-8", 4 * 64 * 17},
                                                  {"local-9000", 4 * 64 * 4096},
                                                  {"longformer-8:global=4", 4 * 64 * 25},
                                                  {"strided-8", 4 * 64 * (17 + 512)},
                                                  {"inducing-16", 3 * 4 * 64 * 16},
                                                  {"linear", 4 * 64 * 64}};
  for (const auto& [spec, flops] : cases) {
    INFO(spec);
    p.attention = spec;
    CHECK(cost_of(p).flops == 6 * 4096 * flops);
  }
}
