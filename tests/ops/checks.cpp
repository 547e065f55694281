// Operations check what they are given: numbers near the end of their type, clusters that were changed. (What single
// operations refuse besides is in their own files.)
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "autograd/ops/improved_clustered.h"
#include "core/kernels/hash_codes.h"
#include "core/workspace.h"
#include "nn/attention/multi_head.h"
#include "tests/ops/ops_test.h"

namespace {

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

// Sizes of q [B, N, H, D], k [B, S, H, D] and v [B, S, H, M].
struct Operands {
  int64_t B = 1, N = 40, H = 2, S = 40, D = 4, M = 3;
  Tensor q = random_tensor({B, N, H, D}), k = random_tensor({B, S, H, D}, DType::float64, 2),
         v = random_tensor({B, S, H, M}, DType::float64, 3), dout = random_tensor({B, N, H, M}, DType::float64, 4);
};

}  // namespace

TEST_CASE("clusters are made by clusters_of() alone and not changed afterwards", "[checks]") {
  static_assert(!std::is_aggregate_v<Clusters> && !std::is_constructible_v<Clusters, Tensor, Tensor, Tensor, int64_t>);
  const Operands x;
  const Tensor topk = Tensor::zeros({1, 2, 4, 1}, DType::int32), centroids = random_tensor({1, 4, 2, 4});
  const Tensor mass = random_tensor({1, 2, 4}), rest = random_tensor({1, 4, 2, 3});
  const std::vector<std::function<void(const Clusters&)>> operations = {
      [&](const Clusters& c) { cluster_mean(x.q, c); }, [&](const Clusters& c) { cluster_broadcast(centroids, c); },
      [&](const Clusters& c) { topk_attention_forward(x.q, x.k, x.v, c, topk, mass, rest, {}); },
      [&](const Clusters& c) { topk_attention_backward(x.q, x.k, x.v, c, topk, mass, {}, x.dout); },
      [&](const Clusters& c) { chunk_attention(x.q, x.k, x.v, c, {}); }};
  for (const auto& operation : operations) {
    const auto changed = [&](auto&& tensor_of) {
      const Clusters clusters = clusters_of(random_integers({1, 2, 40}, 0, 3), 4);
      CHECK_NOTHROW(operation(clusters));
      Tensor tensor = tensor_of(clusters);
      tensor.mutable_data<int32_t>()[0] = 1 << 30;
      CHECK_THROWS_WITH(operation(clusters),
                        Catch::Matchers::EndsWith(": the clusters were changed after they were made"));
    };
    changed([](const Clusters& c) { return c.labels(); });
    changed([](const Clusters& c) { return c.permutation(); });
    changed([](const Clusters& c) { return c.offsets(); });
    CHECK_THROWS_WITH(operation(Clusters()), Catch::Matchers::EndsWith(": labels was never given a value"));
  }
}

TEST_CASE("numbers near the end of their type are refused, or mean what they say", "[checks]") {
  const Operands x;
  const Clusters one = clusters_of(Tensor::zeros({1, 2, 40}, DType::int32), 1);
  const Tensor labels = Tensor::zeros({1, 2, 40}, DType::int32), codes = Tensor::zeros({1, 2, 40}, DType::uint64);
  const Generator generator(1);
  const Draw draw = generator.draw(0, Purpose::test);

  // A chunk that is longer than all positions holds all of them.
  const Tensor all = chunk_attention(x.q, x.k, x.v, one, {.chunk = 40}).value();
  for (const int64_t chunk : {int64_t{41}, huge / 2, huge - 1, huge})
    CHECK(same_bits(chunk_attention(x.q, x.k, x.v, one, {.chunk = chunk}).value(), all));
  for (const int64_t chunk : {huge / 2, huge}) CHECK(BucketCount{0, chunk}(40) == 2);
  CHECK(BucketCount{0, 3}(40) == 14);
  CHECK(BucketCount{0, 32}(huge) >= (int64_t{1} << 58));

  CHECK_ERROR(hash_buckets(x.q, Tensor({1, 2, 1, 4}), {}, {huge - 1, 32}), "hash_buckets: 9223372036854775806 buckets");
  for (const int64_t clusters : {int64_t{1} << 31, huge}) {
    CHECK_ERROR(clusters_of(labels, clusters),
                concat("clusters_of: clusters = ", clusters, ", expected at most 2147483647"));
    CHECK_ERROR(hamming_kmeans(codes, {}, clusters, 2, draw), "hamming_kmeans: clusters = ");
    CHECK_ERROR(position_labels({1, 2, 40}, {}, clusters, true, Device::cpu), "position_labels: clusters = ");
  }
  CHECK_ERROR(random_planes(3, huge, false, draw, Device::cpu), "random_planes: D = 9223372036854775807");
  CHECK_ERROR(random_planes(3, -1, false, draw, Device::cpu), "random_planes: D = -1");
  CHECK_ERROR(Shape({huge, 2}), "shape: too many elements");
  CHECK_ERROR(Shape({0, huge, 2}), "shape: too many elements");  // else its other axes could not be multiplied
  CHECK_ERROR(Tensor({huge}, DType::float64), "tensor: too many bytes");
  CHECK_ERROR(attention(Tensor({0, huge, 1, 1}), Tensor({0, 1, 1, 1}), Tensor({0, 1, 1, 1})),
              "attention: 9223372036854775807 queries and 1 keys, expected at most 2147483647");
  Workspace workspace(Device::cpu);
  CHECK_THROWS_AS(workspace.take<double>((int64_t{1} << 61) + 1), OutOfMemory);
  CHECK_THROWS_AS(workspace.take<double>(-1), OutOfMemory);
}

