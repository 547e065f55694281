#include <algorithm>
#include <cmath>
#include <ostream>

#include "tests/ops/ops_test.h"

namespace {

struct Case {
  int64_t B, N, H, D, C;
  int iterations;
  std::vector<int32_t> lengths;  // empty: none given

  Tensor run(const Tensor& q, Draw draw) const {
    return euclidean_kmeans(q, lengths.empty() ? Tensor() : int32s(lengths), C, iterations, draw);
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << "B " << c.B << " N " << c.N << " H " << c.H << " D " << c.D << " C " << c.C << " iterations " << c.iterations
      << " lengths";
  for (int32_t length : c.lengths) out << ' ' << length;
  return out;
}

Draw test_draw(uint64_t seed = 1) {
  Generator generator(seed);
  generator.set_first_example(3);
  return generator.draw(2, Purpose::clusters);
}

// Queries around a few centers: clusters of different sizes, and some without members.
Tensor random_queries(const Case& c, uint64_t seed, DType dtype = DType::float64) {
  RandomStream random(seed, 0, Purpose::test);
  std::vector<double> centers, queries;
  for (int64_t i = 0; i < 5 * c.D; ++i) centers.push_back(3 * double(random.normal()));
  for (int64_t row = 0; row < c.B * c.N * c.H; ++row) {
    const int64_t center = random.below(5);
    for (int64_t d = 0; d < c.D; ++d) queries.push_back(centers[size_t(center * c.D + d)] + double(random.normal()));
  }
  return Tensor::from(queries, {c.B, c.N, c.H, c.D}).cast(dtype);
}

using Points = std::vector<std::vector<double>>;

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

// The mean of the points with a label; empty, where there is none.
std::vector<double> mean_of(const Points& points, const std::vector<int32_t>& labels, int32_t label) {
  std::vector<double> mean;
  double members = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (labels[i] != label) continue;
    mean.resize(points[i].size());
    for (size_t d = 0; d < mean.size(); ++d) mean[d] += points[i][d];
    ++members;
  }
  for (double& x : mean) x /= members;
  return mean;
}

// The valid queries of one (batch element, head).
Points points_of(const Case& c, const Tensor& q, int64_t row) {
  const auto values = as_double(q);
  const int64_t b = row / c.H, n = c.lengths.empty() ? c.N : c.lengths[size_t(b)];
  Points points;
  for (int64_t i = 0; i < n; ++i) {
    const auto first = values.begin() + ((b * c.N + i) * c.H + row % c.H) * c.D;
    points.emplace_back(first, first + c.D);
  }
  return points;
}

// The definition in core/kernels/euclidean_kmeans.h, one sentence after the other, in double.
std::vector<int32_t> reference(const Case& c, const Tensor& q, Draw draw) {
  std::vector<int32_t> result;
  for (int64_t row = 0; row < c.B * c.H; ++row) {
    const Points points = points_of(c, q, row);
    const auto n = int64_t(points.size());
    std::vector<int32_t> labels(size_t(n), 0);
    const auto draw_below = [&](int64_t maximum, int64_t cluster, int iteration) {
      const auto in_whole = uint32_t(int64_t(draw.first) * c.H + row);
      const PhiloxWords words =
          philox(draw.for_kernel().key(), {{in_whole, uint32_t(cluster), uint32_t(iteration), 0}});
      return int64_t(uint64_t(words.w[0]) * uint64_t(maximum) >> 32);
    };
    const auto assign = [&](const Points& centroids) {
      for (size_t i = 0; i < points.size(); ++i) {
        double nearest = INFINITY;
        for (size_t j = 0; j < centroids.size(); ++j) {
          const double distance = squared_distance(points[i], centroids[j]);
          if (distance < nearest) nearest = distance, labels[i] = int32_t(j);
        }
      }
    };
    if (c.C >= n) {
      for (int64_t i = 0; i < n; ++i) labels[size_t(i)] = int32_t(i);
    } else {
      Points centroids;
      for (int64_t j = 0; j < c.C; ++j) {
        const int64_t first = j * n / c.C, end = (j + 1) * n / c.C;
        centroids.push_back(points[size_t(first + draw_below(end - first, j, 0))]);
      }
      assign(centroids);
      for (int iteration = 1; iteration <= c.iterations; ++iteration) {
        for (int64_t j = 0; j < c.C; ++j) {
          centroids[size_t(j)] = mean_of(points, labels, int32_t(j));
          if (std::find(labels.begin(), labels.end(), j) == labels.end())
            centroids[size_t(j)] = points[size_t(draw_below(n, j, iteration))];
        }
        assign(centroids);
      }
    }
    labels.resize(size_t(c.N), -1);
    result.insert(result.end(), labels.begin(), labels.end());
  }
  return result;
}

}  // namespace

