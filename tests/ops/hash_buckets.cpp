#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/kernels/hash_buckets.h"
#include "core/random.h"
#include "tests/ops/operation.h"

static Draw test_draw(uint64_t seed = 1, uint64_t step = 0, uint32_t layer = 0) {
  Generator generator(seed);
  generator.set_step(step);
  return generator.draw(layer, Purpose::rotations);
}

// One chain of fused multiply-adds per column, in float32, then the argmax over these and their negatives.
static std::vector<int32_t> reference(const Tensor& q, const Tensor& rotations, const std::vector<int32_t>& lengths,
                                      const BucketCount& count) {
  const auto x = q.cast(DType::float32).to_vector<float>(), r = rotations.to_vector<float>();
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), columns = rotations.size(1);
  std::vector<int32_t> buckets;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t round = 0; round < rotations.size(0); ++round)
        for (int64_t i = 0; i < N; ++i) {
          const int64_t n = lengths.empty() ? N : lengths[size_t(b)], half = count(n) / 2;
          std::vector<float> y(size_t(2 * half));
          for (int64_t j = 0; j < half; ++j) {
            float product = 0;
            for (int64_t d = 0; d < D; ++d)
              product =
                  std::fma(x[size_t(((b * N + i) * H + h) * D + d)], r[size_t((round * columns + j) * D + d)], product);
            y[size_t(j)] = product, y[size_t(half + j)] = -product;
          }
          buckets.push_back(i < n ? int32_t(std::max_element(y.begin(), y.end()) - y.begin()) : -1);
        }
  return buckets;
}

// To the bit: chains of fused multiply-adds.
OPERATION("hash_buckets") {
  const auto add = [&](const std::string& what, const Tensor& q, const BucketCount& count, const Tensor& lengths) {
    const Tensor rotations = random_rotations(3, count(q.size(1)) / 2 + 1, q.size(3), test_draw(), Device::cpu);
    Case& test = op.add(concat(what, ' ', q.shape(), " in ", count(q.size(1)), " buckets"),
                        {q, rotations.cast(DType::float64), lengths});
    test.forward = [=](const Variables& t) {
      return Variables{Variable(hash_buckets(t[0].value(), t[1].value().cast(DType::float32), t[2].value(), count))};
    };
    test.reference = [=](const Tensors& t) {
      const Shape& shape = t[0].shape();
      return Tensors{Tensor::from(reference(t[0], t[1].cast(DType::float32), t[2].to_vector<int32_t>(), count),
                                  {shape[0], shape[2], 3, shape[1]})};
    };
  };
  for (const Shape& shape :
       {Shape{1, 1, 1, 1}, Shape{2, 7, 3, 5}, Shape{3, 300, 1, 32}, Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4},
        Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0}, Shape{2, 67, 3, 5}, Shape{1, 129, 1, 33}, Shape{2, 300, 2, 64}})
    for (const BucketCount& count : {BucketCount{2, 32}, BucketCount{0, 1}, BucketCount{0, 4}, BucketCount{0, 1000},
                                     BucketCount{134, 32}, BucketCount{258, 32}})
      for (const bool all : {false, true})
        add(all ? "of" : "with lengths", normal(shape, 5), count,
            integers({shape[0]}, all ? int(shape[1]) : 0, int(shape[1])));
  for (const int64_t count : {2, 80})
    add("of zeros, NaN and infinities",
        with(Tensor::zeros({1, 7, 1, 5}, DType::float64),
             {{3, NAN}, {5, INFINITY}, {11, -INFINITY}, {15, INFINITY}, {16, -INFINITY}, {22, -0.0}}),
        {count, 32}, int32s({7}));
}

OPERATION("random_rotations") {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 7, 5}, Shape{2, 33, 129}, Shape{2, 3, 0}}) {
    // The operand only says on which device.
    Case& test = op.add(concat(shape), {Tensor({0}, DType::int32)});
    test.forward = [=](const Variables& t) {
      return Variables{Variable(random_rotations(shape[0], shape[1], shape[2], test_draw(), t[0].device()))};
    };
    // A number does not depend on how many rounds and columns there are.
    test.reference = [=](const Tensors&) {
      const PhiloxKey key = test_draw().for_kernel().key();
      std::vector<double> values;
      for (int64_t round = 0; round < shape[0]; ++round)
        for (int64_t column = 0; column < shape[1]; ++column)
          for (int64_t d = 0; d < shape[2]; ++d)
            values.push_back(double(normal(key, uint32_t(column), uint32_t(d), uint32_t(round))));
      return Tensors{from_doubles(values, shape)};
    };
    test.gradient = false;  // none
    test.tolerance = 0;
  }
  op.rounds_once = false;  // float32 always
}

