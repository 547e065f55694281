// i-clustered-C: clustered attention, improved on the k keys that each centroid attends to most. There every member
// uses its own query; together these keys keep the attention that the centroid gave them (section 3.3). For query i of
// cluster j:
//
//   Q^c_j  = mean of Q_i over cluster j                                                    (3)
//   A^c_j  = softmax(scale Q^c_j K^T),  top_j = its k largest keys                         (4)
//   m_j    = sum over l in top_j of A^c_jl                                                 (9)
//   A^t_il = m_j a_il for l in top_j, a_i = softmax over top_j of scale Q_i . K_l          (10)
//            A^c_jl otherwise
//   V^_i   = A^t_i V = m_j a_i V_top + B_j                                                 (11)
//   B_j    = sum over l outside top_j of A^c_jl V_l                                        (17)
//
// autograd/ops/improved_clustered.cpp computes this and its gradients.
//
// Deviation: in the authors' code the mass m has no gradient (their backward drops the dm term). Here it has one;
// mass_gradient=false does as they do.
#include <algorithm>

#include "nn/attention/clustering.h"

namespace cairn {
namespace {

struct ImprovedClustered : Attention {
  std::unique_ptr<Clustering> clustering;
  int64_t top = 32;
  bool mass_gradient = true;

  Variable operator()(const Variable& q, const Variable& k, const Variable& v, const AttentionMask& mask,
                      const AttentionContext& context) const override {
    lengths_only(mask, "the queries of a cluster share one choice of keys");
    const Clusters clusters = (*clustering)(q, k, mask, context);  // section 3.2.2
    const auto [out, topk, mass] = improved_clustered(
        q, k, v, clusters, std::clamp<int64_t>(top, 1, std::max<int64_t>(1, k.size(1))), options(mask, context),
        options(mask.key_lengths_only(), context, Purpose::attention_rest_dropout), mass_gradient,
        context.choices ? context.choices->topk : Tensor());
    if (context.choices) context.choices->topk = topk, context.choices->mass = mass;
    return out;
  }
  double flops(const AttentionWork& work) const override {
    return clustering->flops(work) + work.attend(double(clusters())) + work.attend(double(top));
  }
  std::string full_because(int64_t queries, int64_t keys) const override {
    if (top >= keys) return concat("its ", top, " top keys are all ", keys, " keys");
    return clustering->single_because(queries);
  }
  int64_t clusters() const override { return clustering->clusters(); }
  int iterations() const override { return clustering->iterations; }
  int64_t topk() const override { return top; }
};

}  // namespace

std::unique_ptr<Attention> make_improved_clustered(std::unique_ptr<Clustering> clustering, SpecReader& spec) {
  auto variant = std::make_unique<ImprovedClustered>();
  variant->clustering = std::move(clustering);
  variant->top = spec.integer("topk", 32, 1, 1 << 20, "top keys per cluster");
  variant->mass_gradient = spec.flag("mass_gradient", true,
                                     "backpropagate through the mass of the top keys; false: as in the authors' code");
  return variant;
}

extern const AttentionVariant improved_clustered_variant{
    "i-clustered", "clustered; each query recomputes its weights for the top keys of its cluster",
    [](SpecReader& spec) { return make_improved_clustered(hamming_clustering(spec), spec); }};

}  // namespace cairn
