#include "tests/ops/ops_test.h"

TEST_CASE("group lists the members of each cluster in rising order, those of none last", "[group]") {
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{2, 3, 17}, Shape{1, 2, 1000}, Shape{0, 2, 3}, Shape{2, 0, 3}, Shape{2, 3, 0}})
    for (int64_t C : {1, 2, 7, 40}) {
      INFO(shape << " C " << C);
      const Tensor labels = random_integers(shape, -2, int(C) + 1);  // -2, -1, C and C + 1 are no clusters
      const Groups groups = group(labels, C);
      const auto label = labels.to_vector<int32_t>(), permutation = groups.permutation().to_vector<int32_t>(),
                 offsets = groups.offsets().to_vector<int32_t>(), counts = groups.counts().to_vector<int32_t>();
      CHECK(groups.clusters() == C);
      CHECK(same_bits(groups.labels(), labels));
      CHECK(groups.permutation().shape() == shape);
      CHECK(groups.offsets().shape() == shape.with(-1, C + 1));
      CHECK(groups.counts().shape() == shape.with(-1, C));
      const int64_t N = shape[-1], batch_heads = shape[0] * shape[1];
      std::vector<int32_t> expected, starts, sizes;
      for (int64_t batch_head = 0; batch_head < batch_heads; ++batch_head) {
        std::vector<int32_t> order;
        for (int64_t c = 0; c < C; ++c) {
          starts.push_back(int32_t(order.size()));
          for (int64_t i = 0; i < N; ++i)
            if (label[size_t(batch_head * N + i)] == c) order.push_back(int32_t(i));
          sizes.push_back(int32_t(order.size()) - starts.back());
        }
        starts.push_back(int32_t(order.size()));
        for (int64_t i = 0; i < N; ++i) {
          const int32_t l = label[size_t(batch_head * N + i)];
          if (l < 0 || l >= C) order.push_back(int32_t(i));
        }
        expected.insert(expected.end(), order.begin(), order.end());
      }
      CHECK(permutation == expected);
      CHECK(offsets == starts);
      CHECK(counts == sizes);
    }
}

TEST_CASE("without clusters every query is outside", "[group]") {
  const Groups groups = group(Tensor::full({1, 1, 3}, 0, DType::int32), 0);
  CHECK(groups.permutation().to_vector<int32_t>() == std::vector<int32_t>{0, 1, 2});
  CHECK(groups.offsets().to_vector<int32_t>() == std::vector<int32_t>{0});
  CHECK(groups.counts().shape() == Shape{1, 1, 0});
}

TEST_CASE("group refuses what it cannot compute", "[group]") {
  CHECK_ERROR(group(Tensor::zeros({1, 1, 3}, DType::int32), -1), "group: clusters = -1, expected at least 0");
  CHECK_ERROR(group(Tensor(), 2), "group: labels was never given a value");
  CHECK_ERROR(group(Tensor::zeros({1, 1, 3}, DType::int64), 2), "group: expected labels to be int32, got int64");
  CHECK_ERROR(group(Tensor::zeros({1, 3}, DType::int32), 2), "group: expected labels of shape [B, H, N], got [1, 3]");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("group") {
  for (const Grouped& size : grouped)
    cases.add(grouped_label("group", size), [=](const Bench& bench) -> Results {
      const Groups groups = group(labels_of(bench, size), size.C);
      return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
    });
  // Many rounds of a warp: 16 pieces of 18,944 queries; one piece, of 1500 in many rows.
  cases.add("group of more queries than pieces of the least size hold", [](const Bench& bench) -> Results {
    const Groups groups = group(bench.integers({1, 1, 300'007}, -1, 12), 12);
    return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
  });
  cases.add("group of many rows", [](const Bench& bench) -> Results {
    const Groups groups = group(bench.integers({16, 16, 1500}, -1, 6), 6);
    return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
  });
  cases.add("group of queries of one cluster", [](const Bench& bench) -> Results {
    const Groups groups = group(bench.integers({1, 2, 1000}, 3, 3), 5);
    return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
  });
}

#endif
