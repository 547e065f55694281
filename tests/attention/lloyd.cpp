// Lloyd's algorithm on the queries themselves (nn/attention/lloyd.h): the labels that euclidean-C reports, and those
// that clustered-C reports with refine=r.
#include <algorithm>
#include <cmath>
#include <string>

#include "nn/attention/attention.h"
#include "tests/ops/operation.h"

namespace {

struct Problem {
  int64_t B, N, S, H, D, C;
  int steps;
  std::vector<int32_t> query_lengths{}, key_lengths{};  // empty: none given

  std::string euclidean() const { return cairn::concat("euclidean-", C, ":iterations=", steps); }
  std::string refined(int r) const { return cairn::concat("clustered-", C, ":iterations=1,refine=", r); }
  std::string refined() const { return refined(steps); }
  int64_t queries(int64_t b) const { return query_lengths.empty() ? N : query_lengths[size_t(b)]; }
  int64_t keys(int64_t b) const { return key_lengths.empty() ? S : key_lengths[size_t(b)]; }
};
void append(std::string& text, const Problem& p) {
  text += cairn::concat("B ", p.B, " N ", p.N, " S ", p.S, " H ", p.H, " D ", p.D, " C ", p.C, " steps ", p.steps);
  for (int32_t length : p.query_lengths) text += cairn::concat(" queries ", length);
  for (int32_t length : p.key_lengths) text += cairn::concat(" keys ", length);
}

// The labels that a variant reports, int32 [B, H, N].
Tensor labels_of(const Problem& p, const std::string& spec, const Tensor& q, const Tensor& k) {
  const Generator generator(1);
  AttentionChoices made;
  AttentionMask mask;
  if (!p.query_lengths.empty()) mask.query_lengths = int32s(p.query_lengths).to(q.device());
  if (!p.key_lengths.empty()) mask.key_lengths = int32s(p.key_lengths).to(q.device());
  const NoGrad no_grad;
  (*make_attention(spec))(Variable(q), Variable(k), Variable(k), mask, {{.generator = &generator}, &made});
  return made.labels;
}

// [B, n, H, D] around a few centers: clusters of different sizes, and some without members. Directions differ in
// length, so that another metric gives other clusters.
Tensor random_points(const Problem& p, int64_t n, uint64_t seed) {
  RandomStream random(seed, 0, Purpose::test);
  std::vector<double> centers, points;
  for (int64_t i = 0; i < 5 * p.D; ++i) centers.push_back(3 * double(random.normal()));
  for (int64_t row = 0; row < p.B * n * p.H; ++row) {
    const int64_t center = random.below(5);
    for (int64_t d = 0; d < p.D; ++d)
      points.push_back((centers[size_t(center * p.D + d)] + double(random.normal())) / double(1 + d % 4));
  }
  return Tensor::from(points, {p.B, n, p.H, p.D});
}
Tensor queries(const Problem& p, uint64_t seed) { return random_points(p, p.N, seed); }
Tensor keys(const Problem& p, uint64_t seed) { return random_points(p, p.S, seed + 1000); }

// How the keys see the queries: the scores [B, N, H, S], minus each query's mean score. The distance of refinement is
// the Euclidean distance of these.
Tensor seen_by_keys(const Problem& p, const Tensor& q, const Tensor& k) {
  const Rows4 query(q), key(k);
  Rows4 scores(Tensor::zeros({p.B, p.N, p.H, p.S}, DType::float64));
  for (int64_t row = 0; row < p.B * p.N * p.H; ++row) {
    const int64_t b = row / (p.N * p.H), i = row / p.H % p.N, h = row % p.H, n = p.keys(b);
    double mean = 0;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t d = 0; d < p.D; ++d) scores(b, i, h, j) += query(b, i, h, d) * key(b, j, h, d);
      mean += scores(b, i, h, j) / double(n);
    }
    for (int64_t j = 0; j < n; ++j) scores(b, i, h, j) -= mean;
  }
  return from_doubles(scores.values, scores.shape);
}

Rows4 means_of(const Tensor& x, const Tensor& labels, int64_t clusters) {
  return Rows4(from_doubles(reference_cluster_mean(x, labels, clusters), x.shape().with(1, clusters)));
}

double distance(const Rows4& x, int64_t i, const Rows4& mean, int64_t j, int64_t b, int64_t h) {
  double sum = 0;
  for (int64_t d = 0; d < x.shape[3]; ++d) sum += std::pow(x(b, i, h, d) - mean(b, j, h, d), 2);
  return sum;
}

// Lloyd's steps on points x [B, N, H, ...]. Points with label -1 belong to no cluster yet. A cluster without members
// stays empty. If there is a cluster for each query, labels stay.
Tensor lloyd(const Problem& p, const Tensor& x, const Tensor& start, int steps) {
  const Rows4 point(x);
  Tensor labels = start.clone();
  for (int step = 0; step < steps; ++step) {
    const Rows4 mean = means_of(x, labels, p.C);
    const auto before = labels.to_vector<int32_t>();
    for (int64_t row = 0; row < p.B * p.H * p.N; ++row) {
      const int64_t b = row / (p.H * p.N), h = row / p.N % p.H, i = row % p.N;
      if (i >= p.queries(b) || p.C >= p.queries(b)) continue;
      const auto of_head = before.begin() + (row - i);
      double nearest = INFINITY;
      for (int32_t j = 0; j < p.C; ++j) {
        if (std::find(of_head, of_head + p.N, j) == of_head + p.N) continue;
        const double now = distance(point, i, mean, j, b, h);
        if (now < nearest) nearest = now, labels.mutable_data<int32_t>()[row] = j;
      }
    }
  }
  return labels;
}

