#include "core/kernels/hash_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "core/random.h"
#include "tests/ops/operation.h"

static Draw test_draw(uint64_t seed = 1, uint64_t step = 4) {
  Generator generator(seed);
  generator.set_step(step);
  return generator.draw(2, Purpose::planes);
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

// Planes and rotations are float32; the tests of a case give them in its dtype.
static Tensor narrowed(const Tensor& x) { return is_floating(x.dtype()) ? x.cast(DType::float32) : x; }

// To the bit: chains of fused multiply-adds.
OPERATION("hash_codes") {
  op.takes = {{"q", "B N H D"}, {"planes", nullptr, Taken::float32}};
  op.forward = [](const Variables& t) {
    const Tensor codes = hash_codes(t[0].value(), narrowed(t[1].value()));
    return Variables{Variable(halves(codes.to_vector<uint64_t>()))};
  };
  op.reference = [](const Tensors& t) { return Tensors{halves(reference_codes(t[0], t[1].cast(DType::float32)))}; };
  const auto add = [&](const std::string& what, const Tensor& q, int bits, bool bias) -> Case& {
    const Tensor planes = random_planes(bits, q.size(3), bias, test_draw(), Device::cpu);
    return op.add(concat(what, ' ', q.shape(), " in ", bits, " bits", bias ? " with a bias" : ""),
                  {q, planes.cast(DType::float64)});
  };
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 7, 3, 5}, Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4},
                             Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0}, Shape{2, 67, 3, 5}, Shape{1, 127, 1, 31},
                             Shape{1, 128, 1, 32}, Shape{3, 43, 1, 33}, Shape{1, 300, 2, 64}, Shape{2, 35, 2, 131}})
    for (const int bits : {1, 20, 31, 32, 33, 63, 64})
      for (const bool bias : {false, true}) add("of", normal(shape, 5), bits, bias);
  add("without tensor cores, of", normal({1, 300, 2, 64}, 5), 63, true).form = Form::older;
  for (const int bits : {32, 64})
    add("of zeros, NaN and infinities",
        with(Tensor::zeros({1, 7, 1, 5}, DType::float64),
             {{3, NAN}, {5, INFINITY}, {11, -INFINITY}, {15, INFINITY}, {16, -INFINITY}, {22, -0.0}}),
        bits, true);
}

TEST_CASE("planes are a round of rotations, whose last column is the threshold", "[hash_codes]") {
  for (const bool bias : {false, true}) {
    Tensor expected = random_rotations(1, 33, 8, test_draw(), Device::cpu).reshape({33, 8});
    for (int64_t j = 0; j < 33 && !bias; ++j) expected.mutable_data<float>()[8 * j + 7] = 0;
    CHECK(same_bits(random_planes(33, 7, bias, test_draw(), Device::cpu), expected));
  }
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

#if CAIRN_HAS_CUDA
TEST_CASE("hash codes on CUDA are the CPU's where a product is nearest to its threshold", "[hash_codes][gpu]") {
  // On tensor cores, a product near its threshold is computed again. Of plane j and query j, it is nearly 0, for
  // queries of any size; then the threshold is this product, or the next number below.
  const int64_t N = 500, H = 2;
  const auto check = [&](const Tensor& q, DType dtype, const Tensor& planes) {
    const auto expected = hash_codes(q, planes).to_vector<uint64_t>();
    const auto found = hash_codes(q.cast(dtype).to(Device::cuda), planes.to(Device::cuda)).to_vector<uint64_t>();
    int different = 0;
    for (size_t i = 0; i < expected.size(); ++i) different += found[i] != expected[i];
    CHECK(different == 0);
  };
  for (const int64_t D : {24, 64, 128})
    for (const int bits : test::sanitized ? std::vector{63} : std::vector{31, 63, 64})
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        INFO("D = " << D << ", " << bits << " bits, " << name(dtype));
        const Tensor drawn = random_tensor({1, N, H, D}, DType::float32, 9).cast(dtype).cast(DType::float32);
        const auto scaled = [&](float factor) {
          Tensor q = drawn.clone();
          for (int64_t i = 0; i < q.elements(); ++i) q.mutable_data<float>()[i] *= factor;
          return q;
        };
        Tensor planes = random_planes(bits, D, false, test_draw(), Device::cpu), q = scaled(1);
        const auto each_plane = [&](auto f) {
          for (int64_t j = 0; j < bits; ++j)
            f(j, q.data<float>() + j * H * D, planes.mutable_data<float>() + j * (D + 1));
        };
        each_plane([&](int64_t, const float* query, float* plane) {
          double product = 0;
          for (int64_t d = 1; d < D; ++d) product += double(query[d]) * plane[d];
          plane[0] = float(-product / query[0]);
        });
        for (const float factor : {1.0f, 0x1p-100f, 0x1p100f}) check(scaled(factor), dtype, planes);

        each_plane([&](int64_t j, const float* query, float* plane) {
          float product = 0;
          for (int64_t d = 0; d < D; ++d) product = std::fma(query[d], plane[d], product);
          plane[D] = j % 2 ? product : std::nextafter(product, -INFINITY);
        });
        float* const row = q.mutable_data<float>() + bits * H * D;  // of query `bits`, which no threshold knows
        std::fill_n(row, H * D, 0.0f);
        row[2 * H * D + 3] = INFINITY, row[3 * H * D + 5] = -INFINITY, row[4 * H * D + 7] = NAN;
        check(q, dtype, planes);
        planes.mutable_data<float>()[2] = INFINITY, planes.mutable_data<float>()[3 * (D + 1) + D] = NAN;
        check(q, dtype, planes);
      }
}
#endif

