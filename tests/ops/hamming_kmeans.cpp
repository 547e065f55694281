#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "tests/ops/operation.h"

#if CAIRN_HAS_CUDA
#include "cuda/hamming_kmeans.h"
#endif

namespace {

struct Problem {
  int64_t B, H, N, C;
  int bits, iterations;
  std::vector<int32_t> lengths;  // empty: none given

  Tensor run(const Tensor& codes, Draw draw) const {
    const Tensor n = lengths.empty() ? Tensor() : int32s(lengths).to(codes.device());
    return hamming_kmeans(codes, n, C, iterations, draw);
  }
};
const Problem fixed_cases[] = {
    {1, 1, 0, 4, 8, 3, {}},                     // no queries
    {0, 3, 7, 4, 8, 3, {}},                     // no rows
    {1, 1, 1, 1, 1, 1, {}},                     //
    {2, 3, 7, 7, 16, 3, {}},                    // as many clusters as queries
    {2, 3, 7, 50, 16, 3, {}},                   // more
    {1, 2, 300, 1, 63, 2, {}},                  // one cluster
    {1, 1, 97, 13, 64, 0, {}},                  // the start and one assignment
    {2, 3, 101, 5, 1, 10, {}},                  // one bit: ties, clusters without members
    {1, 2, 257, 17, 33, 10, {}},                //
    {2, 2, 1023, 37, 63, 4, {}},                //
    {5, 2, 67, 11, 32, 5, {0, 67, 11, 12, 1}},  // none, all, as many as clusters, one more, one
    {3, 2, 530, 1, 31, 4, {2, 513, 1}},         //
    {3, 1, 530, 19, 31, 4, {256, 513, 1}},      //
    {2, 1, 8200, 3, 20, 3, {8200, 4097}},       // several pieces of 4096
    {1, 2, 4096, 5, 64, 2, {}},                 //
    {1, 1, 1100, 700, 64, 2, {}},               // several tiles of centroids and of counters (CUDA)
    {2, 1, 2500, 130, 20, 2, {2500, 131}},      //
    {1, 1, 1300, 1250, 64, 1, {}},              // most clusters have one member or none
};
void append(std::string& text, const Problem& c) {
  text += cairn::concat("B ", c.B, " H ", c.H, " N ", c.N, " C ", c.C, " bits ", c.bits, " iterations ", c.iterations,
                        " lengths");
  for (int32_t length : c.lengths) text += cairn::concat(' ', length);
}

Draw test_draw(uint64_t seed = 1) {
  Generator generator(seed);
  generator.set_step(4);
  generator.set_first_example(3);
  return generator.draw(2, Purpose::clusters);
}

// Codes near a few centers: clusters of different sizes, ties, clusters without members, identical codes. Many of them
// are random, so that the majority of one piece of a cluster is not that of all.
Tensor random_codes(const Problem& c, uint64_t seed) {
  RandomStream random(seed, 0, Purpose::test);
  const auto word = [&] { return uint64_t(random.next()) << 32 | random.next(); };
  const uint64_t used = c.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << c.bits) - 1;
  std::vector<uint64_t> centers, codes;
  for (int i = 0; i < 6; ++i) centers.push_back(word());
  for (int64_t i = 0; i < c.B * c.H * c.N; ++i) {
    const uint64_t noise = c.N < 4000 ? word() & word() & word() : word();
    codes.push_back((centers[random.below(6)] ^ noise) & used);
  }
  return Tensor::from(codes, {c.B, c.H, c.N});
}