// Cluster j starts with the first query of cluster j of consecutive queries.
Tensor euclidean_reference(const Problem& p, const Tensor& q) {
  Tensor start = Tensor::full({p.B, p.H, p.N}, -1, DType::int32);
  for (int64_t head = 0; head < p.B * p.H; ++head) {
    const int64_t n = p.queries(head / p.H), clusters = std::min(p.C, n);
    for (int64_t j = 0; j < clusters; ++j)
      start.mutable_data<int32_t>()[head * p.N + (j * n + clusters - 1) / clusters] = int32_t(j);
  }
  return lloyd(p, q, start, p.steps + 1);
}

// Starts from the labels of the hashes. They stay where no key is left.
Tensor refined_reference(const Problem& p, const Tensor& q, const Tensor& k) {
  const Tensor hashed = labels_of(p, p.refined(0), q, k);
  Tensor labels = lloyd(p, seen_by_keys(p, q, k), hashed, p.steps);
  for (int64_t row = 0; row < labels.elements(); ++row)
    if (p.keys(row / (p.H * p.N)) == 0) labels.mutable_data<int32_t>()[row] = hashed.data<int32_t>()[row];
  return labels;
}

}  // namespace

OPERATION("lloyd") {
  const auto add = [&](const Problem& p, const Tensor& q, const Tensor& k, bool on_cuda) {
    for (const bool refined : {false, true}) {
      Case& test = op.add(cairn::concat(p, refined ? " refined" : " Euclidean"), {q, k});
      test.forward = [=](const Variables& t) {
        return Variables{Variable(labels_of(p, refined ? p.refined() : p.euclidean(), t[0].value(), t[1].value()))};
      };
      test.reference = [=](const Tensors& t) {
        return Tensors{refined ? refined_reference(p, t[0], t[1]) : euclidean_reference(p, t[0])};
      };
      test.on_cuda = on_cuda;
    }
  };
  for (const Problem& p :
       {Problem{1, 0, 5, 1, 3, 4, 3},        // no queries
        Problem{0, 7, 7, 3, 3, 4, 3},        // no rows
        Problem{1, 1, 1, 1, 1, 1, 1},        //
        Problem{2, 7, 7, 3, 4, 7, 3},        // as many clusters as queries
        Problem{2, 7, 7, 3, 4, 50, 3},       // more
        Problem{1, 300, 20, 2, 5, 1, 2},     // one cluster
        Problem{1, 97, 97, 1, 8, 13, 0},     // no step
        Problem{2, 101, 30, 3, 1, 20, 10},   // a line: clusters without members
        Problem{1, 257, 61, 2, 33, 17, 10},  //
        Problem{1, 60, 0, 2, 4, 9, 3},       // no keys
        Problem{1, 60, 3, 2, 8, 9, 3},       // keys that do not see all directions
        // none, all, as many as clusters, one more, one
        Problem{5, 67, 20, 2, 3, 11, 5, {0, 67, 11, 12, 1}, {20, 0, 5, 1, 2}}, Problem{1, 400, 90, 1, 33, 150, 3}})
    add(p, queries(p, 4), keys(p, 4), true);
  RandomStream random(5, 0, Purpose::test);
  const auto below = [&](int64_t n) { return int64_t(random.below(uint32_t(n))); };
  for (uint64_t i = 0; i < 100; ++i) {
    Problem p{1 + below(3), below(60), 1 + below(40), 1 + below(3), 1 + below(20), 1 + below(20), int(below(12))};
    for (int64_t b = 0; b < p.B && i % 2; ++b) {
      p.query_lengths.push_back(int32_t(below(p.N + 1)));
      p.key_lengths.push_back(int32_t(below(p.S + 1)));
    }
    add(p, queries(p, i), keys(p, i), false);
  }
  // Identical queries all join the first cluster, or each has its own.
  const Tensor identical = Tensor::full({1, 50, 1, 3}, 2.5, DType::float64);
  for (const int64_t clusters : {4, 50}) add({1, 50, 50, 1, 3, clusters, 3}, identical, identical, true);
  add({1, 50, 50, 1, 3, 12, 3, {12}, {50}}, identical, identical, true);
}

TEST_CASE("no step raises the summed distance", "[lloyd]") {
  RandomStream random(6, 0, Purpose::test);
  for (const bool refined : {false, true}) {
    int fell = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      Problem p{1, 20 + int64_t(random.below(100)), 30, 1, 1 + int64_t(random.below(8)), 2 + int64_t(random.below(9)),
                0};
      const Tensor q = queries(p, seed), k = keys(p, seed);
      const Tensor seen = refined ? seen_by_keys(p, q, k) : q;
      double before = INFINITY;
      for (p.steps = 0; p.steps < 8; ++p.steps) {
        INFO(concat(p, " seed ", seed));
        const Tensor labels = labels_of(p, refined ? p.refined() : p.euclidean(), q, k);
        const Rows4 point(seen), mean = means_of(seen, labels, p.C);
        double now = 0;
        for (int64_t i = 0; i < p.N; ++i) now += distance(point, i, mean, labels.data<int32_t>()[i], 0, 0);
        REQUIRE(now <= before * (1 + tolerance::float64));
        fell += p.steps > 0 && now < before;
        before = now;
      }
    }
    CHECK(fell > 60);
  }
}
