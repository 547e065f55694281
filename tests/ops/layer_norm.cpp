#include <cmath>

#include "tests/ops/ops_test.h"

TEST_CASE("layer_norm agrees with its definition", "[layer_norm]") {
  for (const Shape& shape : odd_shapes())
    for (DType dtype : {DType::float32, DType::float64})
      for (double epsilon : {1e-5, 0.1}) {
        INFO(shape << ' ' << name(dtype) << ' ' << epsilon);
        const Tensor x = affine(random_tensor(shape, dtype, 1), 2, 3);
        const Tensor weight = random_tensor({shape[-1]}, dtype, 2), bias = random_tensor({shape[-1]}, dtype, 3);
        const LayerNormResult result = layer_norm(x, weight, bias, epsilon);
        CHECK(result.y.shape() == shape);
        CHECK(result.mean.shape() == Shape{shape.without(-1).elements()});
        if (x.elements() == 0) continue;
        const auto expected = reference_layer_norm(x, weight, bias, epsilon);
        CHECK(difference(result.y, expected[0]) <= tolerance_of(dtype));
        CHECK(difference(result.mean, expected[1]) <= tolerance_of(dtype));
        // A single column has variance 0 and rstd 1 / sqrt(epsilon), far from 1.
        CHECK(difference(result.rstd, expected[2]) <= tolerance_of(dtype));
      }
}

TEST_CASE("layer_norm loses nothing where the mean is much larger than the spread", "[layer_norm]") {
  const Tensor x = affine(random_tensor({3, 64}, DType::float32), 1, 4096);
  const Tensor weight = Tensor::full({64}, 1), bias = Tensor::zeros({64});
  // Half a unit in the last place of the mean, 4096 * 2^-24 = 2.4e-4, goes into every y.
  CHECK(difference(layer_norm(x, weight, bias, 1e-5).y, reference_layer_norm(x, weight, bias, 1e-5)[0]) <=
        4096 * 0x1p-23);
}

TEST_CASE("gradient of layer_norm", "[layer_norm][grad]") {
  for (const Shape& shape : {Shape{2, 5}, Shape{2, 2, 3}, Shape{4}, Shape{3, 2}}) {
    const int64_t cols = shape[-1];
    CHECK_GRADIENT([](const auto& in) { return layer_norm(in[0], in[1], in[2], 0.01); }, random_tensor(shape),
                   random_tensor({cols}, DType::float64, 2), random_tensor({cols}, DType::float64, 3));
  }
}

TEST_CASE("gradients of layer_norm's weight and bias sum over many rows", "[layer_norm][grad]") {
  const int64_t rows = 301, cols = 5;  // several pieces of 128 rows
  const Tensor x = random_tensor({rows, cols}), weight = random_tensor({cols}, DType::float64, 2),
               bias = random_tensor({cols}, DType::float64, 3), dy = random_tensor({rows, cols}, DType::float64, 4);
  const LayerNormResult saved = layer_norm(x, weight, bias, 1e-5);
  const auto g = layer_norm_backward(x, weight, saved, dy);
  const auto z =
      reference_layer_norm(x, Tensor::full({cols}, 1, DType::float64), Tensor::zeros({cols}, DType::float64), 1e-5)[0];
  std::vector<double> dweight(size_t(cols), 0.0), dbias(size_t(cols), 0.0);
  for (size_t i = 0; i < z.size(); ++i) {
    dweight[i % size_t(cols)] += as_double(dy)[i] * z[i];
    dbias[i % size_t(cols)] += as_double(dy)[i];
  }
  CHECK(difference(g.dweight, dweight) <= tolerance::float64);
  CHECK(difference(g.dbias, dbias) <= tolerance::float64);
  // Without rows they are zero.
  const Tensor none({0, cols}, DType::float64);
  const auto empty = layer_norm_backward(none, weight, layer_norm(none, weight, bias, 1e-5), none);
  CHECK(as_double(empty.dweight) == std::vector<double>(size_t(cols), 0.0));
  CHECK(as_double(empty.dbias) == std::vector<double>(size_t(cols), 0.0));
}

TEST_CASE("layer_norm gives the same bits on any number of threads", "[layer_norm]") {
  const Tensor x = random_tensor({1301, 67}, DType::float32), w = random_tensor({67}, DType::float32, 2);
  check_any_threads([&] {
    const LayerNormResult saved = layer_norm(x, w, w, 1e-5);
    const auto [dx, dweight, dbias] = layer_norm_backward(x, w, saved, x);
    return std::vector<Tensor>{saved.y, dx, dweight, dbias};
  });
}

