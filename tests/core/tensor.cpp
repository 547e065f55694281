#include "core/tensor.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/ops/ops_test.h"

TEST_CASE("a tensor holds the numbers it was made from", "[tensor]") {
  const Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(x.bytes() == 24);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(Tensor::from<bool>({true, false}, {2}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(Tensor::from<uint64_t>({~uint64_t{0}}, {}).to_vector<uint64_t>() == std::vector<uint64_t>{~uint64_t{0}});
  CHECK_ERROR(Tensor::from<float>({1, 2}, {3}), "from: 2 values for the shape [3]");
}

TEST_CASE("a tensor is filled with a number of any type", "[tensor]") {
  CHECK(Tensor::full({2}, 1.5).to_vector<float>() == std::vector<float>{1.5, 1.5});
  CHECK(Tensor::full({2}, 2.9, DType::int32).to_vector<int32_t>() == std::vector<int32_t>{2, 2});
  CHECK(Tensor::full({1}, 1, DType::boolean).to_vector<bool>() == std::vector<bool>{true});
  CHECK(Tensor::full({1}, 1.5, DType::bfloat16).item() == 1.5);
  CHECK(Tensor::zeros({3}, DType::int64).to_vector<int64_t>() == std::vector<int64_t>{0, 0, 0});
}

TEST_CASE("a tensor without a value is undefined", "[tensor]") {
  Tensor x;
  CHECK_FALSE(x.defined());
  CHECK(x.version() == 0);
  CHECK(Tensor({0}).defined());
  CHECK_ERROR(x.data<float>(), "tensor: this tensor was never given a value");
  CHECK_ERROR(x.mutable_data<float>(), "tensor: this tensor was never given a value");
}

TEST_CASE("views share storage and version, clones do not", "[tensor]") {
  Tensor x = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  CHECK(x.unique());
  Tensor copy = x, flat = x.reshape({6}), rows = x.slice(1, 3), clone = x.clone();
  CHECK_FALSE(x.unique());
  CHECK(clone.unique());
  const uint64_t before = x.version(), cloned = clone.version();
  rows.mutable_data<float>()[0] = 30;
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 30, 4, 5, 6});
  CHECK(flat.to_vector<float>()[2] == 30);
  CHECK(copy.data<float>()[2] == 30);
  CHECK(clone.data<float>()[2] == 3);
  const uint64_t after = x.version();
  CHECK(after > before);
  CHECK((flat.version() == after && rows.version() == after));
  CHECK(clone.version() == cloned);
  x.data<float>();  // reading does not change it
  CHECK(x.version() == after);
}

TEST_CASE("a slice is a part of the first axis", "[tensor]") {
  const Tensor x = Tensor::from<int32_t>({0, 1, 2, 3, 4, 5, 6, 7}, {4, 2});
  CHECK(x.slice(1, 3).to_vector<int32_t>() == std::vector<int32_t>{2, 3, 4, 5});
  CHECK(x.slice(1, 4).slice(1, 2).to_vector<int32_t>() == std::vector<int32_t>{4, 5});
  CHECK(x.slice(2, 2).shape() == Shape{0, 2});
  CHECK(x.slice(3, 4).clone().to_vector<int32_t>() == std::vector<int32_t>{6, 7});
  CHECK(x.slice(3, 4).cast(DType::float64).to_vector<double>() == std::vector<double>{6, 7});
  CHECK(x.slice(3, 4).reshape({2}).slice(1, 2).item() == 7);
  CHECK(Tensor({0, 3}).slice(0, 0).shape() == Shape{0, 3});
  CHECK_ERROR(x.slice(-1, 2), "slice: rows -1 to 2 of [4, 2]");
  CHECK_ERROR(x.slice(3, 2), "slice: rows 3 to 2 of [4, 2]");
  CHECK_ERROR(x.slice(0, 5), "slice: rows 0 to 5 of [4, 2]");
  CHECK_ERROR(Tensor(Shape{}).slice(0, 0), "slice: a scalar has no rows");
}

TEST_CASE("a reshaped tensor has the same elements", "[tensor]") {
  const Tensor x = Tensor::from<int32_t>({0, 1, 2, 3}, {2, 2});
  CHECK(x.reshape({1, 2, 2}).shape() == Shape{1, 2, 2});
  CHECK(Tensor({0, 3}).reshape({5, 0}).elements() == 0);
  CHECK_ERROR(x.reshape({3}), "reshape: [2, 2] has 4 elements, [3] has 3");
}

TEST_CASE("copying into a tensor requires the same shape and type", "[tensor]") {
  Tensor x = Tensor::zeros({2, 2});
  const uint64_t before = x.version();
  x.slice(1, 2).copy_from(Tensor::from<float>({5, 6}, {1, 2}));
  CHECK(x.to_vector<float>() == std::vector<float>{0, 0, 5, 6});
  CHECK(x.version() > before);
  CHECK_ERROR(x.copy_from(Tensor({4})), "copy_from: expected float32 of shape [2, 2], got float32 of shape [4]");
  CHECK_ERROR(x.copy_from(Tensor({2, 2}, DType::int32)), "copy_from: expected float32 of shape [2, 2], got int32");
  CHECK(x.to(Device::cpu).data<float>() == x.data<float>());  // already there
}

