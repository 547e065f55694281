// The example of cuda/centroid_topk_mma.cuh, one kernel after another.
#include <cmath>
#include <utility>
#include <vector>

#include "cuda/centroid_topk_mma.cuh"
#include "tests/catch.h"
#include "tests/cuda/device.h"

namespace cairn::test {
namespace {

using namespace gpu;
using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;

template <class T>
std::vector<T> first(const OnDevice<T>& x, int n) {
  const std::vector<T> all = x.values();
  return {all.begin(), all.begin() + n};
}

TEST_CASE("the example of the top keys of a centroid gives its numbers", "[gpu]") {
  if (!has_mma()) return;
  constexpr int S = 8, k = 2, D = 8;
  const float scores[S] = {1, 0, 6, 5, 4, 2, 3, 0};
  std::vector<bfloat16> query(D, bfloat16(0.0f)), keys(S * D, bfloat16(0.0f)), values(S * D, bfloat16(1.0f));
  query[0] = bfloat16(1.0f);
  for (int key = 0; key < S; ++key) keys[size_t(key * D)] = bfloat16(scores[key]);
  OnDevice<bfloat16> q(query), of_k(keys), v(values), rest(D), mass(1);
  const auto view = [](bfloat16* data) { return HeadView<bfloat16>{data, S * D, D, D}; };
  const AttentionProblem<bfloat16> p(
      "example", {{1, 1, 1, S, D, D, std::log(2.0)}, view(q.data()), view(of_k.data()), view(v.data()), {}, {}});

  CentroidScan scan{KeyGroups(S, k, 64)};
  scan.top = k, scan.tiles = 1;
  OnDevice<RowSoftmax> softmax(tile);
  OnDevice<float> maxima(size_t(tile * scan.groups)), lse2(tile), threshold(tile), logsumexp(1);
  OnDevice<float> stored(size_t(tile * scan.candidates())), partial(tile * D);
  OnDevice<int32_t> places(size_t(tile * scan.groups)), chosen(size_t(tile * scan.max_chosen)), count(tile), topk(k);
  OnDevice<ScoredKey> large(size_t(tile * scan.candidates()));
  scan.softmax = softmax.data(), scan.maxima = maxima.data(), scan.places = places.data();
  scan.chosen = chosen.data(), scan.count = count.data(), scan.lse2 = lse2.data(), scan.threshold = threshold.data();
  scan.scores = stored.data(), scan.partial = partial.data(), scan.large = large.data();
  const Launch tiles{1, mma_threads}, rows{tile / rows_per_block, threads_a_block<32>};
  using Shape = CentroidShape<bfloat16, 32>;

  launch<scan_keys_mma<bfloat16, 32>, Shape::scan_bytes>(tiles, p, scan);
  const Floats largest = first(maxima, scan.groups);
  CHECK(Floats{largest[0], largest[4], largest[8], largest[12]} == Floats{1, 6, 4, 3});
  CHECK(largest[1] == -INFINITY);  // the groups without a key
  launch(choose_groups<bfloat16>, rows, p, scan, logsumexp.data());
  CHECK(first(lse2, 1) == Floats{7});  // 2^7 = 128
  CHECK(std::abs(first(threshold, 1)[0] - 3.5f) < 0.01f);
  CHECK(first(count, 1) == Ints{2});
  CHECK(first(chosen, 2) == Ints{4, 8});
  launch<sum_rest_mma<bfloat16, 32, true>, Shape::rest_bytes>(tiles, p, scan);
  CHECK(first(stored, 2) == Floats{6, 5});
  CHECK(first(partial, 1) == Floats{0.125f});
  launch(finish_rows<bfloat16, 32>, rows, p, scan, topk.data(), mass.data(), view(rest.data()));
  std::vector<std::pair<float, int>> listed;
  for (const ScoredKey& x : first(large, 3)) listed.emplace_back(x.score, x.key);
  CHECK(listed == std::vector<std::pair<float, int>>{{6, 2}, {5, 3}, {4, ~4}});  // ~key: not a top key
  CHECK(first(topk, 2) == Ints{2, 3});
  CHECK(float(first(mass, 1)[0]) == 0.75f);
  CHECK(float(first(rest, 1)[0]) == 0.25f);
}

}  // namespace
}  // namespace cairn::test