TEST_CASE("rows of nothing need no time, however many there are", "[checks]") {
  const Tensor x({int64_t{1} << 60, 0}), bias({0});
  // Sizes near the largest number: nothing is rounded up beyond it.
  const int64_t largest = std::numeric_limits<int64_t>::max();
  CHECK(matmul(Tensor({0, 0}), Tensor({0, largest})).shape() == Shape{0, largest});
  CHECK(matmul(Tensor({largest, 0}), Tensor({0, 0})).shape() == Shape{largest, 0});
  CHECK(softmax(x).shape() == x.shape());
  const Generator generator(1);
  const Draw draw = generator.draw(0, Purpose::test);
  CHECK(random_rotations(1, int64_t{1} << 60, 0, draw, Device::cpu).shape() == Shape{1, int64_t{1} << 60, 0});

  const Tensor heads({1, 0, int64_t{1} << 60, 1});
  const Shape rows{1, int64_t{1} << 60, 0};
  const Variable q(heads, true);
  backward(attention(q, heads, heads), heads);
  CHECK(q.grad().shape() == heads.shape());
  CHECK(hash_codes(heads, random_planes(4, 1, true, draw, Device::cpu)).shape() == rows);
  CHECK(hamming_kmeans(Tensor(rows, DType::uint64), Tensor(), 1, 1, draw).shape() == rows);
  CHECK(position_labels(rows, Tensor(), 1, false, Device::cpu).shape() == rows);
  const Tensor rotations({1, 2, int64_t{1} << 60, 0});  // far more columns than two queries need
  CHECK(hash_buckets(Tensor({1, 2, 1, 0}), rotations, {}, {0, 32}).to_vector<int32_t>() == std::vector<int32_t>{0, 0});
  const Tensor many({int64_t{1} << 40, 2, 1, 0});
  CHECK(hash_buckets(Tensor({1, 0, 1, 0}), many, {}, {0, 32}).shape() == Shape{1, 1, int64_t{1} << 40, 0});
  CHECK(hash_buckets(Tensor({1, 2, 1, 0}), rotations, {}, {1 << 30, 32}).to_vector<int32_t>() ==
        std::vector<int32_t>{0, 0});
  const Tensor none({1, 0, int64_t{1} << 60, 0}), key({1, 1, int64_t{1} << 60, 0});
  const CentroidTopK top = centroid_topk(none, key, key, 1, true, {});
  CHECK(top.mass.shape() == rows);
  Tensor dk(key.shape()), dv(key.shape());
  CHECK(centroid_topk_backward(none, key, key, {}, top, top.mass, none, dk, dv).shape() == none.shape());
}

TEST_CASE("what is beyond an integer type becomes its nearest number", "[checks]") {
  const Tensor x = Tensor::from<double>({1e300, -1e300, NAN, INFINITY, 2147483647.5, -3.7}, {6});
  CHECK(x.cast(DType::int32).to_vector<int32_t>() ==
        std::vector<int32_t>{INT32_MAX, INT32_MIN, 0, INT32_MAX, INT32_MAX, -3});
  CHECK(x.cast(DType::float32).cast(DType::int64).to_vector<int64_t>() ==
        std::vector<int64_t>{INT64_MAX, INT64_MIN, 0, INT64_MAX, 2147483648, -3});
  CHECK(Tensor::from<double>({0x1p63, -0x1p63}, {2}).cast(DType::int64).to_vector<int64_t>() ==
        std::vector<int64_t>{INT64_MAX, INT64_MIN});  // 2^63 is the number that INT64_MAX becomes as a double
  CHECK(x.cast(DType::bfloat16).cast(DType::uint64).to_vector<uint64_t>() ==
        std::vector<uint64_t>{UINT64_MAX, 0, 0, UINT64_MAX, 2147483648, 0});
  CHECK(x.cast(DType::uint8).to_vector<uint8_t>() == std::vector<uint8_t>{255, 0, 0, 255, 255, 0});
  CHECK(Tensor::full({1}, 1e300, DType::uint64).to_vector<uint64_t>() == std::vector<uint64_t>{UINT64_MAX});
}

TEST_CASE("attention without heads, or with heads of nothing, is refused where it is made", "[checks]") {
  const auto make = [](int64_t heads, int64_t head_size) {
    Generator generator(1);
    return MultiHeadAttention(8, heads, head_size, 0, make_attention("full"), generator);
  };
  CHECK_NOTHROW(make(2, 4));
  CHECK_ERROR(make(0, 4), "attention: 0 heads, expected at least 1");
  CHECK_ERROR(make(-1, -4), "attention: -1 heads, expected at least 1");
  CHECK_ERROR(make(2, 0), "attention: heads of size 0, expected at least 1");
  CHECK_ERROR(make(huge, 2), "shape: too many elements");
}

TEST_CASE("an undefined tensor is refused also where nothing is left to do", "[checks]") {
  CHECK_ERROR(sum_to(Tensor(), {}), "sum_to: x was never given a value");
  CHECK_ERROR(broadcast_to(Tensor(), {}), "variable: this variable was never given a value");
}
