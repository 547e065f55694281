// Cases of parity.h: hash codes, groups and segments.
#include "tests/cuda/parity.h"

namespace cairn::test {

// B, H, N and clusters: nothing, one, odd, several pieces of queries, more clusters than queries, more than a block
// takes at once.
static const struct Grouped {
  int64_t B, H, N, C;
} grouped[] = {{0, 2, 3, 2},  {2, 0, 3, 2},   {2, 3, 0, 4},    {2, 3, 7, 0},     {1, 1, 1, 1},     {2, 3, 17, 1},
               {2, 1, 33, 7}, {1, 2, 300, 5}, {2, 3, 257, 40}, {1, 1, 100, 300}, {1, 2, 2100, 31}, {1, 1, 5003, 1100}};

static std::string label(const char* what, const Grouped& size) {
  return label(what, Shape{size.B, size.H, size.N}) + " in " + std::to_string(size.C) + " clusters";
}

// Labels of which some are no clusters; every third cluster is empty.
static Tensor labels(const Bench& bench, const Grouped& size) {
  Tensor x = bench.integers({size.B, size.H, size.N}, -2, int(size.C) + 1).to(Device::cpu);
  int32_t* label = x.mutable_data<int32_t>();
  for (int64_t i = 0; i < x.elements(); ++i)
    if (label[i] % 3 == 1) --label[i];
  return x.to(bench.device);
}

static void add_group(std::vector<Case>& cases) {
  for (const Grouped& size : grouped)
    cases.push_back({label("group", size), [=](const Bench& bench) -> Results {
                       const Groups groups = group(labels(bench, size), size.C);
                       return {groups.permutation, groups.offsets};
                     }});
  // 938 pieces of 320 queries.
  cases.push_back({"group of more queries than pieces of the least size hold", [](const Bench& bench) -> Results {
                     const Groups groups = group(bench.integers({1, 1, 300'007}, -1, 12), 12);
                     return {groups.permutation, groups.offsets};
                   }});
  cases.push_back({"group of queries of one cluster", [](const Bench& bench) -> Results {
                     const Groups groups = group(bench.integers({1, 2, 1000}, 3, 3), 5);
                     return {groups.permutation, groups.offsets};
                   }});
}

void add_groups(std::vector<Case>& cases) { add_group(cases); }

}  // namespace cairn::test
