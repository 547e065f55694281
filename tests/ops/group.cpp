#include "tests/ops/operation.h"

OPERATION("group") {
  const auto add = [&](const Tensor& labels, int64_t C) {
    Case& test = op.add(concat(labels.shape(), " in ", C, " clusters"), {labels});
    test.forward = [C](const Variables& t) {
      const Groups groups = group(t[0].value(), C);
      return Variables{Variable(groups.permutation()), Variable(groups.offsets())};
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
  for (const auto& [B, H, N, C] : grouped) add(integers({B, H, N}, -2, int(C) + 1), C);
  for (const int64_t C : {1, 2, 7, 40}) add(integers({1, 2, 1000}, -2, int(C) + 1), C);
  // Many rounds of a warp: 16 chunks of 18,944 queries; one chunk of 1500 in each of many rows; one cluster.
  add(integers({1, 1, 300'007}, -1, 12), 12);
  add(integers({16, 16, 1500}, -1, 6), 6);
  add(integers({1, 2, 1000}, 3, 3), 5);
  op.forward = [](const Variables& t) { return Variables{Variable(group(t[0].value(), 2).permutation())}; };
  op.refuses({Tensor({1, 1, 3}, DType::int64)}, "group: expected labels to be int32, got int64");
  op.refuses({Tensor({1, 3}, DType::int32)}, "group: expected labels of shape [B, H, N], got [1, 3]");
}

TEST_CASE("group needs a number of clusters", "[group]") {
  CHECK_ERROR(group(Tensor::zeros({1, 1, 3}, DType::int32), -1), "group: clusters = -1, expected at least 0");
}
