#include "tests/ops/operation.h"

OPERATION("clusters_of") {
  op.takes = {{"labels", "B H N"}};
  const auto add = [&](const Tensor& labels, int64_t C) {
    Case& test = op.add(concat(labels.shape(), " in ", C, " clusters"), {labels});
    test.forward = [C](const Variables& t) {
      const Clusters clusters = clusters_of(t[0].value(), C);
      return Variables{Variable(clusters.permutation()), Variable(clusters.offsets())};
    };
    // The members of each cluster in rising order, then the queries without a cluster.
    test.reference = [C](const Tensors& t) {
      const Shape& shape = t[0].shape();
      const auto label = t[0].to_vector<int32_t>();
      std::vector<int32_t> permutation, offsets;
      for (size_t first = 0; int64_t(offsets.size()) < shape[0] * shape[1] * (C + 1); first += size_t(shape[2])) {
        const size_t before = permutation.size();
        const auto take = [&](auto&& belongs) {
          for (int64_t i = 0; i < shape[2]; ++i)
            if (belongs(label[first + size_t(i)])) permutation.push_back(int32_t(i));
        };
        for (int64_t c = 0; c < C; ++c) {
          offsets.push_back(int32_t(permutation.size() - before));
          take([&](int32_t of) { return of == c; });
        }
        offsets.push_back(int32_t(permutation.size() - before));
        take([&](int32_t of) { return of < 0 || of >= C; });
      }
      return Tensors{Tensor::from(permutation, shape), Tensor::from(offsets, shape.with(-1, C + 1))};
    };
  };
  for (const auto& [B, H, N, C] : cluster_sizes) add(integers({B, H, N}, -2, int(C) + 1), C);
  for (const int64_t C : {1, 2, 7, 40}) add(integers({1, 2, 1000}, -2, int(C) + 1), C);
  // Many rounds of a warp: 16 chunks of 18,944 queries; one chunk of 1500 in each of many rows; one cluster.
  add(integers({1, 1, 300'007}, -1, 12), 12);
  add(integers({16, 16, 1500}, -1, 6), 6);
  add(integers({1, 2, 1000}, 3, 3), 5);
}

OPERATION("list_members") {
  for (const int64_t width : {1, 3, 40}) {
    Case& test = op.add(concat("width ", width), {integers({2, 3, 31}, -1, 5)});
    test.forward = [width](const Variables& t) {
      return Variables{Variable(list_members(clusters_of(t[0].value(), 5), width))};
    };
    test.reference = [width](const Tensors& t) {
      std::vector<int32_t> lists;
      for (int64_t row = 0; row < 2 * 3; ++row)
        for (int c = 0; c < 5; ++c) {
          const size_t first = lists.size();
          for (int32_t i = 0; i < 31; ++i)
            if (t[0].data<int32_t>()[row * 31 + i] == c && lists.size() < first + size_t(width)) lists.push_back(i);
          lists.resize(first + size_t(width), -1);
        }
      return Tensors{Tensor::from(lists, {2, 3, 5, width})};
    };
  }
}

TEST_CASE("clusters_of needs a number of clusters", "[clusters_of]") {
  CHECK_ERROR(clusters_of(Tensor::zeros({1, 1, 3}, DType::int32), -1),
              "clusters_of: clusters = -1, expected at least 0");
  CHECK_ERROR(list_members(clusters_of(Tensor::zeros({1, 1, 3}, DType::int32), 2), 0),
              "list_members: width = 0, expected at least 1");
}

namespace {

// The last cluster whose share of the n positions begins at or before position i.
int32_t expected_label(int64_t i, int64_t n, int64_t C, bool shift) {
  if (shift) {
    int64_t half = 0;  // half a cluster, rounded up
    while (half * 2 * C < n) ++half;
    i = (i + half) % n;
  }
  if (C >= n) return int32_t(i);
  int32_t label = 0;
  while ((label + 1) * n <= i * C) ++label;
  return label;
}

}  // namespace

OPERATION("position_labels") {
  const auto add = [&](const Shape& shape, const Tensor& lengths, int64_t C, bool shift) {
    Case& test = op.add(concat(shape, " in ", C, " clusters", shift ? ", shifted" : ""), {lengths});
    test.forward = [=](const Variables& t) {
      return Variables{Variable(position_labels(shape, t[0].value(), C, shift, t[0].device()))};
    };
    test.reference = [=](const Tensors& t) {
      std::vector<int32_t> labels;
      for (int64_t row = 0; row < shape[0] * shape[1]; ++row)
        for (int64_t i = 0; i < shape[2]; ++i) {
          const int64_t n = t[0].data<int32_t>()[row / shape[1]];
          labels.push_back(i < n ? expected_label(i, n, C, shift) : -1);
        }
      return Tensors{Tensor::from(labels, shape)};
    };
  };
  for (const bool shift : {false, true}) {
    for (const int32_t N : {0, 1, 2, 7, 12, 31, 64})
      for (const int64_t C : {1, 2, 3, 5, 12, 31, 100}) add({4, 2, N}, int32s({N, N / 2, N > 0 ? 1 : 0, 0}), C, shift);
    for (const ClusterSizes& size : cluster_sizes)
      if (size.C > 0) add({size.B, size.H, size.N}, integers({size.B}, 0, int(size.N)), size.C, shift);
  }
  op.forward = [](const Variables& t) {
    return Variables{Variable(position_labels({2, 1, 5}, t[0].value(), 3, false, Device::cpu))};
  };
  op.refuses({int32s({1, 6})}, "position_labels: lengths[1] is 6, expected 0 to 5");
  op.refuses({int32s({1})}, "position_labels: expected lengths of shape [2], got [1]");
}

TEST_CASE("without lengths, all positions have a label", "[position_labels]") {
  const Tensor all = position_labels({2, 1, 12}, {}, 5, true, Device::cpu);
  CHECK(same_bits(all, position_labels({2, 1, 12}, int32s({12, 12}), 5, true, Device::cpu)));
  for (const Device device : every_device()) {
    CHECK(arange(4, device).to_vector<int32_t>() == std::vector<int32_t>{0, 1, 2, 3});
    CHECK(arange(1031, device).to_vector<int32_t>().back() == 1030);
    CHECK(arange(0, device).shape() == Shape{0});
  }
  CHECK(within(int32s({1, 0}), 2).to_vector<bool>() == std::vector<bool>{true, false, false, false});
  CHECK_ERROR(within(int32s({3}), 2), "within: lengths[0] is 3, expected 0 to 2");
}

TEST_CASE("position labels of more clusters than there are queries, and of very many", "[position_labels]") {
  const int64_t n = 70'000, maximum = 2147483647;
  const auto labels = position_labels({1, 1, n}, {}, maximum, false, Device::cpu).to_vector<int32_t>();
  for (int64_t i = 0; i < n; ++i) REQUIRE(labels[size_t(i)] == i);
  const auto fewer = position_labels({1, 1, n}, {}, n - 1, false, Device::cpu).to_vector<int32_t>();
  CHECK(fewer.front() == 0);
  CHECK(fewer.back() == n - 2);  // (n - 1)^2 / n, which 32 bits do not hold on the way
}

TEST_CASE("position_labels refuses what it cannot compute", "[position_labels]") {
  CHECK_ERROR(position_labels({2, 5}, {}, 3, false, Device::cpu),
              "position_labels: expected a shape [B, H, N], got [2, 5]");
  CHECK_ERROR(position_labels({1, 2, 5}, {}, 0, false, Device::cpu),
              "position_labels: clusters = 0, expected at least 1");
  CHECK_NEEDS_CUDA(position_labels({1, 2, 0}, {}, 3, false, Device::cuda), "position_labels");
}
