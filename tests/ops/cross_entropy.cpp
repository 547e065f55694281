#include <algorithm>
#include <cmath>

#include "tests/ops/ops_test.h"

TEST_CASE("cross_entropy agrees with its definition", "[cross_entropy]") {
  for (const Shape& rows : {Shape{}, Shape{1}, Shape{7}, Shape{3, 5}, Shape{0}, Shape{1001}})
    for (int64_t classes : {1, 2, 11, 300})
      for (DType dtype : {DType::float32, DType::float64}) {
        Shape shape = rows;
        shape.push_back(classes);
        INFO(shape << ' ' << name(dtype));
        const Tensor x = affine(random_tensor(shape, dtype, 1), 3),
                     targets = random_integers(rows, -2, int(classes) - 1);
        const CrossEntropy result = cross_entropy(x, targets);
        CHECK(result.loss.shape() == Shape{});
        CHECK(difference(result.loss, {reference_cross_entropy(x, targets)}) <= tolerance_of(dtype));
        const auto target = targets.to_vector<int32_t>();
        CHECK(result.count.item() ==
              double(std::count_if(target.begin(), target.end(), [](int32_t t) { return t >= 0; })));
      }
}

TEST_CASE("cross_entropy of large logits does not overflow", "[cross_entropy]") {
  const Tensor x = Tensor::from<float>({1000, 0, -1000, 1000, 1000, 0}, {2, 3});
  CHECK(difference(cross_entropy(x, int32s({2, 0})).loss, {(2000 + std::log(2.0)) / 2}) <= tolerance::float32);
}

TEST_CASE("rows with a negative target neither count nor get a gradient, NaN or not", "[cross_entropy]") {
  Tensor x = random_tensor({3, 4}, DType::float64);
  const Tensor all = x.clone();
  for (int i = 4; i < 8; ++i) x.mutable_data<double>()[i] = NAN;
  const Tensor targets = int32s({1, -1, 3});
  const CrossEntropy saved = cross_entropy(x, targets);
  CHECK(difference(saved.loss, {reference_cross_entropy(all, targets)}) <= tolerance::float64);
  const auto dx = as_double(cross_entropy_backward(x, targets, saved, Tensor::full({}, 1, DType::float64)));
  for (size_t i = 0; i < 12; ++i) CHECK((dx[i] == 0) == (i >= 4 && i < 8));
}

TEST_CASE("where no row counts the loss and its gradient are zero", "[cross_entropy]") {
  const Variable x(random_tensor({2, 3}), true);
  const Variable loss = cross_entropy(x, int32s({-1, -100}));
  CHECK(loss.value().item() == 0);
  backward(loss);
  CHECK(as_double(x.grad()) == std::vector<double>(6, 0.0));
}

TEST_CASE("gradient of cross_entropy", "[cross_entropy][grad]") {
  CHECK_GRADIENT([](const auto& in) { return cross_entropy(in[0], int32s({0, 2, -1, 2})); }, random_tensor({4, 3}));
  CHECK_GRADIENT(
      [](const auto& in) {
        return 3.0 * cross_entropy(in[0], Tensor::from<int32_t>({1, 0, 4, 4}, {2, 2}));
      },
      random_tensor({2, 2, 5}));
  CHECK_GRADIENT([](const auto& in) { return cross_entropy(in[0], Tensor::from<int32_t>({1}, {})); },
                 random_tensor({3}));
}

TEST_CASE("cross_entropy gives the same bits on any number of threads", "[cross_entropy]") {
  const Tensor x = random_tensor({3001, 17}, DType::float32), targets = random_integers({3001}, -1, 16);
  check_any_threads([&] {
    const CrossEntropy saved = cross_entropy(x, targets);
    return std::vector<Tensor>{saved.loss, saved.logsumexp, cross_entropy_backward(x, targets, saved, saved.loss)};
  });
}

