// Lesson 8: random-C, an attention variant outside the library (apps/lessons/08_random.md).
#include <algorithm>
#include <cstdlib>

#include "nn/attention/clustering.h"
#include "tests/attention/reference.h"
#include "tests/catch.h"

using namespace cairn;

namespace {

// Each query joins one of the clusters by chance.
struct RandomClustering : Clustering {
  using Clustering::Clustering;

  // int32 [B, H, N] in [0, clusters), -1 beyond the lengths mask.query_lengths (int32 [B]; undefined: all count).
  Tensor labels(const Tensor& q, const Tensor&, const AttentionMask& mask, int64_t clusters,
                const AttentionContext& context) const override {
    // [lesson 8
    const int64_t N = q.size(1), H = q.size(2);
    Tensor labels({q.size(0), H, N}, DType::int32);
    const PhiloxKey key = context.draw(Purpose::clusters).key();
    for (int64_t place = 0; place < labels.elements(); ++place) {
      const int64_t b = place / (H * N), h = place / N % H, i = place % N;
      const int64_t length = mask.query_lengths.defined() ? mask.query_lengths.data<int32_t>()[b] : N;
      const uint32_t bits = philox(key, {{uint32_t(i), uint32_t(h), 0, 0}}).w[0];
      labels.mutable_data<int32_t>()[place] = i < length ? int32_t(below(bits, uint32_t(clusters))) : -1;
    }
    return labels;
    // lesson 8]
  }
  double flops(const AttentionWork&) const override { return 0; }
};

// Clustered attention with these clusters, for specifications such as random-4.
std::unique_ptr<Attention> make_random(SpecReader& spec) {
  // [lesson 8
  return make_clustered(std::make_unique<RandomClustering>(spec.number("clusters")));
  // lesson 8]
}
const AttentionVariant random_variant{"random", "clusters queries by chance; the centroids attend to all keys",
                                      make_random};

// The weights [N][S] of one head, by loops in double: query i has those of the mean of its cluster, whose labels are
// p.chosen.at("labels").at(0). reference::row(p, query, -1) is the attention of one query; -1, because a mean has no
// place in a mask.
reference::Matrix random_reference(const reference::Problem& p) {
  // [lesson 8
  const std::vector<int>& label = p.chosen.at("labels").at(0);
  reference::Matrix weights(p.q.size(), std::vector<double>(p.k.size(), 0.0));
  for (size_t i = 0; i < p.q.size(); ++i) {
    if (label[i] < 0) continue;
    std::vector<double> mean(p.q[i].size(), 0.0);
    const auto members = double(std::count(label.begin(), label.end(), label[i]));
    for (size_t j = 0; j < p.q.size(); ++j)
      for (size_t d = 0; label[j] == label[i] && d < mean.size(); ++d) mean[d] += p.q[j][d] / members;
    weights[i] = reference::row(p, mean, -1);
  }
  return weights;
  // lesson 8]
}

const reference::AddReference added{"random", {.weights = random_reference, .cross = true, .equivariant = true}};
[[maybe_unused]] const bool listed = (add_attention_variant(random_variant), true);

// ---- the check of the labels; tests/attention/variants.cpp has the other cases

TEST_CASE("the labels of random are drawn by seed, step, layer and head") {
  const int64_t N = 100, clusters = 4;
  const Tensor q = Tensor::zeros({1, N, 2, 3});
  const auto draw = [&](uint64_t seed, uint64_t step, uint32_t layer) {
    Generator generator(seed);
    generator.set_step(step);
    return RandomClustering(clusters).labels(q, q, {}, clusters, {{false, &generator, layer}}).to_vector<int32_t>();
  };
  const std::vector<int32_t> labels = draw(1, 2, 3);
  const auto outside = std::count_if(labels.begin(), labels.end(), [](int32_t c) { return c < 0 || c >= clusters; });
  INFO(outside << " of 200 labels are not in [0, 4)");
  CHECK(outside == 0);
  for (int32_t c = 0; c < clusters; ++c) {
    const auto members = std::count(labels.begin(), labels.end(), c);
    INFO(members << " of 200 queries are in cluster " << c);
    CHECK(std::abs(members - 50) < 25);  // four standard errors
    int64_t by_place = 0, by_neighbor = 0;
    for (int32_t i = 0; i < 200; ++i) {
      by_place += (labels[size_t(i)] - i - c) % clusters == 0;
      by_neighbor += (labels[size_t(i)] - labels[size_t(i ^ 1)] - c) % clusters == 0;
    }
    INFO("the label follows from the query's place " << by_place << " times, and from its neighbor's label "
                                                     << by_neighbor << " times, of 200");
    CHECK(std::abs(by_place - 50) < 25);
    CHECK(std::abs(by_neighbor - 50) < 40);  // of 100 pairs
  }
  {
    AttentionChoices made;
    const Generator any(1);
    (*make_attention("random-7"))(q, q, q, {}, {{.generator = &any}, &made});
    const std::vector<int32_t> seven = made.labels.to_vector<int32_t>();
    INFO("the largest label of random-7");
    CHECK(*std::max_element(seven.begin(), seven.end()) == 6);
  }
  const auto differs = [&](const char* what, const std::vector<int32_t>& others) {
    const bool same = others == labels;
    INFO("the labels are those of another " << what);
    CHECK_FALSE(same);
  };
  differs("seed", draw(2, 2, 3));
  differs("step", draw(1, 3, 3));
  differs("layer", draw(1, 2, 4));
  // A draw for another purpose, such as dropout, has numbers of its own.
  Generator generator(1);
  generator.set_step(2);
  for (uint32_t other = 0; other <= uint32_t(Purpose::class_dropout); ++other) {
    std::vector<int32_t> shared;
    for (uint32_t place = 0; place < 2 * N; ++place) {
      const PhiloxKey key = generator.draw(3, Purpose(other)).key();
      shared.push_back(int32_t(below(philox(key, {{place % 100, place / 100, 0, 0}}).w[0], clusters)));
    }
    INFO("the labels take the random numbers of purpose " << other << " (nn/purpose.h)");
    CHECK((Purpose(other) == Purpose::clusters || shared != labels));
  }
  const bool same = std::equal(labels.begin(), labels.begin() + N, labels.begin() + N);
  INFO("both heads have the same labels");
  CHECK_FALSE(same);
}

}  // namespace
