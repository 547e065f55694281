// Lloyd's algorithm on the queries themselves (nn/attention/lloyd.h): the labels that euclidean-C reports, and those
// that clustered-C reports with refine=r.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "nn/attention/attention.h"
#include "tests/ops/ops_test.h"

namespace {

using Lengths = std::vector<int32_t>;  // empty: none given
using Points = std::vector<std::vector<double>>;
using Labels = std::vector<int32_t>;

struct Problem {
  int64_t B, N, S, H, D, C;
  int steps;
  Lengths query_lengths, key_lengths;

  std::string euclidean() const { return cairn::concat("euclidean-", C, ":iterations=", steps); }
  std::string refined(int r) const { return cairn::concat("clustered-", C, ":iterations=1,refine=", r); }
  std::string refined() const { return refined(steps); }
  int64_t valid(const Lengths& lengths, int64_t all, int64_t b) const {
    return lengths.empty() ? all : lengths[size_t(b)];
  }
};
void append(std::string& text, const Problem& p) {
  text += cairn::concat("B ", p.B, " N ", p.N, " S ", p.S, " H ", p.H, " D ", p.D, " C ", p.C, " steps ", p.steps);
  for (int32_t length : p.query_lengths) text += cairn::concat(" queries ", length);
  for (int32_t length : p.key_lengths) text += cairn::concat(" keys ", length);
}

// The labels that a variant reports.
Labels labels_of(const Problem& p, const std::string& spec, const Tensor& q, const Tensor& k) {
  const Generator generator(1);
  AttentionChoices made;
  AttentionContext context;
  context.generator = &generator;
  context.report = &made;
  AttentionMask mask;
  if (!p.query_lengths.empty()) mask.query_lengths = int32s(p.query_lengths).to(q.device());
  if (!p.key_lengths.empty()) mask.key_lengths = int32s(p.key_lengths).to(q.device());
  const NoGrad no_grad;
  (*make_attention(spec))(Variable(q), Variable(k), Variable(k), mask, context);
  return made["labels"].to(Device::cpu).to_vector<int32_t>();
}

// [B, n, H, D] around a few centers: clusters of different sizes, and some without members. Directions differ in
// length, so that another metric gives other clusters.
Tensor random_points(const Problem& p, int64_t n, uint64_t seed, DType dtype = DType::float64) {
  RandomStream random(seed, 0, Purpose::test);
  std::vector<double> centers, points;
  for (int64_t i = 0; i < 5 * p.D; ++i) centers.push_back(3 * double(random.normal()));
  for (int64_t row = 0; row < p.B * n * p.H; ++row) {
    const int64_t center = random.below(5);
    for (int64_t d = 0; d < p.D; ++d)
      points.push_back((centers[size_t(center * p.D + d)] + double(random.normal())) / double(1 + d % 4));
  }
  return Tensor::from(points, {p.B, n, p.H, p.D}).cast(dtype);
}
Tensor queries(const Problem& p, uint64_t seed, DType dtype = DType::float64) {
  return random_points(p, p.N, seed, dtype);
}
Tensor keys(const Problem& p, uint64_t seed, DType dtype = DType::float64) {
  return random_points(p, p.S, seed + 1000, dtype);
}

// The first n of one (batch element, head).
Points points_of(const Tensor& x, int64_t b, int64_t h, int64_t n) {
  const auto values = as_double(x);
  Points points;
  for (int64_t i = 0; i < n; ++i) {
    const auto first = values.begin() + ((b * x.size(1) + i) * x.size(2) + h) * x.size(3);
    points.emplace_back(first, first + x.size(3));
  }
  return points;
}

std::vector<double> mean_of(const Points& points, const std::function<bool(size_t)>& counts) {
  std::vector<double> mean;
  double members = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!counts(i)) continue;
    mean.resize(points[i].size());
    for (size_t d = 0; d < mean.size(); ++d) mean[d] += points[i][d];
    ++members;
  }
  for (double& x : mean) x /= members;
  return mean;
}

// How far apart two queries are.
using Distance = std::function<double(const std::vector<double>&, const std::vector<double>&)>;