TEST_CASE("euclidean_kmeans gives the labels of its definition", "[euclidean_kmeans]") {
  const Case cases[] = {
      {1, 0, 1, 3, 4, 3, {}},                   // no queries
      {0, 7, 3, 3, 4, 3, {}},                   // no rows
      {1, 1, 1, 1, 1, 1, {}},                   //
      {2, 7, 3, 4, 7, 3, {}},                   // as many clusters as queries
      {2, 7, 3, 4, 50, 3, {}},                  // more
      {1, 300, 2, 5, 1, 2, {}},                 // one cluster
      {1, 97, 1, 8, 13, 0, {}},                 // the start and one assignment
      {2, 101, 3, 1, 20, 10, {}},               // a line: clusters without members
      {1, 257, 2, 33, 17, 10, {}},              // more than a piece of 256
      {1, 600, 1, 16, 150, 4, {}},              // more than two blocks of 64 centroids
      {5, 67, 2, 3, 11, 5, {0, 67, 11, 12, 1}}  // none, all, as many as clusters, one more, one
  };
  for (const Case& c : cases)
    for (const DType dtype : {DType::float64, DType::float32}) {
      INFO(c << ' ' << name(dtype));
      const Tensor q = random_queries(c, 11, dtype);
      CHECK(c.run(q, test_draw()).to_vector<int32_t>() == reference(c, q, test_draw()));
    }
}

TEST_CASE("euclidean_kmeans gives the labels of its definition in random cases", "[euclidean_kmeans]") {
  RandomStream random(5, 0, Purpose::test);
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Case c{1 + int64_t(random.below(3)),
           int64_t(random.below(60)),
           1 + int64_t(random.below(3)),
           1 + int64_t(random.below(20)),
           1 + int64_t(random.below(20)),
           int(random.below(12)),
           {}};
    if (random.below(2))
      for (int64_t b = 0; b < c.B; ++b) c.lengths.push_back(int32_t(random.below(uint32_t(c.N + 1))));
    INFO(c << " seed " << seed);
    const Tensor q = random_queries(c, seed);
    REQUIRE(c.run(q, test_draw(seed)).to_vector<int32_t>() == reference(c, q, test_draw(seed)));
  }
}

// Distances of small whole numbers are exact, and many are equal.
TEST_CASE("a query between centroids goes to the lowest of them", "[euclidean_kmeans]") {
  const Case cases[] = {{2, 90, 2, 2, 14, 0, {}}, {1, 300, 1, 2, 140, 0, {}}};  // one block of 64 centroids, and three
  for (const Case& c : cases)
    for (const DType dtype : {DType::float64, DType::float32}) {
      const Tensor q = random_integers({c.B, c.N, c.H, c.D}, -2, 2, dtype);
      CHECK(c.run(q, test_draw()).to_vector<int32_t>() == reference(c, q, test_draw()));
    }
}

TEST_CASE("identical queries all go to the first cluster", "[euclidean_kmeans]") {
  for (const int64_t D : {0, 3}) {
    const Case c{1, 50, 1, D, 4, 3, {}};
    const auto labels = c.run(Tensor::full({1, 50, 1, D}, 2.5), test_draw()).to_vector<int32_t>();
    CHECK(labels == std::vector<int32_t>(50, 0));
  }
}

