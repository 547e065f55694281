#include "core/kernels/positions.h"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "tests/catch.h"

using namespace cairn;  // NOLINT: tests only

namespace {

constexpr int32_t maximum = std::numeric_limits<int32_t>::max();

std::vector<Positions> every_kind() {
  std::vector<Positions> kinds;
  for (bool causal : {false, true})
    for (int32_t window : {-1, 0, 1, 5, 12, maximum})
      for (int32_t global : {0, 1, 6, maximum})
        for (bool self : {true, false}) kinds.push_back({causal, {window, global, self}});
  for (int query_bits : {0, 1, 3})
    for (int key_bits : {0, 2, 3}) {
      kinds.push_back({query_bits == key_bits, {.blocks = {query_bits, key_bits}}});
      for (bool later : {false, true}) kinds.push_back({false, {.blocks = {query_bits, key_bits, true, later}}});
    }
  return kinds;
}

std::string text(const Positions& p) {
  return "window " + std::to_string(p.pattern.window) + " global " + std::to_string(p.pattern.global) +
         (p.pattern.self ? "" : " without self") + (p.causal ? " causal" : "") +
         (p.pattern.blocks.none() ? ""
                                  : " blocks of 2^" + std::to_string(p.pattern.blocks.query_bits) + " and 2^" +
                                        std::to_string(p.pattern.blocks.key_bits) +
                                        (p.pattern.blocks.far ? p.pattern.blocks.later ? " far" : " before" : " near"));
}

// Visibility by its definition.
bool sees(const Positions& p, int64_t i, int64_t j) {
  if (p.causal && j > i) return false;
  const auto [window, global, self, blocks] = p.pattern;
  if (!blocks.none()) {
    const int64_t to = j / (1 << blocks.key_bits) - i / (1 << blocks.query_bits);
    return blocks.far ? to < -1 || (to > 1 && blocks.later) : std::abs(to) <= 1;
  }
  if (window < 0) return true;
  if (i < global || j < global) return true;
  return std::abs(i - j) <= window && (self || i != j);
}

// The groups of four positions below `limit` that the runs from `from` on cover.
template <class Next>
std::vector<bool> covered(int from, int limit, Next next) {
  std::vector<bool> fours(size_t(limit + 3) / 4, false);
  while (from < limit) {
    const Range<int> run = next(from);
    REQUIRE(run.begin >= from);
    if (run.begin == limit) break;
    REQUIRE(run.begin % 4 == 0);
    REQUIRE((run.end > run.begin && run.end <= limit));
    REQUIRE((run.end % 4 == 0 || next(run.end).begin == limit));
    for (int j = run.begin; j < run.end; ++j) fours[size_t(j) / 4] = true;
    from = run.end;
  }
  return fours;
}

}  // namespace

TEST_CASE("a pattern decides by positions which keys a query sees", "[attention]") {
  for (const Positions& p : every_kind())
    for (int64_t i = 0; i < 26; ++i)
      for (int64_t j = 0; j < 26; ++j) {
        INFO(text(p) << ", query " << i << ", key " << j);
        REQUIRE(p.sees(i, j) == sees(p, i, j));
        REQUIRE(p.sees(int(i), int(j)) == sees(p, i, j));
      }
}

TEST_CASE("runs cover exactly the groups of four positions with a visible key or a query itself", "[attention]") {
  constexpr int n = 30;
  for (const Positions& p : every_kind())
    for (int begin = 0; begin < n; begin += 4)
      for (int end : {begin, begin + 1, begin + 4, begin + 14})
        for (int limit : {0, 13, n})
          for (int from : {0, 8}) {
            INFO(text(p) << ", [" << begin << ", " << end << "), limit " << limit << ", from " << from);
            Positions with_self = p;
            with_self.pattern.self = true;
            std::vector<bool> keys(size_t(limit + 3) / 4, false), queries = keys;
            for (int i = begin; i < end; ++i)
              for (int j = from; j < limit; ++j) {
                if (sees(with_self, i, j)) keys[size_t(j) / 4] = true;
                if (sees(with_self, j, i)) queries[size_t(j) / 4] = true;
              }
            REQUIRE(covered(from, limit, [&](int at) { return p.next_keys(begin, end, at, limit); }) == keys);
            REQUIRE(covered(from, limit, [&](int at) { return p.next_queries(begin, end, at, limit); }) == queries);
          }
}

TEST_CASE("a tile that is reported as fully visible is fully visible", "[attention]") {
  constexpr int n = 24;
  for (const Positions& p : every_kind())
    for (int q0 = 0; q0 < n; q0 += 3)
      for (int q1 : {q0 + 1, q0 + 5})
        for (int k0 = 0; k0 < n; k0 += 3)
          for (int k1 : {k0 + 1, k0 + 4}) {
            bool all = true;
            for (int i = q0; i < q1; ++i)
              for (int j = k0; j < k1; ++j) all = all && sees(p, i, j);
            INFO(text(p) << ", queries [" << q0 << ", " << q1 << "), keys [" << k0 << ", " << k1 << ")");
            if (p.sees_all(q0, q1, k0, k1)) REQUIRE(all);
            // Without global positions, sees_all() is exact.
            if (all && p.pattern.global == 0) REQUIRE(p.sees_all(q0, q1, k0, k1));
          }
}

TEST_CASE("patterns of positions do not overflow", "[attention]") {
  const int last = maximum - 255;  // the maximum of CUDA's kernels
  std::vector<Positions> kinds = every_kind();
  for (int32_t large : {maximum - 1, maximum - 300, maximum / 2, 1 << 30}) {
    kinds.push_back({false, {large, 0, false}});
    kinds.push_back({false, {0, large}});
  }
  for (const Positions& p : kinds)
    for (int begin : {0, 4, 1 << 30, last / 4 * 4 - 64, last / 4 * 4})
      for (int from : {0, 4, 1 << 30, last / 4 * 4 - 64, last / 4 * 4}) {
        INFO(text(p) << ", begin " << begin << ", from " << from);
        const int end = begin + 128;
        const int64_t b = begin, e = end, f = from, l = last;
        const auto keys = p.next_keys(begin, end, from, last), queries = p.next_queries(begin, end, from, last);
        const auto keys_64 = p.next_keys(b, e, f, l), queries_64 = p.next_queries(b, e, f, l);
        REQUIRE((keys.begin == keys_64.begin && keys.end == keys_64.end));
        REQUIRE((queries.begin == queries_64.begin && queries.end == queries_64.end));
        REQUIRE(p.sees_all(begin, end, from, from + 128) == p.sees_all(b, e, f, f + 128));
        REQUIRE(p.sees(begin, from) == p.sees(b, f));
      }
}
