#include "core/kernels/hamming_kmeans.h"

#include "tests/catch.h"
#include "tests/cuda/device.h"

using namespace cairn;
using namespace cairn::test;

namespace {

struct Case {
  KMeansSize size;
  std::vector<int32_t> lengths;  // empty: none given
};

// Codes around a few centers, so that clusters differ in size and ties and empty clusters occur.
std::vector<uint64_t> random_codes(const KMeansSize& size, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  const uint64_t mask = size.bits == 64 ? ~uint64_t{0} : (uint64_t{1} << size.bits) - 1;
  const auto word = [&] { return uint64_t(sequence.next()) << 32 | sequence.next(); };
  uint64_t centers[5];
  for (uint64_t& center : centers) center = word();
  std::vector<uint64_t> codes(size_t(size.B * size.H * size.N));
  for (uint64_t& code : codes) code = (centers[sequence.below(5)] ^ (word() & word() & word())) & mask;
  return codes;
}

int distance(uint64_t a, uint64_t b) {
  int bits = 0;
  for (uint64_t x = a ^ b; x; x >>= 1) bits += int(x & 1);
  return bits;
}

// The definition of core/kernels/hamming_kmeans.h, one sentence after the other.
std::vector<int32_t> reference(const Case& test, const std::vector<uint64_t>& codes, Draw draw) {
  const auto& [B, H, N, C, bits, iterations] = test.size;
  std::vector<int32_t> labels(codes.size(), -1);
  for (int64_t row = 0; row < B * H; ++row) {
    const int64_t n = test.lengths.empty() ? N : test.lengths[size_t(row / H)];
    const uint64_t* code = codes.data() + row * N;
    int32_t* label = labels.data() + row * N;
    const auto drawn = [&](int64_t cluster, int iteration, int64_t choices) {
      const PhiloxWords words = philox(draw.key(), {{uint32_t(row), uint32_t(cluster), uint32_t(iteration), 0}});
      return int64_t(below(words.w[0], uint32_t(choices)));
    };
    if (C >= n) {
      for (int64_t i = 0; i < n; ++i) label[i] = int32_t(i);
      continue;
    }
    std::vector<uint64_t> centroids;
    for (int64_t j = 0; j < C; ++j) {
      const int64_t low = j * n / C, high = (j + 1) * n / C;
      centroids.push_back(code[low + drawn(j, 0, high - low)]);
    }
    for (int t = 0; t <= iterations; ++t) {
      for (int64_t i = 0; i < n; ++i) {
        label[i] = 0;
        for (int32_t j = 1; j < C; ++j)
          if (distance(code[i], centroids[size_t(j)]) < distance(code[i], centroids[size_t(label[i])])) label[i] = j;
      }
      for (int64_t j = 0; j < C && t < iterations; ++j) {
        int members = 0, ones[64] = {};
        for (int64_t i = 0; i < n; ++i)
          if (label[i] == j) {
            ++members;
            for (int bit = 0; bit < bits; ++bit) ones[bit] += int(code[i] >> bit & 1);
          }
        uint64_t& centroid = centroids[size_t(j)];
        if (members == 0) centroid = code[drawn(j, t + 1, n)];
        for (int bit = 0; bit < bits && members > 0; ++bit) {
          if (2 * ones[bit] > members) centroid |= uint64_t{1} << bit;
          if (2 * ones[bit] < members) centroid &= ~(uint64_t{1} << bit);
        }
      }
    }
  }
  return labels;
}

std::vector<int32_t> on_device(const Case& test, const std::vector<uint64_t>& codes,
                               const std::vector<uint64_t>& state) {
  OnDevice<uint64_t> device_codes(codes), device_state(state);
  OnDevice<int32_t> lengths(test.lengths), labels(codes.size());
  Workspace scratch(Device::cuda);
  gpu::hamming_kmeans({}, test.size, device_codes.data(), test.lengths.empty() ? nullptr : lengths.data(),
                      {device_state.data(), 3, Purpose::clusters}, scratch, labels.data());
  return labels.values();
}

}  // namespace

TEST_CASE("hamming_kmeans on CUDA gives the labels of its definition and of the CPU", "[gpu]") {
  const Case cases[] = {
      {{1, 1, 0, 4, 8, 3}, {}},                  // no queries
      {{0, 3, 7, 4, 8, 3}, {}},                  // no rows
      {{1, 1, 1, 1, 1, 1}, {}},                  //
      {{2, 3, 7, 7, 16, 3}, {}},                 // as many clusters as queries
      {{2, 3, 7, 50, 16, 3}, {}},                // more
      {{1, 2, 300, 1, 63, 2}, {}},               // one cluster
      {{1, 1, 97, 13, 64, 0}, {}},               // the start alone
      {{2, 3, 101, 5, 1, 10}, {}},               // one bit: ties, empty clusters
      {{1, 2, 257, 17, 33, 10}, {}},             //
      {{2, 2, 1023, 37, 63, 4}, {}},             //
      {{4, 2, 67, 11, 32, 5}, {0, 67, 11, 12}},  // none, all, as many as clusters, one more
      {{3, 1, 530, 19, 31, 4}, {256, 513, 1}},   //
      {{1, 1, 2500, 700, 64, 2}, {}},            // several tiles of centroids and of counters
      {{2, 1, 2500, 130, 20, 2}, {2500, 131}},   //
  };
  const std::vector<uint64_t> state{12345, 6};
  const Draw draw{state.data(), 3, Purpose::clusters};
  for (const Case& test : cases) {
    const auto& size = test.size;
    INFO("B " << size.B << " H " << size.H << " N " << size.N << " C " << size.C << " bits " << size.bits);
    const auto codes = random_codes(size, 11);
    const auto expected = reference(test, codes, draw);
    in_every_order([&] { CHECK(on_device(test, codes, state) == expected); });

    std::vector<int32_t> on_cpu(codes.size());
    Workspace scratch(Device::cpu);
    cpu::hamming_kmeans({}, size, codes.data(), test.lengths.empty() ? nullptr : test.lengths.data(), draw, scratch,
                        on_cpu.data());
    CHECK(on_cpu == expected);
  }
}

TEST_CASE("hamming_kmeans on CUDA draws anew at every step", "[gpu]") {
  const Case test{{1, 1, 500, 20, 40, 1}, {}};
  const auto codes = random_codes(test.size, 12);
  const auto first = on_device(test, codes, {1, 0});
  CHECK(first == on_device(test, codes, {1, 0}));
  CHECK(first != on_device(test, codes, {1, 1}));
  CHECK(first != on_device(test, codes, {2, 0}));
}

TEST_CASE("hamming_kmeans on CUDA takes pieces of several sizes", "[gpu]") {
  // Many rows: pieces of 2048 queries, the last one short; against the CPU, which the cases above hold to the
  // definition.
  const Case test{{8, 64, 2100, 3, 7, 1}, {}};
  const auto codes = random_codes(test.size, 13);
  const std::vector<uint64_t> state{5, 5};
  std::vector<int32_t> expected(codes.size());
  Workspace scratch(Device::cpu);
  cpu::hamming_kmeans({}, test.size, codes.data(), nullptr, {state.data(), 3, Purpose::clusters}, scratch,
                      expected.data());
  CHECK(on_device(test, codes, state) == expected);
}
