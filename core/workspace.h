#pragma once
// Memory that a kernel needs only while it runs. It counts like any other.
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/storage.h"

namespace cairn {

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

}  // namespace cairn