TEST_CASE("cross_entropy refuses what it cannot compute", "[cross_entropy]") {
  const Tensor x({2, 3}), t = int32s({0, 1});
  CHECK_ERROR(cross_entropy(x, int32s({0, 3})), "cross_entropy: target 3 at position 1 is no class");
  CHECK_ERROR(cross_entropy(x, int32s({0})), "cross_entropy: expected targets of shape [2], got [1]");
  CHECK_ERROR(cross_entropy(x, t.cast(DType::int64)), "cross_entropy: expected targets to be int32, got int64");
  CHECK_ERROR(cross_entropy(x, Tensor()), "cross_entropy: targets was never given a value");
  CHECK_ERROR(cross_entropy(Tensor(), t), "cross_entropy: logits was never given a value");
  CHECK_ERROR(cross_entropy(Tensor(Shape{}), t), "cross_entropy: expected logits of shape [..., C], got []");
  CHECK_ERROR(cross_entropy(x, elsewhere({0}, DType::int32)), "cross_entropy: targets is on cuda, logits on cpu");
  CHECK_ERROR(cross_entropy(Tensor({2, 0}), t), "cross_entropy: target 0 at position 0 is no class");
  CHECK(cross_entropy(Tensor({0, 3}), Tensor({0}, DType::int32)).loss.item() == 0);
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("cross_entropy") {
  for (const Shape& shape : row_shapes)
    for (const int lowest : {-3, 0})
      cases.add(label("cross_entropy", shape) + (lowest < 0 ? ", some rows ignored" : ""),
                [shape, lowest](const Bench& bench) -> Results {
                  const Tensor logits = bench.uniform(shape, -3, 3);
                  const Tensor targets = bench.integers(shape.without(-1), lowest, int(shape[-1]) - 1);
                  const CrossEntropy forward = cross_entropy(logits, targets);
                  const Tensor dloss = bench.place(Tensor::full({}, 1.5));
                  return {{"loss", forward.loss},
                          {"logsumexp", forward.logsumexp},
                          {"count", forward.count},
                          {"dlogits", cross_entropy_backward(logits, targets, forward, dloss)}};
                });
  cases.add("cross_entropy of masked columns, of NaN and infinity", [](const Bench& bench) -> Results {
    Results results;
    for (const int64_t cols : {5, 70, 1300}) {
      std::vector<float> x(size_t(5 * cols), 0.5f);
      std::fill_n(x.begin() + 1, cols - 1, -INFINITY);
      std::fill_n(x.begin() + cols, cols, -INFINITY);
      x[size_t(2 * cols + cols - 1)] = NAN;
      x[size_t(3 * cols)] = INFINITY;
      const Tensor logits = bench.place(Tensor::from(x, {5, cols}));
      for (const std::vector<int32_t>& rows :
           {std::vector<int32_t>{0, -1, -1, -1, 3}, {-1, -1, -1, -1, -1}, {1, 2, 3, 0, 3}}) {
        const Tensor targets = Tensor::from(rows, {5}).to(bench.device);
        const CrossEntropy forward = cross_entropy(logits, targets);
        const Tensor dloss = bench.place(Tensor::full({}, 1));
        results.insert(results.end(), {{"loss", forward.loss},
                                       {"logsumexp", forward.logsumexp},
                                       {"count", forward.count},
                                       {"dlogits", cross_entropy_backward(logits, targets, forward, dloss)}});
      }
    }
    return results;
  });
  cases.add("cross_entropy with gradients", [](const Bench& bench) {
    const Variable x = bench.variable(bench.normal({3, 7, 13}));
    return with_gradients(bench, cross_entropy(x, bench.integers({3, 7}, -1, 12)), {{"logits", x}});
  });
}

TEST_CASE("cross_entropy on CUDA gives the same bits wherever its rows start", "[gpu]") {
  check_any_start([](const Shape& shape, auto make) {
    const Tensor x = make(shape, -5, 5);
    const Tensor targets = random_integers(shape.without(-1), -1, int(shape[-1]) - 1).to(Device::cuda);
    const CrossEntropy saved = cross_entropy(x, targets);
    return std::vector<Tensor>{saved.loss, saved.logsumexp, cross_entropy_backward(x, targets, saved, saved.loss)};
  });
}

#endif