double euclidean(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

// By how much their scores differ, beyond what all keys' scores differ by alike: the sum over keys of ((k - mean) .
// (a - b))^2.
Distance seen_by(const Points& k) {
  const auto mean = mean_of(k, [](size_t) { return true; });
  return [k, mean](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (const auto& key : k) {
      double score = 0;
      for (size_t d = 0; d < a.size(); ++d) score += (key[d] - mean[d]) * (a[d] - b[d]);
      sum += score * score;
    }
    return sum;
  };
}

// Points without a label (-1) belong to no cluster yet. A cluster without members stays so.
Labels lloyd(const Points& points, Labels labels, int64_t clusters, int steps, const Distance& distance) {
  for (int step = 0; step < steps; ++step) {
    Points means;
    for (int64_t j = 0; j < clusters; ++j) means.push_back(mean_of(points, [&](size_t i) { return labels[i] == j; }));
    for (size_t i = 0; i < points.size(); ++i) {
      double nearest = INFINITY;
      for (size_t j = 0; j < means.size(); ++j) {
        const double now = means[j].empty() ? INFINITY : distance(points[i], means[j]);
        if (now < nearest) nearest = now, labels[i] = int32_t(j);
      }
    }
  }
  return labels;
}

double summed_distance(const Points& points, const Labels& labels, int64_t clusters, const Distance& distance) {
  double sum = 0;
  for (int64_t j = 0; j < clusters; ++j) {
    const auto mean = mean_of(points, [&](size_t i) { return labels[i] == j; });
    for (size_t i = 0; i < points.size(); ++i)
      if (labels[i] == j) sum += distance(points[i], mean);
  }
  return sum;
}

// f(batch element, head, its n valid queries, its valid keys) makes their n labels; the others are -1.
Labels for_each_head(const Problem& p, const Tensor& q, const Tensor& k,
                     const std::function<Labels(int64_t, int64_t, const Points&, const Points&)>& f) {
  Labels all;
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t h = 0; h < p.H; ++h) {
      Labels labels = f(b, h, points_of(q, b, h, p.valid(p.query_lengths, p.N, b)),
                        points_of(k, b, h, p.valid(p.key_lengths, p.S, b)));
      labels.resize(size_t(p.N), -1);
      all.insert(all.end(), labels.begin(), labels.end());
    }
  return all;
}

// Cluster j starts as the first of group j of consecutive queries.
Labels euclidean_reference(const Problem& p, const Tensor& q, const Tensor& k) {
  return for_each_head(p, q, k, [&](int64_t, int64_t, const Points& points, const Points&) {
    const auto n = int64_t(points.size()), clusters = std::min(p.C, n);
    Labels start(points.size(), -1);
    for (int64_t j = 0; j < clusters; ++j) start[size_t((j * n + clusters - 1) / clusters)] = int32_t(j);
    return lloyd(points, start, clusters, p.steps + 1, euclidean);
  });
}

// From the labels of the hashes.
Labels refined_reference(const Problem& p, const Tensor& q, const Tensor& k) {
  const Labels all = labels_of(p, p.refined(0), q, k);
  return for_each_head(p, q, k, [&](int64_t b, int64_t h, const Points& points, const Points& seen) {
    const auto first = all.begin() + (b * p.H + h) * p.N;
    const Labels start(first, first + std::ptrdiff_t(points.size()));
    const bool stay = p.C >= int64_t(points.size()) || seen.empty();
    return lloyd(points, start, p.C, stay ? 0 : p.steps, seen_by(seen));
  });
}

}  // namespace

TEST_CASE("euclidean-C and refine=r give the labels of their definitions", "[lloyd]") {
  std::vector<Problem> problems = {
      {1, 0, 5, 1, 3, 4, 3, {}, {}},                                   // no queries
      {0, 7, 7, 3, 3, 4, 3, {}, {}},                                   // no rows
      {1, 1, 1, 1, 1, 1, 1, {}, {}},                                   //
      {2, 7, 7, 3, 4, 7, 3, {}, {}},                                   // as many clusters as queries
      {2, 7, 7, 3, 4, 50, 3, {}, {}},                                  // more
      {1, 300, 20, 2, 5, 1, 2, {}, {}},                                // one cluster
      {1, 97, 97, 1, 8, 13, 0, {}, {}},                                // no step
      {2, 101, 30, 3, 1, 20, 10, {}, {}},                              // a line: clusters without members
      {1, 257, 61, 2, 33, 17, 10, {}, {}},                             //
      {1, 60, 0, 2, 4, 9, 3, {}, {}},                                  // no keys
      {1, 60, 3, 2, 8, 9, 3, {}, {}},                                  // keys that do not see all directions
      {5, 67, 20, 2, 3, 11, 5, {0, 67, 11, 12, 1}, {20, 0, 5, 1, 2}},  // none, all, as many as clusters, one more, one
  };
  RandomStream random(5, 0, Purpose::test);
  const auto below = [&](int64_t n) { return int64_t(random.below(uint32_t(n))); };
  for (int i = 0; i < 100; ++i) {
    Problem p{1 + below(3), below(60), 1 + below(40), 1 + below(3), 1 + below(20), 1 + below(20), int(below(12)),
              {},           {}};
    for (int64_t b = 0; b < p.B && i % 2; ++b) {
      p.query_lengths.push_back(int32_t(below(p.N + 1)));
      p.key_lengths.push_back(int32_t(below(p.S + 1)));
    }
    problems.push_back(p);
  }
  for (size_t i = 0; i < problems.size(); ++i) {
    const Problem& p = problems[i];
    INFO(concat(p));
    const Tensor q = queries(p, i), k = keys(p, i);
    REQUIRE(labels_of(p, p.euclidean(), q, k) == euclidean_reference(p, q, k));
    REQUIRE(labels_of(p, p.refined(), q, k) == refined_reference(p, q, k));
  }
}

