// K-means of the queries themselves, composed of operations (nn/attention/euclidean.cpp): the labels that
// euclidean-C reports.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "nn/attention/attention.h"
#include "tests/ops/ops_test.h"

namespace {

struct Case {
  int64_t B, N, H, D, C;
  int iterations;
  std::vector<int32_t> lengths;  // empty: none given

  Tensor run(const Tensor& q) const {
    const Generator generator(1);
    AttentionChoices made;
    AttentionContext context;
    context.generator = &generator;
    context.report = &made;
    AttentionMask mask;
    if (!lengths.empty()) mask.query_lengths = int32s(lengths).to(q.device());
    const NoGrad no_grad;
    const auto attention = make_attention(concat("euclidean-", C, ":iterations=", iterations));
    (*attention)(Variable(q), Variable(q), Variable(q), mask, context);
    return made["labels"].to(Device::cpu);
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  out << "B " << c.B << " N " << c.N << " H " << c.H << " D " << c.D << " C " << c.C << " iterations " << c.iterations
      << " lengths";
  for (int32_t length : c.lengths) out << ' ' << length;
  return out;
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

// In double: cluster j starts as the first of group j of consecutive queries; queries go to the nearest mean, and a
// cluster that has lost all of them stays empty.
std::vector<int32_t> reference(const Case& c, const Tensor& q) {
  std::vector<int32_t> result;
  for (int64_t row = 0; row < c.B * c.H; ++row) {
    const Points points = points_of(c, q, row);
    const int64_t n = int64_t(points.size()), clusters = std::min(c.C, n);
    std::vector<int32_t> labels(size_t(n), 0);
    Points centroids;
    for (int64_t j = 0; j < clusters; ++j) centroids.push_back(points[size_t((j * n + clusters - 1) / clusters)]);
    for (int step = 0; step <= c.iterations; ++step) {
      for (size_t i = 0; i < points.size(); ++i) {
        double nearest = INFINITY;
        for (size_t j = 0; j < centroids.size(); ++j) {
          const double distance = centroids[j].empty() && c.D ? INFINITY : squared_distance(points[i], centroids[j]);
          if (distance < nearest) nearest = distance, labels[i] = int32_t(j);
        }
      }
      for (int64_t j = 0; j < clusters; ++j) centroids[size_t(j)] = mean_of(points, labels, int32_t(j));
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
      {1, 257, 2, 33, 17, 10, {}},              //
      {5, 67, 2, 3, 11, 5, {0, 67, 11, 12, 1}}  // none, all, as many as clusters, one more, one
  };
  for (const Case& c : cases) {
    INFO(c);
    const Tensor q = random_queries(c, 11);
    CHECK(c.run(q).to_vector<int32_t>() == reference(c, q));
  }
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
    REQUIRE(c.run(q).to_vector<int32_t>() == reference(c, q));
  }
}

TEST_CASE("identical queries all go to the first cluster", "[euclidean_kmeans]") {
  const Case c{1, 50, 1, 3, 4, 3, {}};
  const auto labels = c.run(Tensor::full({1, 50, 1, 3}, 2.5)).to_vector<int32_t>();
  CHECK(labels == std::vector<int32_t>(50, 0));
}

TEST_CASE("the summed squared distance never rises", "[euclidean_kmeans]") {
  RandomStream random(6, 0, Purpose::test);
  int fell = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Case c{1, 20 + int64_t(random.below(100)), 1, 1 + int64_t(random.below(8)), 2 + int64_t(random.below(9)), 0, {}};
    const Tensor q = random_queries(c, seed);
    const Points points = points_of(c, q, 0);
    double before = INFINITY;
    for (c.iterations = 0; c.iterations < 8; ++c.iterations) {
      INFO(c << " seed " << seed);
      const auto labels = c.run(q).to_vector<int32_t>();
      double now = 0;
      for (int32_t j = 0; j < c.C; ++j) {
        const auto mean = mean_of(points, labels, j);
        for (size_t i = 0; i < points.size(); ++i)
          if (labels[i] == j) now += squared_distance(points[i], mean);
      }
      REQUIRE(now <= before * (1 + tolerance::float64));
      fell += now < before;
      before = now;
    }
  }
  CHECK(fell > 100);
}

TEST_CASE("NaN and infinity get labels, and change none of another head", "[euclidean_kmeans]") {
  const Case c{2, 90, 2, 5, 7, 10, {}};
  for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
    Tensor q = random_queries(c, 4, DType::float32);
    const auto expected = c.run(q).to_vector<int32_t>();
    float* values = q.mutable_data<float>();
    for (int64_t i = 0; i < 90; i += 4) values[i * 10 + 7] = bad;  // batch element 0, head 1
    const auto labels = c.run(q).to_vector<int32_t>();
    for (size_t i = 0; i < labels.size(); ++i) {
      CHECK((labels[i] >= 0 && labels[i] < 7));
      if (i / 90 != 1) CHECK(labels[i] == expected[i]);
    }
  }
}

TEST_CASE("euclidean_kmeans gives the same labels on any number of threads", "[euclidean_kmeans]") {
  const Case c{2, 2001, 2, 7, 23, 3, {2001, 1300}};
  const Tensor q = random_queries(c, 4, DType::float32);
  check_any_threads([&] { return std::vector<Tensor>{c.run(q)}; });
}

#if CAIRN_HAS_CUDA

TEST_CASE("Euclidean labels on CUDA are the CPU's", "[gpu]") {
  for (const Case& c :
       {Case{2, 67, 3, 8, 7, 4, {67, 30}}, Case{1, 400, 1, 33, 150, 3, {}}, Case{1, 5, 2, 3, 9, 2, {}}}) {
    INFO(c);
    const Tensor q = random_queries(c, 4, DType::float32);
    CHECK(c.run(q.to(Device::cuda)).to_vector<int32_t>() == c.run(q).to_vector<int32_t>());  // no near-ties here
    CHECK(c.run(q.cast(DType::bfloat16).to(Device::cuda)).to_vector<int32_t>() ==
          c.run(q.cast(DType::bfloat16).cast(DType::float32)).to_vector<int32_t>());
  }
}

#endif
