#include "core/error.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "core/did_you_mean.h"
#include "tests/ops/ops_test.h"

TEST_CASE("check throws the given type of error, with its arguments joined", "[error]") {
  CHECK_THROWS_WITH(check(false, "got ", 3, " of ", Shape{2, 4}), "got 3 of [2, 4]");
  CHECK_THROWS_AS(check<UsageError>(false, "x"), UsageError);
}

namespace error_test {
// Counts how often it is printed.
struct Counted {
  int* written;
};
static void append(std::string& text, const Counted& counted) { text += std::to_string(++*counted.written); }
}  // namespace error_test

TEST_CASE("a message is built only when it is needed", "[error]") {
  int written = 0;
  const error_test::Counted counted{&written};
  check(true, "never ", counted);
  CHECK(written == 0);
  CHECK_THROWS_WITH(check(false, "once: ", counted), "once: 1");
}

TEST_CASE("an error for an unknown name suggests the nearest one, if it is near", "[error]") {
  const std::vector<std::string> names{"full", "shared-full", "clustered", "i-clustered", "lsh"};
  CHECK(nearest("i-clusterd", names) == "i-clustered");
  CHECK(nearest("ful", names) == "full");
  CHECK(nearest("fulll", names) == "full");
  CHECK(nearest("lhs", names) == "lsh");
  CHECK(nearest("reformer", names) == "");
  CHECK(nearest("x", {}) == "");
  CHECK(nearest(std::string(1 << 20, 'x'), {std::string(1 << 20, 'y')}) == "");  // time grows with the square
  CHECK(concat(did_you_mean("clusterd", names), did_you_mean("reformer", names)) == " (did you mean 'clustered'?)");
}

TEST_CASE("messages print values readably", "[error]") {
  const std::string text = "text";
  const std::error_code error = std::make_error_code(std::errc::permission_denied);
  CHECK(concat("a", text, std::string_view("b"), 'c', true, false) == "atextbc10");
  CHECK(concat(INT64_MIN, ' ', UINT64_MAX, ' ', int8_t(-3), ' ', uint8_t(65)) ==
        "-9223372036854775808 18446744073709551615 -3 65");
  CHECK(concat(std::filesystem::path("a/b"), ": ", error) == "a/b: " + error.message());
  char expected[32];
  for (const double x : {0.0, -0.0, 1.0, 0.1, 1e-5, 123456.0, 1234567.0, 1.0 / 3, -1e300, 5e-324, 99999.95}) {
    std::snprintf(expected, sizeof expected, "%g", x);
    CHECK(concat(x) == expected);
  }
  CHECK(concat(0.1F, ' ', INFINITY, ' ', -INFINITY) == "0.1 inf -inf");
}
