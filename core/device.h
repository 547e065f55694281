#pragma once
// Devices, and the stream that orders work on a device.
#include <string_view>

namespace cairn {

enum class Device { cpu, cuda };

constexpr std::string_view name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

// The order in which a device runs its kernels. On CUDA a cudaStream_t; the CPU runs each kernel at once.
struct Stream {
  void* handle = nullptr;
};

// The backends of this build, for display: "cpu", "cpu, cuda", or "cpu, cuda-host (...)" if CUDA kernels run on the
// CPU. Code tests CAIRN_HAS_CUDA and CAIRN_CUDA_HOST.
std::string_view backends();

// The vectors that the CPU's kernels were compiled for: "AVX-512", "AVX2", "NEON" or "128 bits". The last bits of
// results depend on them.
std::string_view cpu_vectors();

// How CUDA multiplies float32 matrices: in full (the default), or with operands rounded to TF32 (10 bits of mantissa,
// sums in float32), which tensor cores do several times faster. Attention keeps the precision of float32. The CPU
// ignores it.
enum class Float32Products { full, tf32 };
Float32Products float32_products();
void set_float32_products(Float32Products products);

// The stream that operations on `device` are queued on.
Stream current_stream(Device device);

}  // namespace cairn
