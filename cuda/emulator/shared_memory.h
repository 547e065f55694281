#pragma once
// The shared memory of a block. At its start it is uninitialized: filled with 0xFF, which is NaN.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace cairn::host_cuda {

// The static __shared__ variables of the program, as the calling host thread sees them.
std::vector<std::span<unsigned char>> static_shared_variables();

// Size of the guard zones on both sides of dynamic shared memory. (The address sanitizer has its own.)
#if CAIRN_HOST_CUDA_ASAN
inline constexpr size_t guard_bytes = 0;
#else
inline constexpr size_t guard_bytes = 256;
#endif

// The dynamic shared memory of a block.
class DynamicShared {
 public:
  void start_block(size_t bytes);
  void* data() const { return memory_.get() + guard_bytes; }
  // The first byte in a guard zone that was overwritten, counted from the start of the block's memory.
  std::optional<ptrdiff_t> damage() const;

 private:
  std::unique_ptr<unsigned char[]> memory_;
  size_t bytes_ = 0;
};

}  // namespace cairn::host_cuda
