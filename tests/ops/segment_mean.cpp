#include <algorithm>

#include "tests/ops/attention_test.h"

namespace {

struct CudaCase {
  CudaCase(const Shape& shape, int64_t clusters, DType dtype)
      : x(random_tensor(shape, dtype, 1)),
        centroids(random_tensor(shape.with(1, clusters), dtype, 2)),
        // Beyond the range at both ends, and the last cluster without members.
        groups(group(random_integers({shape[0], shape[2], shape[1]}, -1, std::max(0, int(clusters) - 2)), clusters)) {}

  Tensor x, centroids;
  Groups groups;
};

std::vector<CudaCase> every_case(DType dtype) {
  std::vector<CudaCase> cases;
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 17, 3, 5}, Shape{2, 301, 2, 33}, Shape{0, 3, 2, 4},
                             Shape{2, 0, 2, 4}, Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0}})
    for (int64_t C : {1, 5, 40}) cases.emplace_back(shape, C, dtype);
  return cases;
}

}  // namespace

TEST_CASE("segment_reduce sums and averages the members of each cluster, zero for none", "[segment_mean]") {
  for (DType dtype : {DType::float32, DType::float64})
    for (const CudaCase& c : every_case(dtype)) {
      INFO(c.x.shape() << " C " << c.groups.clusters() << ' ' << name(dtype));
      for (Segment kind : {Segment::sum, Segment::mean})
        CHECK(difference(segment_reduce(kind, c.x, c.groups), reference_segment_reduce(kind, c.x, c.groups)) <=
              tolerance_of(dtype));
    }
}

TEST_CASE("segment_broadcast gives each query its cluster's row, zero to a query of none", "[segment_mean]") {
  for (DType dtype : {DType::float32, DType::float64})
    for (const CudaCase& c : every_case(dtype)) {
      INFO(c.x.shape() << " C " << c.groups.clusters() << ' ' << name(dtype));
      const Rows4 rows(c.centroids);
      Rows4 copy(Tensor::zeros(c.x.shape(), DType::float64)), share = copy;
      const auto labels = c.groups.labels().to_vector<int32_t>();
      const int64_t B = c.x.size(0), N = c.x.size(1), H = c.x.size(2);
      for (int64_t b = 0; b < B; ++b)
        for (int64_t h = 0; h < H; ++h) {
          const auto label = labels.begin() + (b * H + h) * N;
          for (int64_t i = 0; i < N; ++i)
            for (int64_t d = 0; d < c.x.size(3) && label[i] >= 0 && label[i] < c.groups.clusters(); ++d) {
              copy(b, i, h, d) = rows(b, label[i], h, d);
              share(b, i, h, d) = rows(b, label[i], h, d) / double(std::count(label, label + N, label[i]));
            }
        }
      CHECK(difference(segment_broadcast(Segment::sum, c.centroids, c.groups), copy.values) == 0);
      CHECK(difference(segment_broadcast(Segment::mean, c.centroids, c.groups), share.values) <= tolerance_of(dtype));
    }
}

TEST_CASE("gradients of segment_mean and segment_broadcast", "[segment_mean][grad]") {
  const CudaCase c({2, 7, 2, 3}, 4, DType::float64);
  CHECK_GRADIENT([&](const auto& in) { return segment_mean(in[0], c.groups); }, c.x);
  CHECK_GRADIENT([&](const auto& in) { return segment_broadcast(in[0], c.groups); }, c.centroids);
}

TEST_CASE("segment operations give the same bits on any number of threads", "[segment_mean]") {
  const CudaCase c({2, 301, 2, 33}, 13, DType::float32);
  check_any_threads([&] {
    return std::vector<Tensor>{segment_reduce(Segment::mean, c.x, c.groups),
                               segment_broadcast(Segment::mean, c.centroids, c.groups)};
  });
}