TEST_CASE("hash_codes refuses what it cannot compute", "[hash_codes]") {
  const Tensor q({2, 3, 4, 5});
  CHECK_ERROR(random_planes(0, 4, true, test_draw(), Device::cpu), "random_planes: bits = 0, expected 1 to 64");
  CHECK_THROWS_AS(random_planes(65, 4, true, test_draw(), Device::cpu), UsageError);
  CHECK_ERROR(hash_codes(q, Tensor({63, 5})), "hash_codes: expected planes of shape [bits, 6], got [63, 5]");
  CHECK_ERROR(hash_codes(q, Tensor({65, 6})), "hash_codes: bits = 65, expected 1 to 64");
  CHECK_ERROR(hash_codes(q, Tensor({0, 6})), "hash_codes: bits = 0, expected 1 to 64");
}

// One chain of fused multiply-adds per column, in float32, then the argmax over these and their negatives; a hash of
// each factor of the number of buckets. These are counted for so many keys; if none are given, for the queries.
static std::vector<int32_t> reference_buckets(const Tensor& q, const Tensor& rotations,
                                              const std::vector<int32_t>& lengths, const BucketCount& count,
                                              const std::vector<int32_t>& keys = {}) {
  const auto x = q.cast(DType::float32).to_vector<float>(), r = rotations.to_vector<float>();
  const int64_t B = q.size(0), N = q.size(1), H = q.size(2), D = q.size(3), columns = rotations.size(2);
  std::vector<int32_t> buckets;
  const auto hash = [&](int64_t row, int64_t rotation, int64_t half) {
    std::vector<float> y(size_t(2 * half));
    for (int64_t j = 0; j < half; ++j) {
      float product = 0;
      for (int64_t d = 0; d < D; ++d)
        product = std::fma(x[size_t(row * D + d)], r[size_t((rotation * columns + j) * D + d)], product);
      const bool skipped = std::isnan(product);
      y[size_t(j)] = skipped ? -INFINITY : product, y[size_t(half + j)] = skipped ? -INFINITY : -product;
    }
    return int32_t(std::max_element(y.begin(), y.end()) - y.begin());
  };
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < H; ++h)
      for (int64_t round = 0; round < rotations.size(0); ++round)
        for (int64_t i = 0; i < N; ++i) {
          const int64_t n = lengths.empty() ? N : lengths[size_t(b)], row = (b * N + i) * H + h;
          const int64_t counted = keys.empty() ? n : keys[size_t(b)], values = count.b(counted);
          int32_t bucket = i < n ? hash(row, 2 * round, values / 2) : -1;
          if (i < n && count.a(counted) > 1) bucket += int32_t(values) * hash(row, 2 * round + 1, count.a(counted) / 2);
          buckets.push_back(bucket);
        }
  return buckets;
}

// Rotations [rounds, 2, columns, D]; `more` columns than buckets need.
static Tensor rotations_for(const BucketCount& count, int64_t N, int64_t rounds, int64_t D, int64_t more) {
  const int64_t columns = count.columns(N) + more;
  return random_rotations(2 * rounds, columns, D, test_draw(), Device::cpu).reshape({rounds, 2, columns, D});
}

