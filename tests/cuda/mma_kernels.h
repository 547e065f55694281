#pragma once
// Kernels for mma.cpp, behind functions that the C++ compiler can call. All matrices are row-major, on the device. Each
// function launches one warp.
#include <cstdint>

namespace cairn::test {

bool device_has_mma();

// c [16, 8] += a b, rounded to bf16 (a [16, 16], b [16, 8]) or to TF32 (a [16, 8], b [8, 8]).
void multiply_bf16(const float* a, const float* b, float* c);
void multiply_tf32(const float* a, const float* b, float* c);
// The same in TF32, without rounding a and b first.
void multiply_unrounded(const float* a, const float* b, float* c);
// c [16, 8] += a [16, 32] b [32, 8].
void multiply_s8(const int8_t* a, const int8_t* b, int* c);

// The words that the lanes get, [32, 4], of four matrices [4, 8, 16] of bytes.
void load_bytes(bool transposed, const uint8_t* matrices, uint32_t* registers);

// to[i] = TF32(from[i]) and pairs[i] = from[i], from[31 - i] as bfloat16, i in [0, 32).
void round_numbers(const float* from, float* to, uint32_t* pairs);

// Copies 32 x `bytes` bytes through shared memory; the bytes of lanes from `end` on become 0.
void copy_through_shared(int bytes, int end, const uint8_t* from, uint8_t* to);
// Copies three groups of 32 numbers to shared memory, which is -1 before. Writes its contents after waiting for all but
// the last 2, 1 and 0 groups, to [3, 3, 32].
void copy_in_groups(const int* from, int* to);

}  // namespace cairn::test
