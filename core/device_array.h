#pragma once
// Values of a C++ type in the memory of a device, for kernels whose arguments are not tensors.
#include <algorithm>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace cairn {

// T is trivially copyable.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;  // no values
  // A copy of `values` on the device.
  DeviceArray(const std::vector<T>& values, Device device) {
    Tensor bytes({int64_t(values.size() * sizeof(T))}, DType::uint8);
    std::copy(values.begin(), values.end(), static_cast<T*>(bytes.mutable_raw()));
    bytes_ = bytes.to(device);
  }

  // On the device.
  T* data() { return static_cast<T*>(bytes_.mutable_raw()); }
  operator std::span<const T>() const { return {static_cast<const T*>(bytes_.raw()), bytes_.bytes() / sizeof(T)}; }

  // All values, on the host. Waits for the device.
  std::vector<T> to_vector() const {
    const Tensor host = bytes_.to(Device::cpu);
    const T* const first = static_cast<const T*>(host.raw());
    return {first, first + host.bytes() / sizeof(T)};
  }

 private:
  Tensor bytes_;
};

}  // namespace cairn
