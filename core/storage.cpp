#include "core/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
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

#if CAIRN_SANITIZED
constexpr bool may_keep = false;  // so that sanitizers see a use after free
#else
constexpr bool may_keep = true;
#endif

std::atomic<bool>& keeps() {
  static std::atomic<bool> value = [] {
    const char* const set = std::getenv("CAIRN_KEEP_MEMORY");
    return may_keep && !(set && *set == '0');
  }();
  return value;
}

// Freed blocks of a device, at most the peak of live bytes or 64 MB. The oldest ones go first.
class Cache {
 public:
  explicit Cache(Device device) : device_(device) {}

  void* take(size_t bytes) {
    const std::lock_guard guard(mutex_);
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), [=](const Block& b) { return b.bytes == bytes; });
    if (found == blocks_.rend()) return nullptr;
    void* const data = found->data;
    blocks_.erase(std::next(found).base());
    held_ -= bytes;
    return data;
  }
  void keep(void* data, size_t bytes) noexcept try {
    const std::lock_guard guard(mutex_);
    blocks_.push_back({data, bytes});
    held_ += bytes;
    trim_to(limit());
  } catch (const std::bad_alloc&) {
    give_back(data);  // no memory is left for the list
  }
  void give_back(void* data) {
    if (device_ == Device::cpu)
      std::free(data);
    else
      CAIRN_ON_CUDA("", gpu::deallocate(current_stream(device_), data));
  }
  void trim() {
    const std::lock_guard guard(mutex_);
    trim_to(limit());
  }
  void clear() {
    const std::lock_guard guard(mutex_);
    trim_to(0);
  }
  size_t held() {
    const std::lock_guard guard(mutex_);
    return held_;
  }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };

  size_t limit() const { return size_t(std::max<int64_t>(64 << 20, counter(device_).peak)); }
  void trim_to(size_t maximum) {
    auto end = blocks_.begin();
    for (; held_ > maximum; ++end) {
      give_back(end->data);
      held_ -= end->bytes;
    }
    blocks_.erase(blocks_.begin(), end);
  }

  const Device device_;
  std::mutex mutex_;
  std::vector<Block> blocks_;  // in the order in which they were freed
  size_t held_ = 0;            // bytes
};
Cache& cache(Device device) {
  // Never destroyed: static tensors may outlive any order of destruction.
  static Cache* const instances[] = {new Cache(Device::cpu), new Cache(Device::cuda)};
  return *instances[int(device)];
}

// The smallest block that is kept. malloc keeps small blocks itself.
size_t smallest_kept(Device device) { return !keeps() ? SIZE_MAX : device == Device::cpu ? 4096 : 1; }

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

void* allocate(size_t bytes, Device device) {
  if (void* block = bytes >= smallest_kept(device) ? cache(device).take(bytes) : nullptr) return block;
  const auto allocate_new = [=] {
    return device == Device::cpu ? new_block(bytes) : CAIRN_ON_CUDA("", gpu::allocate(current_stream(device), bytes));
  };
  if (device == Device::cpu) {
    // The system grants more memory than there is, and kills the process when it writes to it.
    const size_t live = size_t(counter(device).live), maximum = available_memory(device);
    if (live + bytes > maximum) return nullptr;
    if (live + cache(device).held() + bytes > maximum) release_cached_memory(device);
  }
  void* const block = allocate_new();
  if (block || cache(device).held() == 0) return block;
  release_cached_memory(device);
  return allocate_new();
}

}  // namespace

Storage::Storage(size_t bytes, Device device) : data_(nullptr), bytes_(bytes), device_(device) {
  // Kernels may offset the pointer of an empty tensor, which null does not allow.
  alignas(64) static char nothing[64];
  data_ = nothing;
  if (bytes == 0) return;
  check<OutOfMemory>(bytes < size_t{1} << 62, "out of memory on ", name(device), ": ", bytes, " bytes requested");
  data_ = allocate(rounded(bytes), device);
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
  if (fill && device == Device::cpu) std::memset(data_, 0xff, bytes);
  if (fill && device == Device::cuda) CAIRN_ON_CUDA("", gpu::set_bytes(current_stream(device), data_, 0xff, bytes));
}

Storage::~Storage() {
  if (bytes_ == 0) return;
  counter(device_).add(-int64_t(bytes_));
  if (rounded(bytes_) >= smallest_kept(device_))
    cache(device_).keep(data_, rounded(bytes_));
  else
    cache(device_).give_back(data_);
}

size_t available_memory(Device device) {
  if (device == Device::cuda) {
    release_cached_memory(device);
    return CAIRN_ON_CUDA("", gpu::free_memory(current_stream(device)));
  }
  static const size_t maximum = [] {
    const size_t machine = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGE_SIZE)), group = limits().memory;
    return std::min(machine, group - group / 16);  // the group counts other memory too
  }();
  return maximum;
}

MemoryCount memory(Device device) {
  return {counter(device).live, counter(device).peak, int64_t(cache(device).held()),
          device == Device::cpu ? scratch_bytes().load() : 0};
}
void count_scratch(int64_t bytes) { scratch_bytes() += bytes; }
void reset_peak_memory(Device device) {
  counter(device).peak = counter(device).live.load();
  cache(device).trim();
}
void release_cached_memory(Device device) { cache(device).clear(); }
bool keep_freed_memory(bool keep) { return keeps().exchange(keep && may_keep); }

}  // namespace cairn