// The definition in core/kernels/hamming_kmeans.h, one sentence after the other.
std::vector<int32_t> reference(const Problem& c, const Tensor& tensor, Draw draw) {
  const auto codes = tensor.to_vector<uint64_t>();
  std::vector<int32_t> labels(codes.size(), -1);
  for (int64_t row = 0; row < c.B * c.H; ++row) {
    const int64_t n = c.lengths.empty() ? c.N : c.lengths[size_t(row / c.H)];
    const auto code = [&](int64_t i) { return codes[size_t(row * c.N + i)]; };
    const auto label = [&](int64_t i) -> int32_t& { return labels[size_t(row * c.N + i)]; };
    const auto words = [&](int64_t cluster, int iteration) {
      return reference_philox(reference_key(draw), {uint32_t(row % c.H), uint32_t(cluster), uint32_t(iteration), 0});
    };
    const auto draw_below = [&](int64_t maximum, int64_t cluster, int iteration) {
      return int64_t(uint64_t(words(cluster, iteration)[0]) * uint64_t(maximum) >> 32);
    };
    if (c.C >= n) {
      for (int64_t i = 0; i < n; ++i) label(i) = int32_t(i);
      continue;
    }
    std::vector<uint64_t> centroid;
    for (int64_t j = 0; j < c.C; ++j) {
      const int64_t first = j * n / c.C, end = (j + 1) * n / c.C;
      centroid.push_back(code(first + draw_below(end - first, j, 0)));
    }
    const auto assign = [&] {
      for (int64_t i = 0; i < n; ++i) {
        int nearest = 65;
        for (int64_t j = 0; j < c.C; ++j) {
          const int distance = std::popcount(code(i) ^ centroid[size_t(j)]);
          if (distance < nearest) nearest = distance, label(i) = int32_t(j);
        }
      }
    };
    for (int iteration = 1; iteration <= c.iterations; ++iteration) {
      assign();
      for (int64_t j = 0; j < c.C; ++j) {
        std::vector<uint64_t> members;
        for (int64_t i = 0; i < n; ++i)
          if (label(i) == j) members.push_back(code(i));
        uint64_t& of = centroid[size_t(j)];
        of = 0;
        for (int bit = 0; bit < c.bits; ++bit) {
          int64_t ones = 0, zeros = 0;
          for (uint64_t member : members) ++(member >> bit & 1 ? ones : zeros);
          const bool tie = words(j, iteration)[size_t(2 + bit / 32)] >> bit % 32 & 1;
          if (ones > zeros || (ones == zeros && tie)) of |= uint64_t{1} << bit;
        }
        if (members.empty()) of = code(draw_below(n, j, iteration));
      }
    }
    assign();
  }
  return labels;
}

// For given labels, the least sum of distances from codes to centroids: that of centroids by the majority of bits.
int64_t summed_distance(const std::vector<uint64_t>& codes, const std::vector<int32_t>& labels, int64_t C) {
  int64_t sum = 0;
  for (int64_t j = 0; j < C; ++j)
    for (int bit = 0; bit < 64; ++bit) {
      int64_t count[2] = {};
      for (size_t i = 0; i < codes.size(); ++i)
        if (labels[i] == j) ++count[codes[i] >> bit & 1];
      sum += std::min(count[0], count[1]);
    }
  return sum;
}

}  // namespace

OPERATION("hamming_kmeans") {
  op.takes = {{"codes", "B H N"}};
  const auto add = [&](const Problem& c, const Tensor& codes, bool on_cuda = true) {
    for (const Form form : {Form::usual, Form::older}) {  // with and without tensor cores
      Case& test = op.add(concat(c), {codes});
      test.forward = [c](const Variables& t) { return Variables{Variable(c.run(t[0].value(), test_draw()))}; };
      test.reference = [c](const Tensors& t) {
        return Tensors{Tensor::from(reference(c, t[0], test_draw()), t[0].shape())};
      };
      test.form = form;
      test.on_cuda = on_cuda;
    }
  };
  for (const Problem& c : fixed_cases) add(c, random_codes(c, 11));
  const Problem many_rows{8, 64, 2100, 3, 7, 1, {}};  // chunks of 2048 queries, the last one short
  add(many_rows, random_codes(many_rows, 13));
  add({1, 2, 3000, 9, 63, 3, {}}, Tensor::full({1, 2, 3000}, 5, DType::uint64));  // identical ones: the first cluster
  RandomStream random(5, 0, Purpose::test);
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Problem c{1 + int64_t(random.below(3)),
              1 + int64_t(random.below(3)),
              int64_t(random.below(60)),
              1 + int64_t(random.below(20)),
              1 + int(random.below(64)),
              int(random.below(12)),
              {}};
    if (random.below(2))
      for (int64_t b = 0; b < c.B; ++b) c.lengths.push_back(int32_t(random.below(uint32_t(c.N + 1))));
    add(c, random_codes(c, seed), seed <= 20);
  }
}

