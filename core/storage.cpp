#include "core/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "core/dispatch.h"
#include "core/error.h"
#include "core/kernels/memory.h"
#include "core/limits.h"

namespace cairn {
namespace {

struct Counter {
  std::atomic<int64_t> live{0}, peak{0};

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes) + bytes;
    int64_t maximum = peak.load();
    while (maximum < now && !peak.compare_exchange_weak(maximum, now)) {
    }
  }
};
Counter& counter(Device device) {
  static Counter counters[2];
  return counters[int(device)];
}

std::atomic<int64_t>& scratch_bytes() {
  static std::atomic<int64_t> bytes{0};
  return bytes;
}

// Freed blocks of the CPU, at most the peak of live bytes or 64 MB.
class Cache {
 public:
  void* take(size_t bytes) {
    std::lock_guard guard(mutex_);
    const auto found = by_size_.find(bytes);
    return found == by_size_.end() || found->second.blocks.empty() ? nullptr : remove(*found);
  }
  bool keep(void* block, size_t bytes) noexcept try {
    std::lock_guard guard(mutex_);
    Blocks& same = by_size_[bytes];
    same.blocks.push_back(block);
    same.freed = ++clock_;
    held_ += bytes;
    trim_to(limit());
    return true;
  } catch (const std::bad_alloc&) {
    return false;  // no memory left for the list
  }
  void trim() {
    std::lock_guard guard(mutex_);
    trim_to(limit());
  }
  void clear() {
    std::lock_guard guard(mutex_);
    trim_to(0);
  }
  int64_t held() {
    std::lock_guard guard(mutex_);
    return int64_t(held_);
  }

 private:
  struct Blocks {
    std::vector<void*> blocks;
    uint64_t freed = 0;  // when the latest one was freed: clock_ counts freed blocks
  };
  using BySize = std::map<size_t, Blocks>;

  static size_t limit() { return size_t(std::max<int64_t>(64 << 20, counter(Device::cpu).peak)); }
  void* remove(BySize::value_type& same) {
    void* block = same.second.blocks.back();
    same.second.blocks.pop_back();
    held_ -= same.first;
    return block;
  }
  // Frees blocks until `maximum` bytes are left: first of the size whose latest block is the oldest.
  void trim_to(size_t maximum) {
    while (held_ > maximum) {
      const auto oldest = std::min_element(by_size_.begin(), by_size_.end(), [](const auto& a, const auto& b) {
        return a.second.freed < b.second.freed;
      });
      while (held_ > maximum && !oldest->second.blocks.empty()) std::free(remove(*oldest));
      if (oldest->second.blocks.empty()) by_size_.erase(oldest);
    }
  }

  std::mutex mutex_;
  BySize by_size_;
  uint64_t clock_ = 0;
  size_t held_ = 0;
};
Cache& cache() {
  static Cache* const instance = new Cache;  // never destroyed: static tensors may outlive any order of destruction
  return *instance;
}

// Under the address sanitizer nothing is cached, so that it sees a use after free.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAIRN_CACHING false
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CAIRN_CACHING false
#endif
#ifndef CAIRN_CACHING
#define CAIRN_CACHING true
#endif
constexpr bool caching = CAIRN_CACHING;

size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Large blocks ask for large pages, because the rows of a head are far apart: a few rows fill a small page.
void* new_block(size_t bytes) {
  constexpr size_t line = 64, large_page = size_t{2} << 20;
  if (bytes < 2 * large_page) return std::aligned_alloc(line, bytes);
  void* block = nullptr;
  if (posix_memalign(&block, large_page, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  madvise(block, bytes / large_page * large_page, MADV_HUGEPAGE);  // a hint: it may fail
#endif
  return block;
}

void* allocate_on_cpu(size_t bytes) {
  if (void* block = caching ? cache().take(bytes) : nullptr) return block;
  // The system grants more memory than there is, and kills the process when it writes to it.
  const size_t live = size_t(counter(Device::cpu).live), maximum = available_memory(Device::cpu);
  if (live + bytes > maximum) return nullptr;
  if (live + size_t(cache().held()) + bytes > maximum) release_cached_memory();
  void* block = new_block(bytes);
  if (!block) {
    release_cached_memory();
    block = new_block(bytes);
  }
  return block;
}

void give_back(void* data, size_t bytes, Device device) {
  counter(device).add(-int64_t(bytes));
  if (device != Device::cpu)
    CAIRN_ON_CUDA("", gpu::deallocate(current_stream(device), data));
  else if (!caching || !cache().keep(data, rounded(bytes)))
    std::free(data);
}

void fill_with_nan(void* data, size_t bytes, Device device) {
  if (device == Device::cpu)
    std::memset(data, 0xff, bytes);
  else
    CAIRN_ON_CUDA("", gpu::set_bytes(current_stream(device), data, 0xff, bytes));
}

}  // namespace

Storage::Storage(size_t bytes, Device device) : data_(nullptr), bytes_(bytes), device_(device) {
  // Kernels may offset the pointer of an empty tensor, which null does not allow.
  alignas(64) static char nothing[64];
  data_ = nothing;
  if (bytes == 0) return;
  check<OutOfMemory>(bytes < size_t{1} << 62, "out of memory on ", name(device), ": ", bytes, " bytes requested");
  if (device == Device::cpu)
    data_ = allocate_on_cpu(rounded(bytes));
  else
    data_ = CAIRN_ON_CUDA("", gpu::allocate(current_stream(device), bytes));
  if (!data_) {
    throw OutOfMemory(concat("out of memory on ", name(device), ": ", bytes, " bytes requested, ", memory(device).live,
                             " in use by tensors, ", available_memory(device),
                             device == Device::cpu ? " there for this process" : " free"));
  }
  counter(device).add(int64_t(bytes));
  static const bool fill = [] {
    const char* value = std::getenv("CAIRN_FILL_NAN");
    return value && *value == '1';
  }();
  if (!fill) return;
  try {
    fill_with_nan(data_, bytes, device);
  } catch (...) {  // a launch failed; the destructor will not run
    give_back(data_, bytes, device);
    throw;
  }
}

Storage::~Storage() {
  if (bytes_ > 0) give_back(data_, bytes_, device_);
}

size_t available_memory(Device device) {
  if (device == Device::cuda) return CAIRN_ON_CUDA("", gpu::free_memory(current_stream(device)));
  static const size_t maximum = [] {
    const size_t machine = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGE_SIZE)), group = limits().memory;
    return std::min(machine, group - group / 16);  // the group counts other memory too
  }();
  return maximum;
}

MemoryCount memory(Device device) {
  if (device != Device::cpu) return {counter(device).live, counter(device).peak};
  return {counter(device).live, counter(device).peak, cache().held(), scratch_bytes()};
}
void count_scratch(int64_t bytes) { scratch_bytes() += bytes; }
void reset_peak_memory(Device device) {
  counter(device).peak = counter(device).live.load();
  cache().trim();
}
void release_cached_memory() { cache().clear(); }

}  // namespace cairn
