#pragma once
// Helpers of the tests of CUDA kernels.
#include <vector>

#include "core/kernels/memory.h"
#include "core/random.h"
#include "core/storage.h"
#include "nn/purpose.h"
#include "tests/catch.h"
#if CAIRN_CUDA_HOST
#include "cuda/emulator/host_cuda.h"
#endif

namespace cairn::test {

// A vector in the memory of the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : n_(values.size()), storage_(n_ * sizeof(T), Device::cuda) {
    if (n_) gpu::copy({}, storage_.data(), Device::cuda, values.data(), Device::cpu, n_ * sizeof(T));
  }
  explicit OnDevice(size_t n) : n_(n), storage_(n * sizeof(T), Device::cuda) {}

  T* data() { return static_cast<T*>(storage_.data()); }
  std::vector<T> values() const {
    std::vector<T> result(n_);
    if (n_) gpu::copy({}, result.data(), Device::cpu, storage_.data(), Device::cuda, n_ * sizeof(T));
    return result;
  }

 private:
  size_t n_;
  Storage storage_;
};

#if CAIRN_CUDA_HOST
// Calls f with these options of the emulator.
template <class F>
void with_options(const host_cuda::Options& options, F&& f) {
  const host_cuda::Options before = host_cuda::options();
  host_cuda::configure(options);
  f();
  host_cuda::configure(before);
}

// Calls f in every order that the emulator knows, with one block at a time and with two; with sanitizers only once.
template <class F>
void in_every_order(F&& f) {
  if (sanitized) return with_options({2, host_cuda::Order::shuffled, 7}, f);
  for (const auto order : {host_cuda::Order::forward, host_cuda::Order::shuffled})
    for (const int threads : {1, 2}) with_options({threads, order, 7}, f);
}
#else
// A GPU has only its own order.
template <class F>
void in_every_order(F&& f) {
  f();
}
#endif

}  // namespace cairn::test
