#include "core/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace cairn {
namespace {

#ifdef _OPENMP
int available() { return omp_get_max_threads(); }
#else
int available() { return std::max(1, int(std::thread::hardware_concurrency())); }
#endif

int& thread_count() {
  static int count = available();
  return count;
}

thread_local bool inside = false;

}  // namespace

void set_threads(int threads) {
  check<UsageError>(threads >= 1, "threads: expected at least 1, got ", threads);
  thread_count() = threads;
}
int threads() { return thread_count(); }

void detail::run_chunks(int64_t chunks, ChunkBody body, void* closure) {
  const int count = int(std::min<int64_t>(thread_count(), chunks));
  if (count <= 1 || inside) {
    for (int64_t i = 0; i < chunks; ++i) body(closure, i);
    return;
  }
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    inside = true;
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) body(closure, i);
    } catch (...) {
      std::lock_guard guard(mutex);
      failure = std::current_exception();
      next = chunks;
    }
    inside = false;
  };
#ifdef _OPENMP
#pragma omp parallel num_threads(count)
  work();
#else
  std::vector<std::thread> pool;
  for (int i = 1; i < count; ++i) pool.emplace_back(work);
  work();
  for (auto& thread : pool) thread.join();
#endif
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cairn
