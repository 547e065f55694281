#include "core/shape.h"

#include "tests/ops/ops_test.h"

TEST_CASE("a shape knows its sizes, from either end, and its number of elements", "[shape]") {
  const Shape shape{2, 3, 5};
  CHECK(shape.rank() == 3);
  CHECK(shape.elements() == 30);
  CHECK(shape[-3] == 2);
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{4, 0, 7}.elements() == 0);
  CHECK(Shape{2} != Shape{2, 1});
  CHECK(Shape{0} != Shape{});
  CHECK(shape.with(-1, 0) == Shape{2, 3, 0});
  CHECK(shape.without(-1) == Shape{2, 3});  // the axis leaves no trace
  CHECK(shape.without(0) == Shape{3, 5});
  CHECK(to_string(shape) == "[2, 3, 5]");
  CHECK(to_string(Shape{}) == "[]");
}

TEST_CASE("impossible shapes are rejected", "[shape]") {
  CHECK_ERROR((Shape{2, -1}), "shape: negative size -1 of axis 1");
  CHECK_ERROR((Shape{1, 1, 1, 1, 1, 1, 1}), "shape: more than 6 axes");
  CHECK_ERROR((Shape{int64_t{1} << 32, int64_t{1} << 31}), "shape: too many elements in [4294967296, 2147483648]");
  CHECK((Shape{int64_t{1} << 31, int64_t{1} << 31}.elements()) == int64_t{1} << 62);
  CHECK_ERROR((Shape{2, 3}[2]), "shape: axis 2 out of range for [2, 3]");
  CHECK_ERROR((Shape{2, 3}[-3]), "shape: axis -3 out of range for [2, 3]");
  CHECK_ERROR(Shape{}[0], "shape: axis 0 out of range for []");
  CHECK_ERROR((Shape{2, 3}.without(2)), "shape: axis 2 out of range");
  CHECK_ERROR((Shape{2, 3}.with(0, -1)), "shape: negative size -1");
}

TEST_CASE("shapes broadcast as in NumPy", "[shape]") {
  const auto both = [](const Shape& a, const Shape& b, const Shape& expected) {
    INFO(a << " and " << b);
    CHECK(broadcast(a, b, "add") == expected);
    CHECK(broadcast(b, a, "add") == expected);
  };
  both({}, {}, {});
  both({}, {2, 3}, {2, 3});
  both({3}, {2, 3}, {2, 3});
  both({2, 1}, {1, 3}, {2, 3});
  both({2, 1, 4}, {3, 1}, {2, 3, 4});
  both({1}, {0}, {0});  // broadcast to size 0
  both({2, 0}, {1, 1}, {2, 0});
  both({1, 2, 1, 4, 1, 6}, {3, 1, 5, 1}, {1, 2, 3, 4, 5, 6});
  CHECK_ERROR(broadcast({2, 3}, {4, 3}, "add"),
              "add: shapes [2, 3] and [4, 3] do not broadcast: sizes 2 and 4 of axis 0 differ and neither is 1");
  CHECK_ERROR(broadcast({2}, {0}, "add"), "add: shapes [2] and [0] do not broadcast");
  CHECK_ERROR(broadcast({2, 3}, {2}, "add"), "add: shapes [2, 3] and [2] do not broadcast: sizes 3 and 2 of axis 1");
}
