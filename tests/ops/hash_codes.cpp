#include <bit>
#include <cmath>
#include <cstdlib>

#include "core/random.h"
#include "tests/ops/operation.h"

static Draw test_draw(uint64_t seed = 1, uint64_t step = 0, uint32_t layer = 0) {
  Generator generator(seed);
  generator.set_step(step);
  return generator.draw(layer, Purpose::planes);
}

// One chain of fused multiply-adds per bit, in float32.
static std::vector<uint64_t> reference_codes(const Tensor& q, const Tensor& planes) {
  const auto x = q.cast(DType::float32).to_vector<float>(), p = planes.to_vector<float>();
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), bits = planes.size(0);
  std::vector<uint64_t> codes;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < N; ++i) {
        uint64_t code = 0;
        for (int64_t j = 0; j < bits; ++j) {
          float product = 0;
          for (int64_t d = 0; d < D; ++d)
            product = std::fma(x[size_t(((b * N + i) * H + h) * D + d)], p[size_t(j * (D + 1) + d)], product);
          if (product > p[size_t(j * (D + 1) + D)]) code |= uint64_t{1} << j;
        }
        codes.push_back(code);
      }
  return codes;
}

// The upper and the lower half of each code: results are compared as double, which holds no 64 bits.
static Tensor halves(const std::vector<uint64_t>& codes) {
  std::vector<int64_t> result;
  for (const uint64_t code : codes) result.insert(result.end(), {int64_t(code >> 32), int64_t(code & 0xffffffff)});
  return Tensor::from(result, {int64_t(codes.size()), 2});
}

// To the bit: chains of fused multiply-adds.
OPERATION("hash_codes") {
  op.forward = [](const Variables& t) {
    const Tensor codes = hash_codes(t[0].value(), t[1].value().cast(DType::float32));
    return Variables{Variable(halves(codes.to_vector<uint64_t>()))};
  };
  op.reference = [](const Tensors& t) { return Tensors{halves(reference_codes(t[0], t[1].cast(DType::float32)))}; };
  const auto add = [&](const std::string& what, const Tensor& q, int bits, bool bias) {
    const Tensor planes = random_planes(bits, q.size(3), bias, test_draw(), Device::cpu);
    op.add(concat(what, ' ', q.shape(), " in ", bits, " bits", bias ? " with a bias" : ""),
           {q, planes.cast(DType::float64)});
  };
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 7, 3, 5}, Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4},
                             Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0}, Shape{2, 67, 3, 5}, Shape{1, 127, 1, 31},
                             Shape{1, 128, 1, 32}, Shape{3, 43, 1, 33}, Shape{1, 300, 2, 64}, Shape{2, 35, 2, 131}})
    for (const int bits : {1, 20, 31, 32, 33, 63, 64})
      for (const bool bias : {false, true}) add("of", normal(shape, 5), bits, bias);
  for (const int bits : {32, 64})
    add("of zeros, NaN and infinities",
        with(Tensor::zeros({1, 7, 1, 5}, DType::float64),
             {{3, NAN}, {5, INFINITY}, {11, -INFINITY}, {15, INFINITY}, {16, -INFINITY}, {22, -0.0}}),
        bits, true);
}

OPERATION("random_planes") {
  for (const int bits : {1, 3, 32, 33, 64})
    for (const bool bias : {false, true})
      for (const int64_t D : {0, 1, 7, 129}) {
        // The operand only says on which device.
        Case& test = op.add(concat(bits, " bits of ", D, bias ? " with a bias" : ""), {Tensor({0}, DType::int32)});
        test.forward = [=](const Variables& t) {
          return Variables{Variable(random_planes(bits, D, bias, test_draw(), t[0].device()))};
        };
        // A number does not depend on how many bits there are.
        test.reference = [=](const Tensors&) {
          const PhiloxKey key = test_draw().for_kernel().key();
          std::vector<double> values;
          for (int j = 0; j < bits; ++j)
            for (int64_t d = 0; d <= D; ++d)
              values.push_back(d < D || bias ? double(normal(key, uint32_t(j), uint32_t(d))) : 0);
          return Tensors{from_doubles(values, {bits, D + 1})};
        };
        test.gradient = false;  // none
        test.tolerance = 0;
      }
  op.rounds_once = false;  // float32 always
}

