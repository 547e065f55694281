#include "core/parallel.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ops/ops_test.h"

namespace {

// Sets the number of threads during its lifetime.
struct Threads {
  explicit Threads(int count) : before(threads()) { set_threads(count); }
  ~Threads() { set_threads(before); }
  int before;
};

}  // namespace

TEST_CASE("the chunks of a loop depend on the grain, not on the number of threads", "[parallel]") {
  using Pieces = std::set<std::pair<int64_t, int64_t>>;
  constexpr int64_t maximum = std::numeric_limits<int64_t>::max();
  for (int count : {1, 3}) {
    const Threads these(count);
    const auto pieces = [](int64_t n, int64_t grain) {
      std::mutex mutex;
      Pieces result;
      parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        const std::lock_guard guard(mutex);
        result.insert({begin, end});
      });
      return result;
    };
    CHECK(pieces(10, 4) == Pieces{{0, 4}, {4, 8}, {8, 10}});
    CHECK(pieces(3, maximum) == Pieces{{0, 3}});
    CHECK(pieces(maximum, maximum - 1) == Pieces{{0, maximum - 1}, {maximum - 1, maximum}});
    CHECK(pieces(-2, 2).empty());
    CHECK_ERROR(pieces(3, 0), "parallel_for: grain = 0, expected at least 1");
    CHECK_ERROR(pieces(3, -1), "parallel_for: grain = -1, expected at least 1");
  }
}

TEST_CASE("a loop visits every index exactly once, on any number of threads", "[parallel]") {
  for (int count : {1, 2, 3, 8}) {
    const Threads these(count);
    CHECK(threads() == count);
    for (int64_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
      parallel_tasks(n, [&](int64_t i) { ++seen[size_t(i)]; });
      for (const auto& times : seen) REQUIRE(times == 1);
      for (int64_t grain : {1, 3, 64, 5000}) {
        for (auto& times : seen) times = 0;
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
        });
        for (const auto& times : seen) REQUIRE(times == 1);
      }
    }
  }
}

TEST_CASE("a loop really runs on several threads", "[parallel]") {
  const Threads two(2);
  std::atomic<int> arrived{0};
  // Two tasks wait for each other, so one thread cannot finish them. A minute is enough on any machine.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  parallel_tasks(2, [&](int64_t) {
    ++arrived;
    while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  CHECK(std::chrono::steady_clock::now() < deadline);
}

TEST_CASE("an exception leaves a loop, and the next loop works", "[parallel]") {
  for (int count : {1, 2, 3}) {
    const Threads these(count);
    CHECK_THROWS_WITH(parallel_tasks(100, [](int64_t i) { check(i != 37, "task 37"); }), "task 37");
    CHECK_THROWS_AS(parallel_tasks(100, [](int64_t) { throw DataError("all of them"); }), DataError);
    std::atomic<int> sum{0};
    parallel_tasks(100, [&](int64_t i) { sum += int(i); });
    CHECK(sum == 4950);
  }
}

TEST_CASE("a nested loop runs on the thread that calls it", "[parallel]") {
  const Threads these(3);
  std::atomic<int> count{0}, elsewhere_count{0};
  parallel_tasks(5, [&](int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_tasks(7, [&](int64_t) {
      ++count;
      elsewhere_count += std::this_thread::get_id() != outer;
    });
  });
  CHECK(count == 35);
  CHECK(elsewhere_count == 0);
  CHECK_THROWS_WITH(parallel_tasks(5, [](int64_t) { parallel_tasks(5, [](int64_t i) { check(i != 3, "inner"); }); }),
                    "inner");
}

TEST_CASE("several threads may run loops at the same time", "[parallel]") {
  const Threads these(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 200; ++repeat) {
        std::atomic<int64_t> sum{0};
        parallel_tasks(50, [&](int64_t i) { sum += i; });
        wrong += sum != 1225;
      }
    });
  for (auto& caller : callers) caller.join();
  CHECK(wrong == 0);
}

TEST_CASE("a number of threads below 1 is rejected", "[parallel]") {
  const int before = threads();
  CHECK(before >= 1);
  CHECK_ERROR(set_threads(0), "threads: expected at least 1, got 0");
  CHECK_THROWS_AS(set_threads(-3), UsageError);
  CHECK(threads() == before);
}
