#include <algorithm>

#include "tests/ops/attention_test.h"

namespace {

struct Case {
  Case(const Shape& shape, int64_t clusters, DType dtype)
      : x(random_tensor(shape, dtype, 1)),
        centroids(random_tensor(shape.with(1, clusters), dtype, 2)),
        // Beyond the range at both ends, and the last cluster without members.
        groups(group(random_integers({shape[0], shape[2], shape[1]}, -1, std::max(0, int(clusters) - 2)), clusters)) {}

  // f(b, h, i, label, size of its cluster) for each query of a cluster.
  template <class F>
  void each(F&& f) const {
    const auto labels = groups.labels().to_vector<int32_t>();
    const int64_t H = x.size(2), N = x.size(1);
    for (int64_t b = 0; b < x.size(0); ++b)
      for (int64_t h = 0; h < H; ++h) {
        const auto first = labels.begin() + (b * H + h) * N;
        for (int64_t i = 0; i < N; ++i)
          if (first[i] >= 0 && first[i] < groups.clusters())
            f(b, h, i, int64_t(first[i]), double(std::count(first, first + N, first[i])));
      }
  }

  Tensor x, centroids;
  Groups groups;
};

std::vector<Case> every_case(DType dtype) {
  std::vector<Case> cases;
  for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 17, 3, 5}, Shape{2, 301, 2, 33}, Shape{0, 3, 2, 4},
                             Shape{2, 0, 2, 4}, Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0}})
    for (int64_t C : {1, 5, 40}) cases.emplace_back(shape, C, dtype);
  return cases;
}

}  // namespace

TEST_CASE("segment_reduce sums and averages the members of each cluster, zero for none", "[segment_mean]") {
  for (DType dtype : {DType::float32, DType::float64})
    for (const Case& c : every_case(dtype)) {
      INFO(c.x.shape() << " C " << c.groups.clusters() << ' ' << name(dtype));
      const Rows4 x(c.x);
      Rows4 sum(Tensor::zeros(c.centroids.shape(), DType::float64)), mean = sum;
      c.each([&](int64_t b, int64_t h, int64_t i, int64_t label, double size) {
        for (int64_t d = 0; d < c.x.size(3); ++d) {
          sum(b, label, h, d) += x(b, i, h, d);
          mean(b, label, h, d) += x(b, i, h, d) / size;
        }
      });
      CHECK(difference(segment_reduce(Segment::sum, c.x, c.groups), sum.values) <= tolerance_of(dtype));
      CHECK(difference(segment_reduce(Segment::mean, c.x, c.groups), mean.values) <= tolerance_of(dtype));
    }
}

TEST_CASE("segment_broadcast gives each query its cluster's row, zero to a query of none", "[segment_mean]") {
  for (DType dtype : {DType::float32, DType::float64})
    for (const Case& c : every_case(dtype)) {
      INFO(c.x.shape() << " C " << c.groups.clusters() << ' ' << name(dtype));
      const Rows4 rows(c.centroids);
      Rows4 copy(Tensor::zeros(c.x.shape(), DType::float64)), share = copy;
      c.each([&](int64_t b, int64_t h, int64_t i, int64_t label, double size) {
        for (int64_t d = 0; d < c.x.size(3); ++d) {
          copy(b, i, h, d) = rows(b, label, h, d);
          share(b, i, h, d) = rows(b, label, h, d) / size;
        }
      });
      CHECK(difference(segment_broadcast(Segment::sum, c.centroids, c.groups), copy.values) == 0);
      CHECK(difference(segment_broadcast(Segment::mean, c.centroids, c.groups), share.values) <= tolerance_of(dtype));
    }
}

TEST_CASE("gradients of segment_mean and segment_broadcast", "[segment_mean][grad]") {
  const Case c({2, 7, 2, 3}, 4, DType::float64);
  CHECK_GRADIENT([&](const auto& in) { return segment_mean(in[0], c.groups); }, c.x);
  CHECK_GRADIENT([&](const auto& in) { return segment_broadcast(in[0], c.groups); }, c.centroids);
}

TEST_CASE("segment operations give the same bits on any number of threads", "[segment_mean]") {
  const Case c({2, 301, 2, 33}, 13, DType::float32);
  check_any_threads([&] {
    return std::vector<Tensor>{segment_reduce(Segment::mean, c.x, c.groups),
                               segment_broadcast(Segment::mean, c.centroids, c.groups)};
  });
}

TEST_CASE("segment operations refuse what they cannot compute", "[segment_mean]") {
  const Case c({2, 7, 3, 4}, 5, DType::float32);
  CHECK_ERROR(segment_reduce(Segment::sum, Tensor(), c.groups), "segment_reduce: x was never given a value");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x.cast(DType::int32), c.groups), "segment_reduce: x must be floating");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x.reshape({2, 7, 12}), c.groups),
              "segment_reduce: expected x [B, N, H, D], got [2, 7, 12]");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x.reshape({7, 2, 3, 4}), c.groups),
              "segment_reduce: expected labels of shape [7, 3, 2], got [2, 3, 7]");
  CHECK_ERROR(segment_reduce(Segment::sum, c.x, {}), "segment_reduce: labels was never given a value");
  CHECK_ERROR(segment_broadcast(Segment::sum, c.centroids, {}), "segment_broadcast: labels was never given a value");
  CHECK_ERROR(segment_broadcast(Segment::sum, c.x, c.groups),
              "segment_broadcast: expected x of shape [2, 5, 3, 4], got [2, 7, 3, 4]");
  CHECK_ERROR(segment_broadcast(Segment::sum, c.centroids.reshape({2, 15, 4}), c.groups),
              "segment_broadcast: expected x [B, C, H, D], got [2, 15, 4]");
  const Groups here = group(Tensor({0, 2, 3}, DType::int32), 4);
  CHECK_ERROR(segment_reduce(Segment::sum, elsewhere({0, 3, 2, 5}), here),
              "segment_reduce: labels is on cpu, expected cuda");
  CHECK_ERROR(segment_broadcast(Segment::sum, elsewhere({0, 4, 2, 5}), here),
              "segment_broadcast: labels is on cpu, expected cuda");
  CHECK_NEEDS_CUDA(group(elsewhere({0, 2, 3}, DType::int32), 4), "group");
}
