#pragma once
// Element types. float32 is computed everywhere, float64 on the CPU (for gradient checks), bfloat16 on CUDA.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/host_device.h"

namespace cairn {

// The upper half of a float32: 8 bits of exponent, 7 of mantissa. Conversion rounds to nearest, ties to even.
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  CAIRN_HD explicit bfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));  // one instruction in place of six
#else
    const auto word = std::bit_cast<uint32_t>(value);
    bits = (word & 0x7fffffff) > 0x7f800000 ? uint16_t(word >> 16 | 0x40)
                                            : uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
#endif
  }
  CAIRN_HD explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

enum class DType : uint8_t { float32, float64, bfloat16, int32, int64, uint64, uint8, boolean };

constexpr std::string_view name(DType dtype) {
  constexpr std::string_view names[] = {"float32", "float64", "bfloat16", "int32", "int64", "uint64", "uint8", "bool"};
  return names[int(dtype)];
}

constexpr size_t size_of(DType dtype) {
  constexpr size_t sizes[] = {4, 8, 2, 4, 8, 8, 1, 1};
  return sizes[int(dtype)];
}

constexpr bool is_floating(DType dtype) { return dtype <= DType::bfloat16; }

template <class T>
inline constexpr DType dtype_of = [] {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  if constexpr (std::is_same_v<T, bfloat16>) return DType::bfloat16;
  if constexpr (std::is_same_v<T, int32_t>) return DType::int32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::int64;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::uint64;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::uint8;
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
}();

// The type of sums of T: float for bfloat16, else T. (Not std::conditional with a condition on T: there g++ and clang
// make different symbols of a function, and what both compiled does not link.)
template <class T>
struct Sums {
  using Type = T;
};
template <>
struct Sums<bfloat16> {
  using Type = float;
};
template <class T>
using Accum = typename Sums<T>::Type;

}  // namespace cairn
