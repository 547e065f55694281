#pragma once
// Temporary memory of kernels. It counts like any other, in live and peak bytes.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/storage.h"

namespace cairn {

// The temporary memory of one call of a kernel.
class Workspace {
 public:
  explicit Workspace(Device device) : device_(device) {}

  // n uninitialized elements that live as long as the workspace. Error: OutOfMemory.
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

// CPU memory that the calling thread keeps from task to task, for tasks that are too short to allocate each time:
// `thread_local Scratch<float> scores;`. It counts as live memory from its first use until the thread ends, and also as
// MemoryCount::scratch.
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