TEST_CASE("there is a bucket for each chunk, an even number of them, at least 2", "[hash_buckets]") {
  const BucketCount count{0, 32};
  for (const auto& [n, expected] : {std::pair{0, 2}, {1, 2}, {64, 2}, {65, 4}, {128, 4}, {129, 6}, {4096, 128}})
    CHECK(count(n) == expected);
  CHECK(BucketCount{0, 0x7ffffffe}(0x7fffffff) == 2);
  CHECK(BucketCount{6, 32}(10000) == 6);
}

TEST_CASE("equal largest projections go to the lowest bucket", "[hash_buckets]") {
  const Tensor rotations = Tensor::from<float>({1, 2, 2}, {1, 3, 1});
  const auto bucket = [&](float x) {
    return hash_buckets(Tensor::from<float>({x}, {1, 1, 1, 1}), rotations, {}, {6, 32}).to_vector<int32_t>()[0];
  };
  CHECK(bucket(1) == 1);   // 1 2 2 | -1 -2 -2
  CHECK(bucket(-1) == 4);  // -1 -2 -2 | 1 2 2
  CHECK(bucket(0) == 0);
  CHECK(bucket(-0.0f) == 0);
  CHECK(bucket(INFINITY) == 0);
  CHECK(bucket(-INFINITY) == 3);
  CHECK(bucket(NAN) == 0);
}

TEST_CASE("buckets are those of float32 however close the largest are, and of numbers of any size", "[hash_buckets]") {
  const int64_t columns = 40, N = 270;
  const auto check_buckets = [&](const Tensor& q, const Tensor& rotations) {
    CHECK(hash_buckets(q, rotations, {}, {2 * columns, 32}).to_vector<int32_t>() ==
          reference(q, rotations, {}, {2 * columns, 32}));
  };
  for (int64_t D : {1, 5, 64, 1000}) {
    INFO("D = " << D);
    Tensor q = random_tensor({1, N, 1, D}, DType::float32, 9);
    Tensor rotations = random_rotations(2, columns, D, test_draw(), Device::cpu);
    Tensor pairs = random_rotations(2, columns, D, test_draw(), Device::cpu);
    // A column of the second half is nearly one of the first, or its opposite.
    float* const close = pairs.mutable_data<float>();
    for (int64_t i = columns / 2 * D; i < columns * D; ++i) {
      const float factor = 1 + (i / D % 3 ? 1e-6f : 1e-4f) * float(i % 5 - 2);
      close[i] = close[i - columns / 2 * D] * (i / D % 2 ? factor : -factor);
    }
    check_buckets(q, pairs);

    const float sizes[] = {1, 1e-12f, 1e-20f, 1e-37f, 1e-44f, 0, 1e12f, 1e20f, 3e37f};
    for (int64_t i = 0; i < q.elements(); ++i) q.mutable_data<float>()[i] *= sizes[i / D % 9];
    check_buckets(q, rotations);
    // The largest products there are of 16 bits, and sums that are infinite in float32.
    Tensor signs = random_rotations(2, columns, D, test_draw(2), Device::cpu);
    for (int64_t i = 0; i < signs.elements(); ++i) {
      float& sign = signs.mutable_data<float>()[i];
      sign = sign > 0 ? 1.0f : -1.0f;
    }
    for (int64_t i = 0; i < q.elements(); ++i) {
      const int64_t row = i / D;
      q.mutable_data<float>()[i] = signs.data<float>()[row % columns * D + i % D] * (row % 3 ? 1 : 3e38f);
    }
    check_buckets(q, signs);
    rotations.mutable_data<float>()[3] = 1e30f;  // in one round only
    check_buckets(random_tensor({1, N, 1, D}, DType::float32, 9), rotations);
  }
}

TEST_CASE("a draw of rotations writes no number beyond them", "[hash_buckets]") {
  std::vector<float> rotations(2 * 3 * 5 + 1, -100);
  cpu::random_rotations(current_stream(Device::cpu), 2, 3, 5, test_draw().for_kernel(), rotations.data());
  CHECK(std::count(rotations.begin(), rotations.end(), -100) == 1);
  CHECK(rotations.back() == -100);
}

TEST_CASE("NaN changes the bucket of its own query alone", "[hash_buckets]") {
  Tensor q = random_tensor({1, 200, 1, 4}, DType::float32);
  const Tensor rotations = random_rotations(2, 40, 4, test_draw(), Device::cpu);
  auto expected = hash_buckets(q, rotations, {}, {80, 32}).to_vector<int32_t>();
  q.mutable_data<float>()[130 * 4 + 2] = NAN;
  expected[130] = expected[330] = 0;
  CHECK(hash_buckets(q, rotations, {}, {80, 32}).to_vector<int32_t>() == expected);
}