// To the bit: chains of fused multiply-adds.
OPERATION("hash_buckets") {
  op.takes = {{"q", "B N H D"}, {"rotations", "R F C D", Taken::float32}, {"lengths", "B", Taken::optional}};
  const auto add = [&](const std::string& what, const Tensor& q, const BucketCount& count, const Tensor& lengths,
                       const std::vector<int32_t>& keys = {}) {
    const int64_t most_keys = keys.empty() ? q.size(1) : *std::max_element(keys.begin(), keys.end());
    const Tensor rotations = rotations_for(count, most_keys, 3, q.size(3), 1);
    Case& test = op.add(concat(what, ' ', q.shape(), " in ", count(q.size(1)), " buckets"),
                        {q, rotations.cast(DType::float64), lengths});
    test.forward = [=](const Variables& t) {
      const Tensor turned = narrowed(t[1].value());
      if (keys.empty()) return Variables{Variable(hash_buckets(t[0].value(), turned, t[2].value(), count))};
      return Variables{
          Variable(hash_buckets(t[0].value(), turned, t[2].value(), count, most_keys, int32s(keys).to(t[0].device())))};
    };
    test.reference = [=](const Tensors& t) {
      const Shape& shape = t[0].shape();
      return Tensors{
          Tensor::from(reference_buckets(t[0], t[1].cast(DType::float32), t[2].to_vector<int32_t>(), count, keys),
                       {shape[0], shape[2], 3, shape[1]})};
    };
  };
  for (const Shape& shape :
       {Shape{1, 1, 1, 1}, Shape{2, 7, 3, 5}, Shape{3, 300, 1, 32}, Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4},
        Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0}, Shape{2, 67, 3, 5}, Shape{1, 129, 1, 33}, Shape{2, 300, 2, 64}})
    for (const BucketCount& count :
         {BucketCount{2, 32}, BucketCount{0, 1}, BucketCount{0, 4}, BucketCount{0, 1000}, BucketCount{134, 32},
          BucketCount{258, 32}, BucketCount{4000, 32}, BucketCount{20000, 32}})
      for (const bool all : {false, true})
        add(all ? "of" : "with lengths", normal(shape, 5), count,
            integers({shape[0]}, all ? int(shape[1]) : 0, int(shape[1])));
  for (const BucketCount& count : {BucketCount{0, 1}, BucketCount{0, 32}})
    add("for 900 and 7 keys of", normal({2, 67, 3, 5}, 5), count, int32s({67, 30}), {900, 7});
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
      const uint64_t key = reference_key(test_draw());
      std::vector<double> values;
      for (int64_t round = 0; round < shape[0]; ++round)
        for (int64_t column = 0; column < shape[1]; ++column)
          for (int64_t d = 0; d < shape[2]; ++d) {
            double sum = 0;  // of twelve numbers of 16 bits
            for (uint32_t half = 0; half < 12; ++half) {
              const Words words = reference_philox(key, {uint32_t(column), uint32_t(d), half / 8, uint32_t(round)});
              sum += double(words[half / 2 % 4] >> (16 * (half % 2)) & 0xffff);
            }
            values.push_back((sum - 6 * 65535) / 65536);
          }
      return Tensors{from_doubles(values, shape)};
    };
    test.gradient = false;  // none
    test.tolerance = 0;
  }
  op.rounds_once = false;  // float32 always
}

TEST_CASE("there are as many buckets as chunks, or a few more, an even number of them, at least 2", "[hash_buckets]") {
  const BucketCount count{0, 32};
  for (const auto& [n, expected] : {std::pair{0, 2},
                                    {1, 2},
                                    {64, 2},
                                    {65, 4},
                                    {128, 4},
                                    {129, 6},
                                    {2048, 64},
                                    {2049, 80},
                                    {4096, 144},
                                    {32768, 1024}})
    CHECK(count(n) == expected);
  CHECK(BucketCount{0, 0x7ffffffe}(0x7fffffff) == 2);
  CHECK(BucketCount{6, 32}(10000) == 6);
}

TEST_CASE("equal largest projections go to the lowest bucket", "[hash_buckets]") {
  const Tensor rotations = Tensor::from<float>({1, 2, 2, 0, 0, 0}, {1, 2, 3, 1});
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
  const int64_t columns = 32, N = 270;
  const auto check_buckets = [&](const Tensor& q, const Tensor& of_rounds) {
    const Tensor rotations = of_rounds.reshape({1, 2, columns, q.size(3)});
    CHECK(hash_buckets(q, rotations, {}, {2 * columns, 32}).to_vector<int32_t>() ==
          reference_buckets(q, rotations, {}, {2 * columns, 32}));
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
  cpu::random_rotations(current_stream(Device::cpu), 2, 3, 5, 5, test_draw().for_kernel(), rotations.data());
  CHECK(std::count(rotations.begin(), rotations.end(), -100) == 1);
  CHECK(rotations.back() == -100);
}

TEST_CASE("hash_buckets refuses what it cannot compute", "[hash_buckets]") {
  const Tensor q({2, 3, 4, 5}), rotations({2, 2, 1, 5});
  const BucketCount two{2, 32};
  CHECK_THROWS_AS(random_rotations(0, 1, 4, test_draw(), Device::cpu), UsageError);
  CHECK_ERROR(random_rotations(0, 1, 4, test_draw(), Device::cpu), "random_rotations: rounds = 0, expected at least 1");
  CHECK_ERROR(random_rotations(1, 0, 4, test_draw(), Device::cpu),
              "random_rotations: columns = 0, expected at least 1");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {3, 32}), "hash_buckets: 3 buckets, expected an even number");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {-2, 32}), "hash_buckets: -2 buckets, expected an even number");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {0, 0}), "hash_buckets: chunk = 0, expected at least 1");
  CHECK_ERROR(hash_buckets(q, rotations, {}, {4, 32}),
              "hash_buckets: expected rotations [rounds, 2, 2 or more, 5], got [2, 2, 1, 5]");
  CHECK_ERROR(hash_buckets(q, rotations, int32s({3, 4}), two), "hash_buckets: lengths[1] is 4, expected 0 to 3");
  CHECK_NEEDS_CUDA(hash_buckets(elsewhere({0, 3, 4, 5}), elsewhere({0, 2, 1, 5}), {}, two), "hash_buckets");
}