#if CAIRN_HAS_CUDA
TEST_CASE("hamming_kmeans on CUDA gives the same labels with any number of blocks for a row", "[hamming_kmeans][gpu]") {
  for (const Problem& c : fixed_cases) {
    const Tensor codes = random_codes(c, 11), expected = c.run(codes, test_draw());
    const Tensor there = codes.to(Device::cuda), lengths = c.lengths.empty() ? Tensor() : int32s(c.lengths);
    const Tensor lengths_there = lengths.defined() ? lengths.to(Device::cuda) : Tensor();
    for (const int blocks : test::sanitized ? std::vector{0, 2} : std::vector{0, 1, 2, 4, 8}) {
      if (blocks > 0 && c.C > 256) continue;
      INFO(concat(c, " blocks ", blocks));
      Tensor labels = Tensor::full({c.B, c.H, c.N}, -7, DType::int32, Device::cuda);
      const bool done = gpu::hamming_kmeans_with(blocks, current_stream(Device::cuda),
                                                 {c.B, c.H, c.N, c.C, c.iterations}, there.data<uint64_t>(),
                                                 lengths_there.defined() ? lengths_there.data<int32_t>() : nullptr,
                                                 test_draw(), labels.mutable_data<int32_t>());
      REQUIRE((done || blocks > 1));
      if (done) REQUIRE(labels.to_vector<int32_t>() == expected.to_vector<int32_t>());
    }
  }
}
#endif

TEST_CASE("the summed Hamming distance never rises from one iteration to the next", "[hamming_kmeans]") {
  RandomStream random(6, 0, Purpose::test);
  int fell = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Problem c{1, 1, 20 + int64_t(random.below(100)), 2 + int64_t(random.below(12)), 1 + int(random.below(64)), 0, {}};
    const Tensor codes = random_codes(c, seed);
    int64_t before = INT64_MAX;
    for (c.iterations = 0; c.iterations < 8; ++c.iterations) {
      INFO(concat(c, " seed ", seed));
      const int64_t now =
          summed_distance(codes.to_vector<uint64_t>(), c.run(codes, test_draw(seed)).to_vector<int32_t>(), c.C);
      REQUIRE(now <= before);
      fell += c.iterations > 0 && now < before;
      before = now;
    }
  }
  CHECK(fell > 60);
}

TEST_CASE("hamming_kmeans refuses what it cannot compute", "[hamming_kmeans]") {
  const Tensor codes = Tensor::zeros({2, 3, 5}, DType::uint64);
  const auto run = [](const Tensor& x, const Tensor& lengths) { hamming_kmeans(x, lengths, 2, 1, test_draw()); };
  CHECK_ERROR(hamming_kmeans(codes, {}, 0, 1, test_draw()), "hamming_kmeans: clusters = 0, expected at least 1");
  CHECK_ERROR(hamming_kmeans(codes, {}, 2, -1, test_draw()), "hamming_kmeans: iterations = -1, expected at least 0");
  CHECK_THROWS_AS(hamming_kmeans(codes, {}, 2, -1, test_draw()), UsageError);
  CHECK_ERROR(run(codes, int32s({1, 6})), "hamming_kmeans: lengths[1] is 6, expected 0 to 5");
  check_refusals("hamming_kmeans", {{"codes", "B H N"}, {"lengths", "B", Taken::optional}}, {codes, int32s({1, 5})},
                 [&](const Tensors& t) { run(t[0], t[1]); });
}
