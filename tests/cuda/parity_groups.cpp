// Cases of parity.h: hash codes, groups and segments.
#include <cmath>

#include "tests/cuda/parity.h"

namespace cairn::test {

// B, H, N and clusters: nothing, one, odd, several pieces of queries, more clusters than queries, more than a block
// takes at once.
static const struct Grouped {
  int64_t B, H, N, C;
} grouped[] = {{0, 2, 3, 2},  {2, 0, 3, 2},   {2, 3, 0, 4},    {2, 3, 7, 0},     {1, 1, 1, 1},     {2, 3, 17, 1},
               {2, 1, 33, 7}, {1, 2, 300, 5}, {2, 3, 257, 40}, {1, 1, 100, 300}, {1, 2, 2100, 31}, {1, 1, 5003, 1100}};

static std::string grouped_label(const char* what, const Grouped& size) {
  return label(what, {size.B, size.H, size.N}) + " in " + std::to_string(size.C) + " clusters";
}

// Labels of which some are no clusters; every third cluster is empty.
static Tensor labels(const Bench& bench, const Grouped& size) {
  Tensor x = bench.integers({size.B, size.H, size.N}, -2, int(size.C) + 1).to(Device::cpu);
  int32_t* label = x.mutable_data<int32_t>();
  for (int64_t i = 0; i < x.elements(); ++i)
    if (label[i] % 3 == 1) --label[i];
  return x.to(bench.device);
}

void add_group(std::vector<Case>& cases) {
  for (const Grouped& size : grouped)
    cases.push_back({grouped_label("group", size), [=](const Bench& bench) -> Results {
                       const Groups groups = group(labels(bench, size), size.C);
                       return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
                     }});
  // 938 pieces of 320 queries.
  cases.push_back({"group of more queries than pieces of the least size hold", [](const Bench& bench) -> Results {
                     const Groups groups = group(bench.integers({1, 1, 300'007}, -1, 12), 12);
                     return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
                   }});
  cases.push_back({"group of queries of one cluster", [](const Bench& bench) -> Results {
                     const Groups groups = group(bench.integers({1, 2, 1000}, 3, 3), 5);
                     return {{"permutation", groups.permutation()}, {"offsets", groups.offsets()}};
                   }});
}

void add_segments(std::vector<Case>& cases) {
  const auto add = [&](const Grouped& size, int64_t D) {
    cases.push_back(
        {grouped_label("segments", size) + ", D = " + std::to_string(D), [=](const Bench& bench) -> Results {
           const Groups groups = group(labels(bench, size), size.C);
           const Tensor x = bench.normal({size.B, size.N, size.H, D}), y = bench.normal({size.B, size.C, size.H, D}, 2);
           Results results;
           for (const Segment kind : {Segment::sum, Segment::mean}) {
             results.push_back({kind == Segment::sum ? "sums" : "means", segment_reduce(kind, x, groups)});
             results.push_back({kind == Segment::sum ? "copies" : "shares", segment_broadcast(kind, y, groups)});
           }
           return results;
         }});
  };
  for (const Grouped& size : grouped) add(size, 8);
  for (const int64_t D : {0, 1, 3, 20, 33, 64, 128, 200}) add({2, 3, 61, 7}, D);
  add({1, 1, 9, 2}, 2064);  // more columns than a block has threads, in single elements and in packs
  add({1, 1, 9, 2}, 2061);
  for (const int64_t D : {3, 64})
    cases.push_back({"a segment of thousands, D = " + std::to_string(D), [=](const Bench& bench) -> Results {
                       const Groups groups = group(bench.integers({1, 1, 4099}, 0, 0), 2);
                       const Tensor x = bench.uniform({1, 4099, 1, D}, -0.5, 0.5);
                       return {{"means", segment_reduce(Segment::mean, x, groups)},
                               {"sums", segment_reduce(Segment::sum, x, groups)}};
                     }});
  cases.push_back({"segments at addresses that no pack of elements starts at", [](const Bench& bench) -> Results {
                     const Groups groups = group(bench.integers({1, 1, 37}, -1, 4), 5);
                     const auto shifted = [&](int64_t rows) {
                       return bench.normal({rows * 16 + 1}).slice(1, rows * 16 + 1).reshape({1, rows, 1, 16});
                     };
                     return {{"means", segment_reduce(Segment::mean, shifted(37), groups)},
                             {"shares", segment_broadcast(Segment::mean, shifted(5), groups)}};
                   }});
  cases.push_back({"segments with gradients", [](const Bench& bench) {
                     const Groups groups = group(bench.integers({2, 3, 41}, -1, 6), 8);
                     const Variable x = bench.variable(bench.normal({2, 41, 3, 12}));
                     return with_gradients(bench, segment_broadcast(segment_mean(x, groups), groups) + x, {{"x", x}});
                   }});
}

void add_hash_codes(std::vector<Case>& cases) {
  for (const int bits : {1, 32, 33, 64})
    for (const bool bias : {false, true})
      for (const int64_t D : {0, 1, 7, 129})
        cases.push_back(
            {label("random_planes", {bits, D}) + (bias ? " with a bias" : ""),
             [=](const Bench& bench) -> Results {
               const Generator generator(21, bench.device);
               return {{"planes", random_planes(bits, D, bias, generator.draw(2, Purpose::planes), bench.device)}};
             },
             true});
  // In halves, because results are compared as double.
  const auto codes = [](const Bench& bench, const Tensor& q, int bits) {
    const Generator generator(22, bench.device);
    const Tensor planes = random_planes(bits, q.size(3), true, generator.draw(1, Purpose::planes), bench.device);
    std::vector<int64_t> halves;
    for (const uint64_t code : hash_codes(q, planes).to_vector<uint64_t>())
      halves.insert(halves.end(), {int64_t(code >> 32), int64_t(code & 0xffffffff)});
    return Tensor::from(halves, {int64_t(halves.size())});
  };
  for (const Shape& shape : {Shape{0, 3, 2, 4}, Shape{2, 0, 2, 4}, Shape{2, 3, 0, 4}, Shape{2, 3, 2, 0},
                             Shape{1, 1, 1, 1}, Shape{2, 67, 3, 5}, Shape{1, 127, 1, 31}, Shape{1, 128, 1, 32},
                             Shape{3, 43, 1, 33}, Shape{1, 300, 2, 64}, Shape{2, 35, 2, 131}})
    for (const int bits : {1, 20, 32, 33, 63, 64})
      cases.push_back(
          {label("hash_codes", shape) + " in " + std::to_string(bits) + " bits", [=](const Bench& bench) -> Results {
             return {{"codes", codes(bench, bench.normal(shape), bits)}};
           }});
  cases.push_back({"hash_codes of zeros, NaN and infinities", [=](const Bench& bench) -> Results {
                     std::vector<float> x(size_t(7 * 5), 0.0f);
                     x[3] = NAN, x[5] = INFINITY, x[11] = -INFINITY, x[15] = INFINITY, x[16] = -INFINITY, x[22] = -0.0f;
                     const Tensor q = bench.place(Tensor::from(x, {1, 7, 1, 5}));
                     return {{"32 bits", codes(bench, q, 32)}, {"64 bits", codes(bench, q, 64)}};
                   }});
}

void add_position_labels(std::vector<Case>& cases) {
  for (const Grouped& size : grouped)
    if (size.C > 0)
      cases.push_back({grouped_label("position_labels", size), [=](const Bench& bench) -> Results {
                         const Shape shape{size.B, size.H, size.N};
                         const Tensor lengths = bench.integers({size.B}, 0, int(size.N));
                         return {{"labels", position_labels(shape, lengths, size.C, false, bench.device)},
                                 {"shifted labels", position_labels(shape, {}, size.C, true, bench.device)}};
                       }});
}

// Every sum has the same order on both devices, so that labels are equal whatever the numbers are.
void add_euclidean_kmeans(std::vector<Case>& cases) {
  const auto add = [&](const std::string& name, const Grouped& size, int64_t D, int iterations, auto queries) {
    cases.push_back(
        {grouped_label(name.c_str(), size) + ", D = " + std::to_string(D), [=](const Bench& bench) -> Results {
           const Generator generator(23, bench.device);
           const Tensor lengths = bench.integers({size.B}, 0, int(size.N), 5);
           const RandomDraw draw = generator.draw(1, Purpose::clusters);
           const Tensor q = queries(bench, Shape{size.B, size.N, size.H, D});
           return {{"labels", euclidean_kmeans(q, {}, size.C, iterations, draw)},
                   {"labels within lengths", euclidean_kmeans(q, lengths, size.C, iterations, draw)}};
         }});
  };
  const auto normal = [](const Bench& bench, const Shape& shape) { return bench.normal(shape); };
  // Many of the same, and many at the same distance.
  const auto whole = [](const Bench& bench, const Shape& shape) {
    return bench.place(bench.integers(shape, -2, 2).to(Device::cpu));
  };
  const auto bad = [](const Bench& bench, const Shape& shape) {
    RandomStream sequence(3, 0, Purpose::test);
    Tensor x = random_normal(shape, sequence);
    for (int64_t i = 0; i < x.elements(); i += 61) x.mutable_data<float>()[i] = i % 2 ? NAN : i % 3 ? INFINITY : -3e38f;
    return bench.place(x);
  };
  for (const Grouped& size : grouped)
    if (size.C > 0 && size.N <= 300) add("euclidean_kmeans", size, 8, 3, normal);
  for (const int64_t D : {0, 1, 3, 20, 33, 64, 130}) add("euclidean_kmeans", {2, 2, 67, 7}, D, 4, normal);
  add("euclidean_kmeans", {1, 1, 400, 150}, 6, 3, normal);
  add("euclidean_kmeans of whole numbers", {2, 2, 150, 20}, 3, 5, whole);
  add("euclidean_kmeans of whole numbers, the start alone", {2, 2, 150, 70}, 2, 0, whole);
  add("euclidean_kmeans with NaN and infinities", {2, 2, 90, 9}, 5, 4, bad);
}

}  // namespace cairn::test