TEST_CASE("NaN stays in its row of layer_norm", "[layer_norm]") {
  Tensor x = random_tensor({3, 4}, DType::float32);
  const Tensor one = Tensor::full({4}, 1);
  const auto clean = layer_norm(x, one, one, 1e-5).y.to_vector<float>();
  x.mutable_data<float>()[5] = NAN;
  const auto y = layer_norm(x, one, one, 1e-5).y.to_vector<float>();
  for (size_t i = 0; i < 12; ++i) CHECK((i / 4 == 1 ? std::isnan(y[i]) : y[i] == clean[i]));
}

TEST_CASE("layer_norm refuses what it cannot compute", "[layer_norm]") {
  const Tensor x({2, 3}), w({3});
  CHECK_ERROR(layer_norm(Tensor(), w, w, 1e-5), "layer_norm: x was never given a value");
  CHECK_ERROR(layer_norm(x, Tensor({2}), w, 1e-5), "layer_norm: expected weight of shape [3], got [2]");
  CHECK_ERROR(layer_norm(x, w, Tensor({1, 3}), 1e-5), "layer_norm: expected bias of shape [3], got [1, 3]");
  CHECK_ERROR(layer_norm(x, w, w.cast(DType::float64), 1e-5), "layer_norm: bias is float64, x is float32");
  CHECK_ERROR(layer_norm(Tensor(Shape{}), w, w, 1e-5), "layer_norm: expected x of shape [..., C], got []");
  CHECK_ERROR(layer_norm_backward(x, w, layer_norm(x, w, w, 1e-5), w),
              "layer_norm: expected the gradient of shape [2, 3], got [3]");
  const Tensor cuda = elsewhere({2, 0}), none = elsewhere({0});
  CHECK_ERROR(layer_norm(x, w, none, 1e-5), "layer_norm: bias is on cuda, x on cpu");
  if (backends() == "cpu") CHECK_THROWS_AS(layer_norm(cuda, none, none, 1e-5), DeviceError);
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("layer_norm") {
  for (const Shape& shape : row_shapes)
    cases.add(label("layer_norm", shape), [shape](const Bench& bench) -> Results {
      const Tensor x = bench.uniform(shape, -1, 3), dy = bench.uniform(shape, -0.1, 0.1, 2);
      const Tensor weight = bench.uniform({shape[-1]}, 0.5, 1.5, 3), bias = bench.normal({shape[-1]}, 4);
      const LayerNormResult forward = layer_norm(x, weight, bias, 1e-2);
      const LayerNormGradient g = layer_norm_backward(x, weight, forward, dy);
      return {{"y", forward.y}, {"mean", forward.mean}, {"rstd", forward.rstd},
              {"dx", g.dx},     {"dweight", g.dweight}, {"dbias", g.dbias}};
    });
  cases.add("layer_norm of rows of nothing", [](const Bench& bench) -> Results {
    const Tensor x = bench.normal({3, 0}), weight = bench.normal({0});
    const LayerNormResult forward = layer_norm(x, weight, weight, 1e-5);
    const LayerNormGradient g = layer_norm_backward(x, weight, forward, x);
    return {{"y", forward.y}, {"dx", g.dx}, {"dweight", g.dweight}, {"dbias", g.dbias}};
  });
  cases.add("layer_norm far from 0", [](const Bench& bench) -> Results {
    const Tensor x = affine(bench.integers({5, 67}, -4, 4).cast(bench.dtype), 0.5, 64);
    return {{"y", layer_norm(x, bench.normal({67}), bench.normal({67}, 2), 1e-5).y}};
  });
  cases.add("layer_norm with gradients", [](const Bench& bench) {
    const Variable x = bench.variable(bench.uniform({7, 67}, -1, 2)), weight = bench.variable(bench.normal({67}, 2)),
                   bias = bench.variable(bench.normal({67}, 3));
    return with_gradients(bench, layer_norm(x, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}});
  });
}

TEST_CASE("layer_norm on CUDA gives the same bits wherever its rows start", "[gpu]") {
  check_any_start([](const Shape& shape, auto make) {
    const Tensor x = make(shape, -1, 3), dy = make(shape, -1, 1);
    const Tensor weight = make({shape[-1]}, 0.5, 1.5), bias = make({shape[-1]}, -1, 1);
    const LayerNormResult saved = layer_norm(x, weight, bias, 1e-5);
    const auto [dx, dweight, dbias] = layer_norm_backward(x, weight, saved, dy);
    return std::vector<Tensor>{saved.y, saved.mean, saved.rstd, dx, dweight, dbias};
  });
}

#endif
