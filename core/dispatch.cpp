#include "core/dispatch.h"

#include <atomic>

#include "core/kernels/memory.h"

namespace cairn {

void no_cuda(const char* operation) {
  const std::string where = *operation ? std::string(operation) + ": " : "";
  throw DeviceError(where + "built without CUDA (configure with -DCAIRN_CUDA=ON)");
}

void not_computed_in(const char* operation, DType dtype, Device device) {
  throw Error(concat(operation, ": ", name(dtype), " is not computed on ", name(device), " (",
                     device == Device::cpu ? "float32 and float64 are" : "float32 and bfloat16 are", ")"));
}

std::string_view backends() {
#if !CAIRN_HAS_CUDA
  return "cpu";
#elif CAIRN_CUDA_HOST
  return "cpu, cuda-host (CUDA kernels executed on the CPU)";
#else
  return "cpu, cuda";
#endif
}

static std::atomic<Float32Products> products{Float32Products::full};
Float32Products float32_products() { return products; }
void set_float32_products(Float32Products value) { products = value; }

Stream current_stream([[maybe_unused]] Device device) {
#if CAIRN_HAS_CUDA
  if (device == Device::cuda) return gpu::stream();
#endif
  return {};
}

}  // namespace cairn