TEST_CASE("the summed squared distance never rises while no cluster is empty", "[euclidean_kmeans]") {
  RandomStream random(6, 0, Purpose::test);
  int fell = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Case c{1, 20 + int64_t(random.below(100)), 1, 1 + int64_t(random.below(8)), 2 + int64_t(random.below(9)), 0, {}};
    const Tensor q = random_queries(c, seed);
    const Points points = points_of(c, q, 0);
    double before = INFINITY;  // unless a cluster was empty
    for (c.iterations = 0; c.iterations < 8; ++c.iterations) {
      INFO(c << " seed " << seed);
      const auto labels = c.run(q, test_draw(seed)).to_vector<int32_t>();
      // To the means, which no other centroids are nearer to than.
      double now = 0;
      bool empty = false;
      for (int32_t j = 0; j < c.C; ++j) {
        const auto mean = mean_of(points, labels, j);
        empty |= mean.empty();
        for (size_t i = 0; i < points.size(); ++i)
          if (labels[i] == j) now += squared_distance(points[i], mean);
      }
      REQUIRE(now <= before * (1 + tolerance::float64));
      compared += before < INFINITY;
      fell += before < INFINITY && now < before;
      before = empty ? INFINITY : now;
    }
  }
  CHECK(compared > 200);
  CHECK(fell > 60);
}

TEST_CASE("padding more changes no Euclidean label of the queries that are there", "[euclidean_kmeans]") {
  const Case longer{1, 700, 1, 6, 70, 6, {300}}, shorter{1, 300, 1, 6, 70, 6, {}};
  const Tensor q = random_queries(longer, 3, DType::float32);
  const auto padded = longer.run(q, test_draw()).to_vector<int32_t>();
  const auto labels =
      shorter.run(q.reshape({700, 6}).slice(0, 300).reshape({1, 300, 1, 6}), test_draw()).to_vector<int32_t>();
  CHECK(std::vector<int32_t>(padded.begin(), padded.begin() + 300) == labels);
  CHECK(std::vector<int32_t>(padded.begin() + 300, padded.end()) == std::vector<int32_t>(400, -1));
}

TEST_CASE("NaN and infinity get labels, and change none of another head", "[euclidean_kmeans]") {
  const Case c{2, 90, 2, 5, 7, 10, {}};
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    const Tensor clean = random_queries(c, 4, DType::float32);
    const auto expected = c.run(clean, test_draw()).to_vector<int32_t>();
    Tensor q = random_queries(c, 4, DType::float32);
    float* values = q.mutable_data<float>();
    for (int64_t i = 0; i < 90; i += 4) values[i * 10 + 7] = bad;  // batch element 0, head 1
    const auto labels = c.run(q, test_draw()).to_vector<int32_t>();
    for (size_t i = 0; i < labels.size(); ++i) {
      CHECK((labels[i] >= 0 && labels[i] < 7));
      if (i / 90 != 1) CHECK(labels[i] == expected[i]);
    }
  }
}

TEST_CASE("euclidean_kmeans draws other centroids for another seed, step and layer", "[euclidean_kmeans]") {
  const Case c{1, 200, 1, 4, 20, 1, {}};
  const Tensor q = random_queries(c, 12);
  Generator generator(1);
  const auto labels = [&](uint32_t layer) {
    return c.run(q, generator.draw(layer, Purpose::clusters)).to_vector<int32_t>();
  };
  const auto first = labels(0);
  CHECK(first == labels(0));
  CHECK(first != labels(1));
  generator.advance();
  CHECK(first != labels(0));
}

TEST_CASE("euclidean_kmeans gives the same labels on any number of threads", "[euclidean_kmeans]") {
  const Case c{2, 2001, 2, 7, 23, 3, {2001, 1300}};
  const Tensor q = random_queries(c, 4, DType::float32);
  check_any_threads([&] { return std::vector<Tensor>{c.run(q, test_draw())}; });
}