TEST_CASE("one element can be read as a number", "[tensor]") {
  CHECK(Tensor::full({}, 2.5).item() == 2.5);
  CHECK(Tensor::full({1, 1}, -7, DType::int64).item() == -7);
  CHECK(Tensor::full({1}, 1, DType::boolean).item() == 1);
  CHECK_ERROR(Tensor({2}).item(), "item: expected one element, got a tensor of shape [2]");
  CHECK_ERROR(Tensor({0}).item(), "item: expected one element, got a tensor of shape [0]");
  CHECK_ERROR(Tensor().item(), "item: expected one element");
}

TEST_CASE("reading as another element type is an error", "[tensor]") {
  Tensor x({2, 3});
  CHECK_ERROR(x.data<double>(), "tensor: expected float64, got float32 of shape [2, 3]");
  CHECK_ERROR(x.mutable_data<int32_t>(), "tensor: expected int32, got float32 of shape [2, 3]");
  CHECK_ERROR(x.to_vector<bool>(), "tensor: expected bool, got float32 of shape [2, 3]");
}

TEST_CASE("numbers are cast between all element types", "[tensor]") {
  const DType all[] = {DType::float32, DType::float64, DType::bfloat16, DType::int32,
                       DType::int64,   DType::uint64,  DType::uint8,    DType::boolean};
  for (DType from : all)
    for (DType to : all) {
      INFO(name(from) << " to " << name(to));
      const Tensor x = Tensor::from<double>({0, 1, 5, 100}, {4}).cast(from).cast(to);
      CHECK(x.dtype() == to);
      const bool truth = from == DType::boolean || to == DType::boolean;
      CHECK(as_double(x) == (truth ? std::vector<double>{0, 1, 1, 1} : std::vector<double>{0, 1, 5, 100}));
    }
  CHECK(Tensor::from<double>({-1.9, 1.9}, {2}).cast(DType::int32).to_vector<int32_t>() == std::vector<int32_t>{-1, 1});
  CHECK(Tensor::from<double>({0.5, -0.0}, {2}).cast(DType::boolean).to_vector<bool>() ==
        std::vector<bool>{true, false});
  CHECK(Tensor::from<int64_t>({(int64_t{1} << 53) + 1}, {1}).cast(DType::uint64).to_vector<uint64_t>()[0] ==
        (uint64_t{1} << 53) + 1);
  const Tensor x({3}), empty({0, 2});
  CHECK(x.cast(DType::float32).data<float>() == x.data<float>());  // already of this type
  CHECK(empty.cast(DType::int32).shape() == Shape{0, 2});
}

static uint16_t bits_of(float x) { return bfloat16(x).bits; }

TEST_CASE("bfloat16 is the upper half of a float, rounded to nearest, ties to even", "[tensor]") {
  CHECK(bits_of(1.0f) == 0x3f80);
  CHECK(bits_of(-2.0f) == 0xc000);
  CHECK(bits_of(0.0f) == 0);
  CHECK(bits_of(-0.0f) == 0x8000);
  const float step = 0x1p-7f;                         // between neighbors at 1
  CHECK(bits_of(1 + step / 2) == 0x3f80);             // a tie, to even: down
  CHECK(bits_of(1 + step + step / 2) == 0x3f82);      // a tie, to even: up
  CHECK(bits_of(1 + step / 2 + 0x1p-23f) == 0x3f81);  // just above the tie
  CHECK(bits_of(1 + step / 2 - 0x1p-23f) == 0x3f80);
  CHECK(bits_of(-(1 + step + step / 2)) == 0xbf82);
  CHECK(bits_of(INFINITY) == 0x7f80);
  CHECK(bits_of(-INFINITY) == 0xff80);
  CHECK(bits_of(std::numeric_limits<float>::max()) == 0x7f80);  // rounds to infinity
  CHECK(bits_of(0x1p-133f) == 1);                               // the smallest number above zero
  // Every finite or infinite bfloat16 survives the round trip.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    bfloat16 x;
    x.bits = uint16_t(bits);
    if (std::isnan(float(x)))
      REQUIRE(std::isnan(float(bfloat16(float(x)))));
    else
      REQUIRE(bits_of(float(x)) == bits);
  }
}

TEST_CASE("a NaN stays a NaN in bfloat16, whatever its bits", "[tensor]") {
  for (uint32_t word : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const auto nan = std::bit_cast<float>(word);
    CHECK(std::isnan(float(bfloat16(nan))));
    CHECK((bfloat16(nan).bits >> 15) == (word >> 31));
  }
}

TEST_CASE("a tensor on a device that this build lacks is rejected", "[tensor]") {
  if (backends() != "cpu") return;
  CHECK_THROWS_AS(Tensor({2}).to(Device::cuda), DeviceError);
  CHECK_THROWS_WITH(Tensor({2}).to(Device::cuda), Catch::Matchers::ContainsSubstring("built without CUDA"));
  CHECK_NEEDS_CUDA(elsewhere({0}).cast(DType::int32), "cast");
}
