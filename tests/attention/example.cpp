// Computes what nn/attention/EXAMPLE.md computes by hand: its tables are the operands and the expected numbers.
#include <bit>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <regex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/ops/improved_clustered.h"
#include "nn/attention/observe.h"
#include "tests/ops/ops_test.h"

namespace {

// All numbers of the page's row that begins with this name, and the codes' bits.
std::vector<double> row(const std::string& name) {
  std::ifstream page(CAIRN_SOURCE_DIR "/nn/attention/EXAMPLE.md");
  std::vector<double> numbers;
  static const std::regex number("-?[0-9.]+");
  for (std::string line, start = "| " + name + " |"; std::getline(page, line);)
    if (line.compare(0, start.size(), start) == 0)
      for (auto it = std::sregex_iterator(line.begin() + std::ptrdiff_t(start.size()), line.end(), number);
           it != std::sregex_iterator(); ++it)
        numbers.push_back(std::stod(it->str()));
  REQUIRE(numbers.size() >= 6);
  return numbers;
}

Tensor operand(const std::string& name) {
  const auto numbers = row(name);
  return Tensor::from(numbers, {1, 6, 1, int64_t(numbers.size()) / 6}).cast(DType::float32);
}

}  // namespace

TEST_CASE("the worked example of i-clustered attention", "[attention]") {
  const Variable q(operand("Q")), k(operand("K")), v(operand("V"));
  const Generator generator(1);
  AttentionChoices made;
  made.planes = Tensor::from<float>({1, 0, 0, 0, 1, 0}, {2, 3});
  const AttentionContext context{{.generator = &generator}, &made};
  const auto near = [](double found, double expected) {
    return difference(std::vector<double>{found}, std::vector<double>{expected}) <= tolerance::float32;
  };

  for (const auto& [name, spec, fifth] : {std::tuple("full (eq. 1, 2)", "full:", 12410.0 / 263),
                                          {"clustered (eq. 4 to 6)", "clustered-2:", 1978.0 / 47},
                                          {"i-clustered (eq. 10, 11)", "i-clustered-2:topk=2,", 6446.0 / 141}}) {
    INFO(name);
    const auto attention = make_attention(spec + std::string("scale=0.6931471805599453"));
    auto expected = row(name);
    const auto results = as_double((*attention)(q, k, v, {}, context).value());
    CHECK(near(results[0], expected.back()));
    CHECK(near(results[4], fifth));
    expected.pop_back();
    const auto weights = as_double(attention_weights(*attention, q.value(), k.value(), {}, context));
    CHECK(difference(std::vector<double>(weights.begin(), weights.begin() + 6), expected) <= tolerance::float32);
  }

  // Plane j gives bit j; the page writes bit 0 first.
  std::vector<double> codes = row("code"), labels = row("cluster");
  for (double& code : codes) code = std::floor(code / 10) + 2 * std::fmod(code, 10);
  for (double& label : labels) label -= 1;
  CHECK(as_double(made.codes) == codes);
  CHECK(as_double(made.labels) == labels);
  for (const auto& [name, centroid] : {std::pair("to 11", 3u), {"to 10", 1u}, {"to 01", 2u}})
    for (size_t l = 0; l < 6; ++l) CHECK(std::popcount(unsigned(codes[l]) ^ centroid) == int(row(name)[l]));
  for (const char* first : {"to 11", "to 01"})  // the first centroid before and after the update
    for (size_t l = 0; l < 6; ++l) CHECK((row(first)[l] > row("to 10")[l]) == bool(labels[l]));
  const auto top = made.topk.to_vector<int32_t>();
  CHECK(std::vector<int32_t>(top.begin(), top.begin() + 2) == std::vector<int32_t>{0, 1});
  CHECK(near(as_double(made.mass)[0], 0.75));

  const Tensor centroids = cluster_mean(q, clusters_of(made.labels, 2)).value();
  CHECK(as_double(centroids) == std::vector<double>{0, 1, 1, -1});
  const CentroidTopK split = centroid_topk(centroids, k.value(), v.value(), 2, true, {.scale = std::log(2)});
  CHECK(near(as_double(split.rest)[0], 6));
  const auto scores = row("Q^c_1 . K"), powers = row("2^score (sum 16)"), weights = row("A^c_1");
  for (size_t l = 0; l < 6; ++l) {
    CHECK(double(k.value().data<float>()[2 * l + 1]) == scores[l]);  // the product with (0, 1)
    CHECK(std::exp2(scores[l]) == powers[l]);
    CHECK(powers[l] / 16 == weights[l]);
  }
}
