#pragma once
// How one declaration serves the CPU's kernels and CUDA's.
//
// A kernel is declared once, in core/kernels/<stem>.h, inside CAIRN_KERNELS(...). That declares it in the namespaces
// `cpu` (defined in core/cpu/<stem>.cpp) and `gpu` (defined in cuda/<stem>.cu). An operation calls it with
//
//   CAIRN_RUN("softmax", x, softmax_forward<T>(stream, rows, x.data<T>(), y.mutable_data<T>()));
//
// There is no registry. A definition's file ends with its element types, CAIRN_CPU_TYPES(softmax_forward). If the
// definition is missing or differs from the declaration, that line is a compiler error.
#include <type_traits>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/trace.h"

#define CAIRN_KERNELS(...)                                 \
  namespace cpu {                                          \
  __VA_ARGS__                                              \
  }                                                        \
  namespace gpu { /* not `cuda`: libcu++ owns that name */ \
  __VA_ARGS__                                              \
  }

// Instantiates the kernel of this name for the device's element types.
#define CAIRN_CPU_TYPES(kernel)                   \
  template decltype(kernel<float>) kernel<float>; \
  template decltype(kernel<double>) kernel<double>;
#define CAIRN_GPU_TYPES(kernel)                   \
  template decltype(kernel<float>) kernel<float>; \
  template decltype(kernel<bfloat16>) kernel<bfloat16>;
// The same, and for int32: kernels that CAIRN_RUN_NUMBERS calls.
#define CAIRN_CPU_NUMBERS(kernel) \
  CAIRN_CPU_TYPES(kernel)         \
  template decltype(kernel<int32_t>) kernel<int32_t>;
#define CAIRN_GPU_NUMBERS(kernel) \
  CAIRN_GPU_TYPES(kernel)         \
  template decltype(kernel<int32_t>) kernel<int32_t>;

namespace cairn {

// The element types of kernels on each device, the same as above.
template <class T>
inline constexpr bool cpu_computes = !std::is_same_v<T, bfloat16>;
template <class T>
inline constexpr bool gpu_computes = !std::is_same_v<T, double>;

// Throws the error of an operation that needs CUDA in a build without it.
[[noreturn]] void no_cuda(const char* operation);
[[noreturn]] void not_computed_in(const char* operation, DType dtype, Device device);

// Calls f with a value of the C++ type of a floating dtype. Error: not a floating dtype that kernels compute in.
template <class F>
auto visit_floating(DType dtype, const char* operation, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    default: throw Error(concat(operation, ": expected a floating tensor, got ", name(dtype)));
  }
}

// The same, and for int32.
template <class F>
auto visit_numbers(DType dtype, const char* operation, F&& f) {
  return dtype == DType::int32 ? f(int32_t{}) : visit_floating(dtype, operation, f);
}

// Calls f with a value of the C++ type of any dtype.
template <class F>
auto visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32: return f(float{});
    case DType::float64: return f(double{});
    case DType::bfloat16: return f(bfloat16{});
    case DType::int32: return f(int32_t{});
    case DType::int64: return f(int64_t{});
    case DType::uint64: return f(uint64_t{});
    case DType::uint8: return f(uint8_t{});
    case DType::boolean: break;
  }
  return f(bool{});
}

}  // namespace cairn

// Evaluates an expression of namespace gpu. In a build without CUDA: an error that names the operation ("": none).
#if CAIRN_HAS_CUDA
#define CAIRN_ON_CUDA(operation, ...) (__VA_ARGS__)
#else
#define CAIRN_ON_CUDA(operation, ...) (::cairn::no_cuda(operation), decltype(__VA_ARGS__)())
#endif

#if CAIRN_HAS_CUDA
#define CAIRN_DISPATCH_CUDA(operation, T, ...) \
  if constexpr (::cairn::gpu_computes<T>)      \
    ::cairn::gpu::__VA_ARGS__;                 \
  else                                         \
    ::cairn::not_computed_in(operation, ::cairn::dtype_of<T>, ::cairn::Device::cuda)
#else
#define CAIRN_DISPATCH_CUDA(operation, T, ...) ::cairn::no_cuda(operation)
#endif

#define CAIRN_DISPATCH_CPU(operation, T, ...) \
  if constexpr (::cairn::cpu_computes<T>)     \
    ::cairn::cpu::__VA_ARGS__;                \
  else                                        \
    ::cairn::not_computed_in(operation, ::cairn::dtype_of<T>, ::cairn::Device::cpu)

// A function that calls a kernel of element type T on the device of the tensor x; a trace shows x's shape.
#define CAIRN_KERNEL_CALL(operation, x, ...)                                    \
  [&]<class T>(T) {                                                             \
    [[maybe_unused]] const auto stream = ::cairn::current_stream((x).device()); \
    const ::cairn::trace::Span cairn_span(operation, "kernel", (x).shape());    \
    if ((x).device() == ::cairn::Device::cuda) {                                \
      CAIRN_DISPATCH_CUDA(operation, T, __VA_ARGS__);                           \
    } else {                                                                    \
      CAIRN_DISPATCH_CPU(operation, T, __VA_ARGS__);                            \
    }                                                                           \
  }

// Calls a kernel on the device of the tensor x. The call can use `T`, the floating element type of x, and `stream`.
#define CAIRN_RUN(operation, x, ...) \
  ::cairn::visit_floating((x).dtype(), operation, CAIRN_KERNEL_CALL(operation, x, __VA_ARGS__))
// The same where T may also be int32_t.
#define CAIRN_RUN_NUMBERS(operation, x, ...) \
  ::cairn::visit_numbers((x).dtype(), operation, CAIRN_KERNEL_CALL(operation, x, __VA_ARGS__))
// The same for a kernel without an element type.
#define CAIRN_CALL(operation, x, ...) CAIRN_KERNEL_CALL(operation, x, __VA_ARGS__)(int32_t{})