TEST_CASE("vectors of one direction always share a bucket, and opposite ones never", "[hash_buckets]") {
  // Row 1 is row 0, row 2 four times it, row 3 its opposite.
  Tensor q({40, 4, 1, 6});
  const Tensor x = random_tensor({40, 6}, DType::float32);
  const float factors[] = {1, 1, 4, -1};
  for (int64_t i = 0; i < q.elements(); ++i)
    q.mutable_data<float>()[i] = factors[i / 6 % 4] * x.data<float>()[i / 24 * 6 + i % 6];
  for (int64_t count : {2, 4, 30, 200}) {
    const Tensor rotations = random_rotations(20, count / 2, 6, test_draw(uint64_t(count)), Device::cpu);
    const auto bucket = hash_buckets(q, rotations, {}, {count, 32}).to_vector<int32_t>();
    for (size_t row = 0; row < 40 * 20; ++row) {
      const int32_t* of = bucket.data() + row * 4;
      REQUIRE((of[0] == of[1] && of[0] == of[2]));
      REQUIRE(of[3] == (of[0] + count / 2) % count);
    }
  }
}

TEST_CASE("two of two buckets are told apart with the probability angle / pi", "[hash_buckets]") {
  const int64_t pairs = 4, D = 6, rounds = 50'000;
  const Tensor q = random_tensor({1, 2 * pairs, 1, D}, DType::float32, 17);
  const float* x = q.data<float>();
  const auto bucket =
      hash_buckets(q, random_rotations(rounds, 1, D, test_draw(3), Device::cpu), {}, {2, 32}).to_vector<int32_t>();
  for (int64_t i = 0; i < pairs; ++i) {
    const float *a = x + 2 * i * D, *b = a + D;
    double ab = 0, aa = 0, bb = 0, apart = 0;
    for (int64_t d = 0; d < D; ++d) ab += a[d] * b[d], aa += a[d] * a[d], bb += b[d] * b[d];
    for (int64_t round = 0; round < rounds; ++round) {
      const int32_t* of = bucket.data() + round * 2 * pairs + 2 * i;
      apart += of[0] != of[1];
    }
    INFO("pair " << i);
    CHECK(std::abs(apart / double(rounds) - std::acos(ab / std::sqrt(aa * bb)) / std::acos(-1.0)) <=
          2 * tolerance::hash_angle);  // more than four standard deviations
  }
}

TEST_CASE("rotations are other ones in every call: by seed, step and layer", "[hash_buckets]") {
  const auto of = [](uint64_t seed, uint64_t step, uint32_t layer) {
    return random_rotations(1, 2, 3, test_draw(seed, step, layer), Device::cpu);
  };
  CHECK(same_bits(of(1, 2, 3), of(1, 2, 3)));
  CHECK_FALSE(same_bits(of(1, 2, 3), of(2, 2, 3)));
  CHECK_FALSE(same_bits(of(1, 2, 3), of(1, 3, 3)));
  CHECK_FALSE(same_bits(of(1, 2, 3), of(1, 2, 4)));
}

TEST_CASE("hash_buckets refuses what it cannot compute", "[hash_buckets]") {
  const Tensor q({2, 3, 4, 5}), rotations({2, 1, 5});
  const BucketCount two{2, 32};
  CHECK_THROWS_AS(random_rotations(0, 1, 4, test_draw(), Device::cpu), UsageError);
  CHECK_ERROR(random_rotations(0, 1, 4, test_draw(), Device::cpu), "random_rotations: rounds = 0, expected at least 1");
  CHECK_ERROR(random_rotations(1, 0, 4, test_draw(), Device::cpu),
              "random_rotations: columns = 0, expected at least 1");
  CHECK_ERROR(hash_buckets(Tensor(), rotations, {}, two), "hash_buckets: q was never given a value");
  CHECK_ERROR(hash_buckets(q.reshape({2, 3, 20}), rotations, {}, two),
              "hash_buckets: expected q of shape [B, N, H, D], got [2, 3, 20]");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {3, 32}), "hash_buckets: 3 buckets, expected an even number");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {-2, 32}), "hash_buckets: -2 buckets, expected an even number");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {0, 0}), "hash_buckets: chunk = 0, expected at least 1");
  CHECK_ERROR(hash_buckets(q, Tensor(), {}, two), "hash_buckets: rotations was never given a value");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {4, 32}),
              "hash_buckets: expected rotations [rounds, 2 or more, 5], got [2, 1, 5]");
  CHECK_ERROR(hash_buckets(q, Tensor({2, 1, 4}), {}, two),
              "hash_buckets: expected rotations of shape [R, C, 5], got [2, 1, 4]");
  CHECK_ERROR(hash_buckets(q, rotations, int32s({3, 4}), two), "hash_buckets: lengths[1] is 4, expected 0 to 3");
  CHECK_ERROR(hash_buckets(q, elsewhere({0, 1, 5}), {}, two), "hash_buckets: rotations is on cuda, q on cpu");
  CHECK_NEEDS_CUDA(hash_buckets(elsewhere({0, 3, 4, 5}), elsewhere({0, 1, 5}), {}, two), "hash_buckets");
}
