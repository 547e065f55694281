#pragma once
// Memory that kernels compute in. It counts like any other, in live and peak bytes.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/storage.h"

namespace cairn {

// Memory that a kernel needs only while it runs.
class Workspace {
 public:
  explicit Workspace(Device device) : device_(device) {}

  // n uninitialized elements, which live as long as the workspace. Error: OutOfMemory.
  template <class T>
  T* take(int64_t n) {
    check<OutOfMemory>(n >= 0 && n < int64_t{1} << 56, "out of memory: ", n, " elements of workspace requested");
    blocks_.push_back(std::make_unique<Storage>(size_t(n) * sizeof(T), device_));
    return static_cast<T*>(blocks_.back()->data());
  }

 private:
  Device device_;
  std::vector<std::unique_ptr<Storage>> blocks_;
};

// Memory of the calling thread, on the CPU, for tasks that are too short to take some each time:
// `thread_local Scratch<float> scores;`. The thread keeps it for its next task, so it counts from its first use until
// the thread ends, and also by itself, as MemoryCount::scratch.
template <class T>
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least n uninitialized elements, until the next call. Error: OutOfMemory.
  T* take(int64_t n) {
    if (n > size_) {
      release();
      block_ = std::make_unique<Storage>(size_t(n) * sizeof(T), Device::cpu);
      size_ = n;
      count_scratch(int64_t(block_->bytes()));
    }
    return block_ ? static_cast<T*>(block_->data()) : nullptr;
  }

 private:
  void release() {
    if (block_) count_scratch(-int64_t(block_->bytes()));
    block_.reset();
    size_ = 0;
  }

  std::unique_ptr<Storage> block_;
  int64_t size_ = 0;
};

}  // namespace cairn
