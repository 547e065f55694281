// The paper's propositions, in random cases.
#include <cmath>

#include "core/random.h"
#include "tests/attention/reference.h"
#include "tests/catch.h"
#include "tests/ops/reference.h"

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
  for (int64_t i = 0; i < n; ++i) labels.push_back(int(random.below(uint32_t(p.number))));
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

}  // namespace

// Proposition 1 with the sharp constant: softmax's Jacobian has spectral norm at most 1/2, so a row of attention moves
// by at most scale / 2 times the queries' distance times the spectral norm of K.
TEST_CASE("Proposition 1: close queries have close attention, in 10,000 cases", "[attention]") {
  RandomStream random(1, 0, Purpose::test);
  for (int trial = 0; trial < 10000; ++trial) {
    reference::Problem p = random_problem(random);
    p.q.resize(2, std::vector<double>(p.k[0].size(), 0.5));
    p.queries = 2;
    const auto a = reference::full(p);
    const double bound = p.scale / 2 * l2(p.q[0], p.q[1]) * spectral_norm(p.k);
    INFO("trial " << trial);
    REQUIRE(l2(a[0], a[1]) <= bound * (1 + 1e-6) + 1e-12);
  }
}

namespace {

// The weights of a library variant in double: its output for values that are unit vectors. `spec` ends where the next
// option begins.
std::vector<double> weights_of(const std::string& spec, const reference::Problem& p) {
  const auto tensor = [](const reference::Matrix& m) {
    std::vector<double> flat;
    for (const auto& row : m) flat.insert(flat.end(), row.begin(), row.end());
    return Tensor::from(flat, {1, int64_t(m.size()), 1, int64_t(m[0].size())});
  };
  const Variable unit(identity_values(1, int64_t(p.k.size()), 1, DType::float64));
  AttentionChoices choices;
  choices.labels = Tensor::from(p.chosen.at("labels")[0], {1, 1, int64_t(p.q.size())});
  AttentionContext context;
  context.choices = &choices;
  const auto attention = make_attention(concat(spec, "scale=", p.scale));
  return as_double((*attention)(Variable(tensor(p.q)), Variable(tensor(p.k)), unit, {}, context).value());
}

}  // namespace

// Proposition 2, of the library's own kernels: with the same clusters, i-clustered's rows are never further (L1) from
// full attention's than clustered's.
TEST_CASE("Proposition 2: improved clustered is never worse than clustered, in 10,000 cases", "[attention]") {
  RandomStream random(2, 0, Purpose::test);
  for (int trial = 0; trial < 10000; ++trial) {
    const reference::Problem p = random_problem(random);
    const auto s = p.k.size();
    const auto full = reference::full(p);
    const auto plain = weights_of(concat("clustered-", p.number, ':'), p);
    const auto improved = weights_of(concat("i-clustered-", p.number, ":topk=", p.options.at("topk"), ','), p);
    for (size_t i = 0; i < p.q.size(); ++i) {
      const std::vector<double> from_plain(plain.begin() + long(i * s), plain.begin() + long((i + 1) * s));
      const std::vector<double> from_improved(improved.begin() + long(i * s), improved.begin() + long((i + 1) * s));
      INFO("trial " << trial << ", query " << i);
      REQUIRE(l1(from_improved, full[i]) <= l1(from_plain, full[i]) + 1e-12);
    }
  }
}