TEST_CASE("the products of hash codes are fused, and added in order", "[hash_codes]") {
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24, whose last term is lost where the product is rounded before it is added, or
  // first in the chain.
  const float x = 1 + 0x1p-12f, y = 1 + 0x1p-11f;
  const Tensor planes = Tensor::from<float>({1, x, 0}, {1, 3});
  CHECK(hash_codes(Tensor::from<float>({-y, x}, {1, 1, 1, 2}), planes).to_vector<uint64_t>()[0] == 1);
  const Tensor swapped = Tensor::from<float>({x, 1, 0}, {1, 3});
  CHECK(hash_codes(Tensor::from<float>({x, -y}, {1, 1, 1, 2}), swapped).to_vector<uint64_t>()[0] == 0);
}

TEST_CASE("hash codes of float64 are those of the numbers rounded to float32", "[hash_codes]") {
  // In double this product is above the threshold, in float32 it equals it.
  const Tensor planes = Tensor::from<float>({1, 1}, {1, 2});
  CHECK(hash_codes(Tensor::from<double>({1 + 1e-12}, {1, 1, 1, 1}), planes).to_vector<uint64_t>()[0] == 0);
  CHECK(hash_codes(Tensor::from<double>({1 + 1e-6}, {1, 1, 1, 1}), planes).to_vector<uint64_t>()[0] == 1);
}

TEST_CASE("a query with a NaN has a code of zeros, and changes no other", "[hash_codes]") {
  Tensor q = random_tensor({1, 9, 1, 4}, DType::float32);
  const Tensor planes = random_planes(64, 4, true, test_draw(), Device::cpu);
  auto expected = hash_codes(q, planes).to_vector<uint64_t>();
  CHECK(expected[3] != 0);
  q.mutable_data<float>()[3 * 4 + 2] = NAN;
  expected[3] = 0;
  CHECK(hash_codes(q, planes).to_vector<uint64_t>() == expected);
}

TEST_CASE("the expected Hamming distance of two codes is the angle of their queries over pi", "[hash_codes]") {
  // With a bias, of the queries with -1 appended.
  const int64_t pairs = 4, D = 6;
  const Tensor q = random_tensor({1, 2 * pairs, 1, D}, DType::float32, 17);
  const float* x = q.data<float>();
  for (bool bias : {false, true}) {
    std::vector<double> distance(size_t(pairs), 0.0);
    const int calls = 4000, bits = 64;
    for (int call = 0; call < calls; ++call) {
      const auto codes =
          hash_codes(q, random_planes(bits, D, bias, test_draw(3, uint64_t(call)), Device::cpu)).to_vector<uint64_t>();
      for (size_t i = 0; i < size_t(pairs); ++i) distance[i] += std::popcount(codes[2 * i] ^ codes[2 * i + 1]);
    }
    for (int64_t i = 0; i < pairs; ++i) {
      const float *a = x + 2 * i * D, *b = a + D;
      double ab = bias, aa = bias, bb = bias;
      for (int64_t d = 0; d < D; ++d) ab += a[d] * b[d], aa += a[d] * a[d], bb += b[d] * b[d];
      const double angle = std::acos(ab / std::sqrt(aa * bb)) / std::acos(-1.0);
      INFO("bias " << bias << " pair " << i);
      CHECK(std::abs(distance[size_t(i)] / (double(calls) * bits) - angle) <= tolerance::hash_angle);
    }
  }
}

TEST_CASE("hash_codes refuses what it cannot compute", "[hash_codes]") {
  const Tensor q({2, 3, 4, 5}), planes({63, 6});
  CHECK_ERROR(random_planes(0, 4, true, test_draw(), Device::cpu), "random_planes: bits = 0, expected 1 to 64");
  CHECK_THROWS_AS(random_planes(65, 4, true, test_draw(), Device::cpu), UsageError);
  CHECK_ERROR(hash_codes(Tensor(), planes), "hash_codes: q was never given a value");
  CHECK_ERROR(hash_codes(q.reshape({2, 3, 20}), planes),
              "hash_codes: expected q of shape [B, N, H, D], got [2, 3, 20]");
  CHECK_ERROR(hash_codes(q.cast(DType::int32), planes), "hash_codes: q must be floating, got int32");
  CHECK_ERROR(hash_codes(q, Tensor()), "hash_codes: planes was never given a value");
  CHECK_ERROR(hash_codes(q, planes.cast(DType::float64)), "hash_codes: expected planes to be float32, got float64");
  CHECK_ERROR(hash_codes(q, Tensor({63, 5})), "hash_codes: expected planes of shape [bits, 6], got [63, 5]");
  CHECK_ERROR(hash_codes(q, Tensor({65, 6})), "hash_codes: bits = 65, expected 1 to 64");
  CHECK_ERROR(hash_codes(q, Tensor({0, 6})), "hash_codes: bits = 0, expected 1 to 64");
  CHECK_ERROR(hash_codes(q, elsewhere({0, 6})), "hash_codes: planes is on cuda, q on cpu");
}
