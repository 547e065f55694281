// The paper's propositions, asked of the library's kernels in random cases.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "tests/attention/reference.h"
#include "tests/catch.h"
#include "tests/ops/reference.h"
#include "tests/tolerances.h"

using namespace cairn;  // NOLINT: tests only

namespace {

reference::Problem random_problem(RandomStream& random) {
  reference::Problem p;
  const int64_t n = 1 + random.below(12), s = 1 + random.below(12), d = 1 + random.below(6);
  const double spread = std::exp(random.uniform(-2, 2));
  const auto rows = [&](int64_t count) {
    reference::Matrix m(static_cast<size_t>(count), std::vector<double>(static_cast<size_t>(d)));
    for (auto& row : m)
      for (double& x : row) x = spread * double(random.normal());
    return m;
  };
  p.q = rows(n), p.k = rows(s);
  p.queries = n, p.keys = s;
  p.scale = double(1 + random.below(20)) / 10;
  p.visible = [](int64_t, int64_t) { return true; };
  p.number = 1 + random.below(4);
  p.options["topk"] = std::to_string(1 + random.below(uint32_t(s + 2)));
  auto& labels = p.chosen["labels"].emplace_back();
  for (int64_t i = 0; i < n; ++i) labels.push_back(int(random.below(uint32_t(std::min(p.number, n)))));
  return p;
}

double l1(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum;
}

double l2(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// The largest singular value of K, by power iteration on K^T K. It converges from below, hence the slack in the test.
double spectral_norm(const reference::Matrix& k) {
  std::vector<double> x(k[0].size(), 1.0);
  for (size_t i = 0; i < x.size(); ++i) x[i] += 0.1 * double(i);
  double norm = 0;
  for (int step = 0; step < 400; ++step) {
    std::vector<double> next(x.size(), 0.0);
    for (const auto& row : k) {
      double product = 0;
      for (size_t d = 0; d < x.size(); ++d) product += row[d] * x[d];
      for (size_t d = 0; d < x.size(); ++d) next[d] += product * row[d];
    }
    double length = 0;
    for (double value : next) length += value * value;
    length = std::sqrt(length);
    if (length == 0) return 0;
    for (double& value : next) value /= length;
    norm = std::sqrt(length);
    x = next;
  }
  return norm;
}

// The rows of weights of a library variant: its output for values that are unit vectors. `spec` ends where the next
// option begins.
reference::Matrix weights_of(const std::string& spec, const reference::Problem& p, Device device, DType dtype) {
  const auto tensor = [&](const reference::Matrix& m) {
    std::vector<double> flat;
    for (const auto& row : m) flat.insert(flat.end(), row.begin(), row.end());
    const Tensor all = Tensor::from(flat, {1, int64_t(m.size()), 1, int64_t(m[0].size())});
    return Variable(all.cast(dtype).to(device));
  };
  const Variable unit(identity_values(1, int64_t(p.k.size()), 1, dtype).to(device));
  AttentionChoices choices;
  choices.labels = Tensor::from(p.chosen.at("labels")[0], {1, 1, int64_t(p.q.size())}).to(device);
  AttentionContext context;
  context.choices = &choices;
  const auto attention = make_attention(concat(spec, "scale=", p.scale));
  const auto flat = as_double((*attention)(tensor(p.q), tensor(p.k), unit, {}, context).value().to(Device::cpu));
  reference::Matrix rows;
  for (auto row = flat.begin(); row != flat.end(); row += long(p.k.size())) {
    rows.emplace_back(row, row + long(p.k.size()));
    REQUIRE(std::accumulate(row, row + long(p.k.size()), 0.0) == Approx(1).margin(0.01));
  }
  return rows;
}

std::vector<double> mean_of_cluster(const reference::Problem& p, size_t query) {
  const auto& labels = p.chosen.at("labels")[0];
  std::vector<double> sum(p.q[0].size(), 0.0);
  double members = 0;
  for (size_t i = 0; i < p.q.size(); ++i) {
    if (labels[i] != labels[query]) continue;
    for (size_t d = 0; d < sum.size(); ++d) sum[d] += p.q[i][d];
    ++members;
  }
  for (double& x : sum) x /= members;
  return sum;
}

// With the sharp constant: softmax's Jacobian has spectral norm at most 1/2, so a row of attention moves by at most
// scale / 2 times the queries' distance times the spectral norm of K. A query of clustered attention has moved to its
// centroid.
void check_proposition_1(int trials, Device device, DType dtype, double slack) {
  RandomStream random(1, 0, Purpose::test);
  for (int trial = 0; trial < trials; ++trial) {
    const reference::Problem p = random_problem(random);
    const auto full = weights_of("full:", p, device, dtype);
    const auto plain = weights_of(concat("clustered-", p.number, ':'), p, device, dtype);
    const double factor = p.scale / 2 * spectral_norm(p.k) * (1 + 1e-6);
    for (size_t i = 0; i < p.q.size(); ++i) {
      INFO("trial " << trial << ", query " << i);
      REQUIRE(l2(full[i], full[0]) <= factor * l2(p.q[i], p.q[0]) + slack);
      REQUIRE(l2(full[i], plain[i]) <= factor * l2(p.q[i], mean_of_cluster(p, i)) + slack);
    }
  }
}

// With the same clusters, the rows of i-clustered are never further (L1) from those of full attention than the rows of
// clustered are.
void check_proposition_2(int trials, Device device, DType dtype, double slack) {
  RandomStream random(2, 0, Purpose::test);
  for (int trial = 0; trial < trials; ++trial) {
    const reference::Problem p = random_problem(random);
    const auto full = weights_of("full:", p, device, dtype);
    const auto plain = weights_of(concat("clustered-", p.number, ':'), p, device, dtype);
    const std::string spec = concat("i-clustered-", p.number, ":topk=", p.options.at("topk"), ',');
    const auto improved = weights_of(spec, p, device, dtype);
    for (size_t i = 0; i < p.q.size(); ++i) {
      INFO("trial " << trial << ", query " << i);
      REQUIRE(l1(improved[i], full[i]) <= l1(plain[i], full[i]) + slack);
    }
  }
}

}  // namespace

TEST_CASE("Proposition 1: close queries have close attention, in 10,000 cases", "[attention]") {
  check_proposition_1(10000, Device::cpu, DType::float64, 1e-12);
}

// Proposition 3 is the same again, before its proof.
TEST_CASE("Proposition 2: improved clustered is never worse than clustered, in 10,000 cases", "[attention]") {
  check_proposition_2(10000, Device::cpu, DType::float64, 1e-12);
}

#if CAIRN_HAS_CUDA

TEST_CASE("Propositions 1 and 2 hold on CUDA", "[attention][gpu]") {
  const int trials = 100;
  // Scores of up to a few hundred in float32 are wrong by up to 3e-5.
  check_proposition_1(trials, Device::cuda, DType::float32, 1e-4);
  check_proposition_2(trials, Device::cuda, DType::float32, 1e-4);
  check_proposition_2(trials, Device::cuda, DType::bfloat16, tolerance::bfloat16);
}

#endif