TEST_CASE("no step raises the summed distance", "[lloyd]") {
  RandomStream random(6, 0, Purpose::test);
  for (const bool refined : {false, true}) {
    int fell = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      Problem p{
          1, 20 + int64_t(random.below(100)), 30, 1, 1 + int64_t(random.below(8)), 2 + int64_t(random.below(9)), 0, {},
          {}};
      const Tensor q = queries(p, seed), k = keys(p, seed);
      const Points points = points_of(q, 0, 0, p.N);
      const Distance distance = refined ? seen_by(points_of(k, 0, 0, p.S)) : Distance(euclidean);
      double before = INFINITY;
      for (p.steps = 0; p.steps < 8; ++p.steps) {
        INFO(concat(p, " seed ", seed));
        const Labels labels = labels_of(p, refined ? p.refined() : p.euclidean(), q, k);
        const double now = summed_distance(points, labels, p.C, distance);
        REQUIRE(now <= before * (1 + tolerance::float64));
        fell += p.steps > 0 && now < before;
        before = now;
      }
    }
    CHECK(fell > 60);
  }
}

TEST_CASE("identical queries all go to the first cluster, unless there is one for each", "[lloyd]") {
  const Tensor q = Tensor::full({1, 50, 1, 3}, 2.5);
  const Problem few{1, 50, 50, 1, 3, 4, 3, {}, {}}, many{1, 50, 50, 1, 3, 50, 3, {}, {}};
  Labels own;
  for (int32_t i = 0; i < 50; ++i) own.push_back(i);
  CHECK(labels_of(few, few.euclidean(), q, q) == Labels(50, 0));
  CHECK(labels_of(few, few.refined(), q, q) == Labels(50, 0));
  CHECK(labels_of(many, many.euclidean(), q, q) == own);
  CHECK(labels_of(many, many.refined(), q, q) == own);
}

TEST_CASE("NaN and infinity get labels, and change none of another head", "[lloyd]") {
  const Problem p{2, 90, 90, 2, 5, 7, 3, {}, {}};
  for (const std::string& spec : {p.euclidean(), p.refined()}) {
    for (const float bad : {NAN, INFINITY, -INFINITY, 3e38f}) {
      INFO(spec << " with " << bad);
      Tensor q = queries(p, 4, DType::float32), k = keys(p, 4, DType::float32);
      const Labels expected = labels_of(p, spec, q, k);
      for (Tensor* x : {&q, &k})
        for (int64_t i = 0; i < 90; i += 4) x->mutable_data<float>()[i * 10 + 7] = bad;  // batch element 0, head 1
      const Labels labels = labels_of(p, spec, q, k);
      for (size_t i = 0; i < labels.size(); ++i) {
        CHECK((labels[i] >= 0 && labels[i] < 7));
        if (i / 90 != 1) CHECK(labels[i] == expected[i]);
      }
    }
  }
}

TEST_CASE("Lloyd's algorithm gives the same labels on any number of threads", "[lloyd]") {
  const Problem p{2, 2001, 500, 2, 7, 23, 3, {2001, 1300}, {500, 30}};
  const Tensor q = queries(p, 4, DType::float32), k = keys(p, 4, DType::float32);
  for (const std::string& spec : {p.euclidean(), p.refined()})
    check_any_threads([&] { return std::vector<Tensor>{int32s(labels_of(p, spec, q, k))}; });
}

#if CAIRN_HAS_CUDA

TEST_CASE("labels of Lloyd's algorithm on CUDA are the CPU's", "[gpu]") {
  for (const Problem& p : {Problem{2, 67, 50, 3, 8, 7, 4, {67, 30}, {50, 11}},
                           Problem{1, 400, 90, 1, 33, 150, 3, {}, {}}, Problem{1, 5, 9, 2, 3, 9, 2, {}, {}}}) {
    INFO(concat(p));
    for (const std::string& spec : {p.euclidean(), p.refined()})
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor q = queries(p, 4).cast(dtype), k = keys(p, 4).cast(dtype);
        const auto wide = [](const Tensor& x) { return x.cast(DType::float32); };
        // There are no near-ties here.
        CHECK(labels_of(p, spec, q.to(Device::cuda), k.to(Device::cuda)) == labels_of(p, spec, wide(q), wide(k)));
      }
  }
}

#endif
