#include "core/did_you_mean.h"

#include "core/error.h"
#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only

TEST_CASE("an unknown name is answered with the nearest one, if it is near", "[error]") {
  const std::vector<std::string> names{"full", "shared-full", "clustered", "i-clustered", "lsh"};
  CHECK(nearest("clusterd", names) == "clustered");
  CHECK(nearest("i-clusterd", names) == "i-clustered");
  CHECK(nearest("ful", names) == "full");
  CHECK(nearest("full", names) == "full");
  CHECK(nearest("fulll", names) == "full");
  CHECK(nearest("lhs", names) == "lsh");
  CHECK(nearest("reformer", names) == "");
  CHECK(nearest("x", {}) == "");
  CHECK(concat(did_you_mean("clusterd", names)) == " (did you mean 'clustered'?)");
  CHECK(concat(did_you_mean("reformer", names)) == "");
}
