#pragma once
// Where numbers live, and the opaque stream that orders work on a device.
#include <string_view>

namespace cairn {

enum class Device { cpu, cuda };

constexpr std::string_view name(Device device) { return device == Device::cpu ? "cpu" : "cuda"; }

// The order in which a device runs its kernels. On CUDA a cudaStream_t; the CPU runs each kernel at once.
struct Stream {
  void* handle = nullptr;
};

// How this library was built, for people: "cpu", "cpu, cuda", or "cpu, cuda-host (...)" where CUDA kernels are executed
// on the CPU. Code asks CAIRN_HAS_CUDA and CAIRN_CUDA_HOST.
std::string_view backends();

// The vectors that the CPU's kernels were compiled for: "AVX-512", "AVX2" or "128 bits". They decide how sums are cut,
// and so the last bits of results.
std::string_view cpu_vectors();

// How CUDA multiplies float32 matrices: in full, or with operands rounded to TF32 (10 bits of mantissa, sums in
// float32), which tensor cores do several times faster. Full unless set. It is for neither attention, which keeps
// float32's precision, nor the CPU.
enum class Float32Products { full, tf32 };
Float32Products float32_products();
void set_float32_products(Float32Products products);

// The stream that operations on `device` are queued on.
Stream current_stream(Device device);

}  // namespace cairn