TEST_CASE("euclidean_kmeans refuses what it cannot compute", "[euclidean_kmeans]") {
  const Tensor q = random_tensor({2, 5, 3, 4}, DType::float32);
  CHECK_ERROR(euclidean_kmeans(q, {}, 0, 1, test_draw()), "euclidean_kmeans: clusters = 0, expected at least 1");
  CHECK_ERROR(euclidean_kmeans(q, {}, 2, -1, test_draw()), "euclidean_kmeans: iterations = -1, expected at least 0");
  CHECK_THROWS_AS(euclidean_kmeans(q, {}, 0, 1, test_draw()), UsageError);
  CHECK_ERROR(euclidean_kmeans(Tensor(), {}, 2, 1, test_draw()), "euclidean_kmeans: q was never given a value");
  CHECK_ERROR(euclidean_kmeans(q.reshape({2, 5, 12}), {}, 2, 1, test_draw()),
              "euclidean_kmeans: expected q of shape [B, N, H, D], got [2, 5, 12]");
  CHECK_ERROR(euclidean_kmeans(q.cast(DType::int32), {}, 2, 1, test_draw()),
              "euclidean_kmeans: q must be floating, got int32");
  CHECK_ERROR(euclidean_kmeans(q, int32s({1, 6}), 2, 1, test_draw()),
              "euclidean_kmeans: lengths[1] is 6, expected 0 to 5");
  CHECK_ERROR(euclidean_kmeans(q, int32s({1}), 2, 1, test_draw()),
              "euclidean_kmeans: expected lengths of shape [2], got [1]");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("euclidean_kmeans") {
  // Every sum has the same order on both devices, so that labels are equal whatever the numbers are.
  const auto add = [&](const std::string& name, const Grouped& size, int64_t D, int iterations, auto queries) {
    cases.add(grouped_label(name, size) + ", D = " + std::to_string(D), [=](const Bench& bench) -> Results {
      Generator generator(23);
      generator.set_first_example(3);
      const Tensor lengths = bench.integers({size.B}, 0, int(size.N), 5);
      const Draw draw = generator.draw(1, Purpose::clusters);
      const Tensor q = queries(bench, Shape{size.B, size.N, size.H, D});
      return {{"labels", euclidean_kmeans(q, {}, size.C, iterations, draw)},
              {"labels within lengths", euclidean_kmeans(q, lengths, size.C, iterations, draw)}};
    });
  };
  const auto normal = [](const Bench& bench, const Shape& shape) { return bench.normal(shape); };
  // Many of the same, and many at the same distance.
  const auto whole = [](const Bench& bench, const Shape& shape) {
    return bench.place(bench.integers(shape, -2, 2).to(Device::cpu));
  };
  const auto bad = [](const Bench& bench, const Shape& shape) {
    RandomStream sequence(3, 0, Purpose::test);
    Tensor x = random_normal(shape, sequence);
    for (int64_t i = 0; i < x.elements(); i += 61) x.mutable_data<float>()[i] = i % 2 ? NAN : i % 3 ? INFINITY : -3e38f;
    return bench.place(x);
  };
  for (const Grouped& size : grouped)
    if (size.C > 0 && size.N <= 300) add("euclidean_kmeans", size, 8, 3, normal);
  for (const int64_t D : {0, 1, 3, 20, 33, 64, 130}) add("euclidean_kmeans", {2, 2, 67, 7}, D, 4, normal);
  add("euclidean_kmeans", {1, 1, 400, 150}, 6, 3, normal);
  add("euclidean_kmeans of whole numbers", {2, 2, 150, 20}, 3, 5, whole);
  add("euclidean_kmeans of whole numbers, the start alone", {2, 2, 150, 70}, 2, 0, whole);
  add("euclidean_kmeans with NaN and infinities", {2, 2, 90, 9}, 5, 4, bad);
}

#endif