TEST_CASE("segment operations refuse what they cannot compute", "[segment_mean]") {
  const CudaCase c({2, 7, 3, 4}, 5, DType::float32);
  CHECK_ERROR(segment_reduce(Segment::sum, Tensor(), c.groups), "segment_reduce: x was never given a value");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x.cast(DType::int32), c.groups), "segment_reduce: x must be floating");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x.reshape({2, 7, 12}), c.groups),
              "segment_reduce: expected x of shape [B, N, H, D], got [2, 7, 12]");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x.reshape({7, 2, 3, 4}), c.groups),
              "segment_reduce: expected labels of shape [7, 3, 2], got [2, 3, 7]");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x, {}), "segment_reduce: labels was never given a value");
  CHECK_ERROR(segment_broadcast(Segment::sum, c.centroids, {}), "segment_broadcast: labels was never given a value");
  CHECK_ERROR(segment_broadcast(Segment::sum, c.x, c.groups),
              "segment_broadcast: expected x of shape [2, 5, 3, 4], got [2, 7, 3, 4]");
  CHECK_ERROR(segment_broadcast(Segment::sum, c.centroids.reshape({2, 15, 4}), c.groups),
              "segment_broadcast: expected x of shape [B, C, H, D], got [2, 15, 4]");
  const Groups here = group(Tensor({0, 2, 3}, DType::int32), 4);
  CHECK_ERROR(segment_reduce(Segment::sum, elsewhere({0, 3, 2, 5}), here),
              "segment_reduce: labels is on cpu, expected cuda");
  CHECK_ERROR(segment_broadcast(Segment::sum, elsewhere({0, 4, 2, 5}), here),
              "segment_broadcast: labels is on cpu, x on cuda");
  CHECK_NEEDS_CUDA(group(elsewhere({0, 2, 3}, DType::int32), 4), "group");
}

#if CAIRN_HAS_CUDA  // against the CPU

PARITY("segment_mean") {
  const auto add = [&](const Grouped& size, int64_t D) {
    cases.add(grouped_label("segments", size) + ", D = " + std::to_string(D), [=](const Bench& bench) -> Results {
      const Groups groups = group(labels_of(bench, size), size.C);
      const Tensor x = bench.normal({size.B, size.N, size.H, D}), y = bench.normal({size.B, size.C, size.H, D}, 2);
      Results results;
      for (const Segment kind : {Segment::sum, Segment::mean}) {
        results.push_back({kind == Segment::sum ? "sums" : "means", segment_reduce(kind, x, groups)});
        results.push_back({kind == Segment::sum ? "copies" : "shares", segment_broadcast(kind, y, groups)});
      }
      return results;
    });
  };
  for (const Grouped& size : grouped) add(size, 8);
  for (const int64_t D : {0, 1, 3, 20, 33, 64, 128, 200}) add({2, 3, 61, 7}, D);
  add({1, 1, 9, 2}, 2064);  // more columns than a block has threads, in single elements and in packs
  add({1, 1, 9, 2}, 2061);
  for (const int64_t D : {3, 64})
    cases.add("a segment of thousands, D = " + std::to_string(D), [=](const Bench& bench) -> Results {
      const Groups groups = group(bench.integers({1, 1, 4099}, 0, 0), 2);
      const Tensor x = bench.uniform({1, 4099, 1, D}, -0.5, 0.5);
      return {{"means", segment_reduce(Segment::mean, x, groups)}, {"sums", segment_reduce(Segment::sum, x, groups)}};
    });
  cases.add("segments at addresses that no pack of elements starts at", [](const Bench& bench) -> Results {
    const Groups groups = group(bench.integers({1, 1, 37}, -1, 4), 5);
    const auto shifted = [&](int64_t rows) {
      return bench.normal({rows * 16 + 1}).slice(1, rows * 16 + 1).reshape({1, rows, 1, 16});
    };
    return {{"means", segment_reduce(Segment::mean, shifted(37), groups)},
            {"shares", segment_broadcast(Segment::mean, shifted(5), groups)}};
  });
  cases.add("segments with gradients", [](const Bench& bench) {
    const Groups groups = group(bench.integers({2, 3, 41}, -1, 6), 8);
    const Variable x = bench.variable(bench.normal({2, 41, 3, 12}));
    return with_gradients(bench, segment_broadcast(segment_mean(x, groups), groups) + x, {{"x", x}});
  });
}

#endif
