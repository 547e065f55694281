#include "core/error.h"

#include "tests/ops/ops_test.h"

TEST_CASE("every kind of error has its exit code", "[error]") {
  CHECK(Error("x").exit_code() == 1);
  CHECK(UsageError("x").exit_code() == 2);
  CHECK(DataError("x").exit_code() == 3);
  CHECK(DeviceError("x").exit_code() == 4);
  CHECK(DivergedError("x").exit_code() == 5);
  CHECK(std::string(DataError("what was wrong").what()) == "what was wrong");
}

TEST_CASE("check throws what it is asked to, with its arguments one after another", "[error]") {
  CHECK_NOTHROW(check(true, "never"));
  CHECK_THROWS_WITH(check(false, "got ", 3, " of ", Shape{2, 4}), "got 3 of [2, 4]");
  CHECK_THROWS_AS(check<UsageError>(false, "x"), UsageError);
  CHECK(concat("a", 1, 'b', 2.5) == "a1b2.5");
}

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
  CHECK(did_you_mean("clusterd", names) == " (did you mean 'clustered'?)");
  CHECK(did_you_mean("reformer", names) == "");
}
