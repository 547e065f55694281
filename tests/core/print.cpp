#include <cmath>
#include <sstream>

#include "tests/ops/ops_test.h"

// The expected texts are NumPy's (print(np.array(...)), precision 4), except after the brackets.
TEST_CASE("a tensor is printed as NumPy does", "[tensor]") {
  const auto expect_text = [](const Tensor& x, const std::string& text) {
    std::ostringstream out;
    out << x;
    CHECK(out.str() == text);
  };
  expect_text(Tensor::of<float>({{1, -2.5}, {3, 40}}), "[[ 1.  -2.5]\n [ 3.  40. ]] (float32 [2, 2], cpu)");
  expect_text(Tensor::of<double>({1, 2}), "[1. 2.] (float64 [2], cpu)");
  expect_text(Tensor::of<float>({0.33333F, 12}), "[ 0.3333 12.    ] (float32 [2], cpu)");
  expect_text(Tensor::of<float>({1e-6F, 1}), "[1.e-06 1.e+00] (float32 [2], cpu)");
  expect_text(Tensor::of<float>({1.5e7F, -1}), "[ 1.5e+07 -1.0e+00] (float32 [2], cpu)");
  expect_text(Tensor::of<float>({NAN, INFINITY, -INFINITY, 0}), "[ nan  inf -inf   0.] (float32 [4], cpu)");
  expect_text(Tensor::of<int32_t>({5, -10}), "[  5 -10] (int32 [2], cpu)");
  expect_text(Tensor::of<uint8_t>({5, 255}), "[  5 255] (uint8 [2], cpu)");
  expect_text(Tensor::of<bool>({true, false}), "[ true false] (bool [2], cpu)");
  expect_text(Tensor::of<float>({0.5}).cast(DType::bfloat16), "[0.5] (bfloat16 [1], cpu)");
  expect_text(Tensor::full({}, 2.5), "2.5 (float32 [], cpu)");
  expect_text(Tensor({0}), "[] (float32 [0], cpu)");
  expect_text(Tensor({2, 0}), "[[]\n []] (float32 [2, 0], cpu)");
  expect_text(Tensor::of<int64_t>({{{1}, {2}}, {{3}, {4}}}), "[[[1]\n  [2]]\n\n [[3]\n  [4]]] (int64 [2, 2, 1], cpu)");
  expect_text(Tensor(), "(no tensor)");
}

TEST_CASE("printing a large tensor shows its ends, and breaks long rows", "[tensor]") {
  std::vector<int32_t> numbers(2000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = int32_t(i);
  CHECK(to_string(Tensor::from(numbers, {2000})) == "[   0    1    2 ... 1997 1998 1999] (int32 [2000], cpu)");
  CHECK(to_string(Tensor::from(numbers, {2, 1000})) ==
        "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]] (int32 [2, 1000], cpu)");
  CHECK(to_string(Tensor::from(numbers, {500, 4})) ==
        "[[   0    1    2    3]\n [   4    5    6    7]\n [   8    9   10   11]\n ...\n [1988 1989 1990 1991]\n"
        " [1992 1993 1994 1995]\n [1996 1997 1998 1999]] (int32 [500, 4], cpu)");
  const std::string row = to_string(Tensor::full({50}, 1.25));
  CHECK(row.find('\n') <= 80);
  CHECK(row.find('\n') > 70);
  CHECK(row.find("\n 1.25") == row.find('\n'));
}

TEST_CASE("a tensor is created from nested braces and read by index", "[tensor]") {
  const Tensor x = Tensor::of<float>({{1, 2, 3}, {4, 5, 6}});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.at<float>({1, 0}) == 4);
  CHECK(x.slice(1, 2).at<float>({0, 2}) == 6);
  CHECK(Tensor::of<int32_t>({{1}, {2}}).shape() == Shape{2, 1});
  CHECK(Tensor::of<int32_t>({{1, 2}}).shape() == Shape{1, 2});
  CHECK(Tensor::of<double>(2).at<double>({}) == 2);
  CHECK(Tensor::of<bool>({false, true}).at<bool>({1}));
  CHECK_ERROR(Tensor::of<float>({{1, 2}, {3}}), "of: a row of shape [1] beside one of shape [2]");
  CHECK_ERROR(x.at<float>({1}), "at: 1 indices for the shape [2, 3]");
  CHECK_ERROR(x.at<float>({1, 3}), "at: index 3 of axis 1 is out of range for [2, 3]");
  CHECK_ERROR(x.at<float>({-1, 0}), "at: index -1 of axis 0 is out of range for [2, 3]");
  CHECK_ERROR(x.at<double>({0, 0}), "tensor: expected float64, got float32 of shape [2, 3]");
}
