#include <algorithm>

#include "autograd/ops/improved_clustered.h"
#include "tests/ops/attention_test.h"

namespace {

// Labels [B, H, N] of which some are no clusters; every third cluster is empty.
Tensor labels_in(const ClusterSizes& size) {
  Tensor labels = integers({size.B, size.H, size.N}, -2, int(size.C) + 1);
  int32_t* label = labels.mutable_data<int32_t>();
  for (int64_t i = 0; i < labels.elements(); ++i)
    if (label[i] % 3 == 1) --label[i];
  return labels;
}

// The sizes, each with the number of columns, of both operations.
std::vector<std::pair<ClusterSizes, int64_t>> every_size() {
  std::vector<std::pair<ClusterSizes, int64_t>> sizes{{{2, 2, 7, 4}, 3}};
  for (const ClusterSizes& size : cluster_sizes) sizes.push_back({size, 8});
  for (const int64_t D : {0, 1, 3, 20, 33, 64, 128, 200}) sizes.push_back({{2, 3, 61, 7}, D});
  sizes.push_back({{2, 2, 301, 13}, 33});
  sizes.push_back({{1, 1, 9, 2}, 2064});  // more columns than a block has threads, in single elements and in packs
  sizes.push_back({{1, 1, 9, 2}, 2061});
  return sizes;
}

std::string size_name(const ClusterSizes& size, int64_t D) {
  return concat(Shape{size.B, size.H, size.N}, " in ", size.C, " clusters, D = ", D);
}

}  // namespace

OPERATION("cluster_mean") {
  op.takes = {{"x", "B N H D"}, {"labels", "B H N", Taken::labels}};
  const auto add = [&](const ClusterSizes& size, int64_t D, const Tensor& labels, const std::string& name) {
    Case& test = op.add(name, {normal({size.B, size.N, size.H, D}), labels});
    test.forward = [C = size.C](const Variables& t) {
      const Clusters clusters = clusters_of(t[1].value(), C);
      return Variables{cluster_mean(t[0], clusters)};
    };
    test.reference = [C = size.C](const Tensors& t) {
      return Tensors{from_doubles(reference_cluster_mean(t[0], t[1], C), t[0].shape().with(1, C))};
    };
  };
  op.backward_reads = {1};
  for (const auto& [size, D] : every_size()) add(size, D, labels_in(size), size_name(size, D));
  for (const int64_t D : {3, 64})
    add({1, 1, 4099, 2}, D, Tensor::zeros({1, 1, 4099}, DType::int32), concat("of thousands, D = ", D));
}

OPERATION("cluster_broadcast") {
  op.takes = {{"x", "B C H D"}, {"labels", "B H N", Taken::labels}};
  op.backward_reads = {1};
  for (const auto& [size, D] : every_size()) {
    Case& test = op.add(size_name(size, D), {normal({size.B, size.C, size.H, D}), labels_in(size)});
    test.forward = [size = size, D = D](const Variables& t) {
      const Clusters clusters = clusters_of(t[1].value(), size.C);
      const Variable copy = cluster_broadcast(t[0], clusters);
      const Tensor& x = t[0].value();
      Tensor sum = Tensor::full({size.B, size.N, size.H, D}, 1, x.dtype(), x.device());
      cluster_mean_backward(x, clusters, sum);
      return Variables{copy, sum};
    };
    test.reference = [size = size, D = D](const Tensors& t) {
      const Rows4 rows(t[0]);
      Rows4 copy(Tensor::zeros({size.B, size.N, size.H, D}, DType::float64));
      Rows4 added(Tensor::full(copy.shape, 1, DType::float64));
      const auto labels = t[1].to_vector<int32_t>();
      for (int64_t head = 0; head < size.B * size.H; ++head) {
        const int64_t b = head / size.H, h = head % size.H;
        const auto label = labels.begin() + head * size.N;
        for (int64_t i = 0; i < size.N; ++i) {
          if (label[i] < 0 || label[i] >= size.C) continue;
          const double members = double(std::count(label, label + size.N, label[i]));
          for (int64_t d = 0; d < D; ++d) {
            copy(b, i, h, d) = rows(b, label[i], h, d);
            added(b, i, h, d) += rows(b, label[i], h, d) / members;
          }
        }
      }
      return Tensors{from_doubles(copy.values, copy.shape), from_doubles(added.values, added.shape)};
    };
  }
}

TEST_CASE("operations on clusters refuse what they cannot compute", "[cluster_mean]") {
  const Tensor x({2, 7, 3, 4}), centroids({2, 5, 3, 4}), labels = Tensor::zeros({2, 3, 7}, DType::int32);
  CHECK_ERROR(cluster_broadcast(x, clusters_of(labels, 5)),
              "cluster_broadcast: expected x of shape [2, 5, 3, 4], got [2, 7, 3, 4]");
  check_refusals("cluster_mean",
                 {{"x", "B C H D"}, {"labels", "B H N", Taken::labels}, {"the sum", "B N H D", Taken::optional}},
                 {centroids, labels, x}, [](const Tensors& t) {
                   Tensor sum = t[2];
                   cluster_mean_backward(t[0], clusters_of(t[1], 5), sum);
                 });
  const Clusters here = clusters_of(Tensor({0, 2, 3}, DType::int32), 4);
  CHECK_ERROR(cluster_mean(elsewhere({0, 3, 2, 5}), here), "cluster_mean: labels is on cpu, expected cuda");
  CHECK_ERROR(cluster_broadcast(elsewhere({0, 4, 2, 5}), here), "cluster_broadcast: labels is on cpu, x on cuda");
  CHECK_NEEDS_CUDA(clusters_of(elsewhere({0, 2, 3}, DType::int32), 4), "clusters_of");
}
