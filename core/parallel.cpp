// A pool of threads that take tasks from a counter. Unlike the barrier of an OpenMP loop, the end of a loop waits only
// for threads that took part in it. A thread that the system did not run in time costs nothing: on a shared machine,
// such waits make loops many times slower.
#include "core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/limits.h"

namespace cairn {
namespace {

// The processors that this process may use: those of its affinity (taskset, containers), at most as many as its control
// groups have time for.
int available() {
  cpu_set_t allowed;
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const int processors = known ? CPU_COUNT(&allowed) : int(std::thread::hardware_concurrency());
  return std::max(1, std::min(processors, limits().processors));
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count = available();
  return count;
}

thread_local bool inside_loop = false;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // on most of these processors, `yield` takes no time
#endif
}

// Waits until `value` is no longer `old`. For about 20 (AMD) to 60 (Intel) microseconds it spins, because the next loop
// usually comes at once; then it sleeps.
void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < 1000; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_processor();
  }
  value.wait(old, std::memory_order_acquire);
}

struct Job {
  const std::function<void(int64_t)>* task = nullptr;
  int64_t tasks = 0;
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;

  void work() {
    inside_loop = true;
    try {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) (*task)(i);
    } catch (...) {
      const std::lock_guard guard(failure_mutex);
      failure = std::current_exception();
      next = tasks;
    }
    inside_loop = false;
  }
};

class Pool {
 public:
  ~Pool() {
    stop_ = true;
    announce();
    for (std::thread& worker : workers_) worker.join();
  }

  // Runs n tasks on `threads` threads, this one included. Returns false if another thread's loop is running.
  bool run(int threads, int64_t n, const std::function<void(int64_t)>& task) {
    const std::unique_lock lock(owner_, std::try_to_lock);
    if (!lock) return false;
    try {
      for (int i = int(workers_.size()); i < threads - 1; ++i) workers_.emplace_back([this, i] { serve(i); });
    } catch (const std::system_error&) {
      // The system gives no more threads. Fewer give the same results.
    }
    job_.task = &task;
    job_.tasks = n;
    job_.next = 0;
    job_.failure = nullptr;
    wanted_ = threads - 1;
    taking_part_.fetch_and(~closed, std::memory_order_release);
    announce();
    job_.work();
    // From here on no thread may join; wait for those that did.
    taking_part_.fetch_or(closed);
    for (uint32_t now; (now = taking_part_.load(std::memory_order_acquire)) != closed;)
      wait_while_equal(taking_part_, now);
    if (job_.failure) std::rethrow_exception(std::exchange(job_.failure, nullptr));
    return true;
  }

 private:
  static constexpr uint32_t closed = 1u << 31;

  void announce() {
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }

  void serve(int index) {
    for (uint32_t seen = 0;;) {
      wait_while_equal(generation_, seen);
      seen = generation_.load(std::memory_order_acquire);
      if (stop_) return;
      if (index >= wanted_) continue;
      if (!(taking_part_.fetch_add(1, std::memory_order_acquire) & closed)) job_.work();
      if (taking_part_.fetch_sub(1, std::memory_order_release) == (closed | 1)) taking_part_.notify_all();
    }
  }

  std::mutex owner_;
  std::vector<std::thread> workers_;
  Job job_;
  std::atomic<bool> stop_{false};
  std::atomic<int> wanted_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<uint32_t> taking_part_{closed};  // how many threads work on the job; the top bit: nobody may join
};

Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

void set_threads(int threads) {
  check<UsageError>(threads >= 1, "threads: expected at least 1, got ", threads);
  thread_count() = threads;
}
int threads() { return thread_count(); }

void detail::run_tasks(int64_t n, const std::function<void(int64_t)>& task) {
  const int count = int(std::min<int64_t>(thread_count(), n));
  if (count > 1 && !inside_loop && pool().run(count, n, task)) return;
  for (int64_t i = 0; i < n; ++i) task(i);
}

}  // namespace cairn
