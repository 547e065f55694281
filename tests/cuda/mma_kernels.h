#pragma once
// Kernels of mma.cpp, behind functions that the compiler of C++ understands. All matrices are row after row, on the
// device; each function launches one warp.
#include <cstdint>

namespace cairn::test {

bool device_has_mma();

// c [16, 8] += a b, rounded to bf16 (a [16, 16], b [16, 8]) or to TF32 (a [16, 8], b [8, 8]).
void multiply_bf16(const float* a, const float* b, float* c);
void multiply_tf32(const float* a, const float* b, float* c);
// The same of TF32 where a and b are not rounded beforehand.
void multiply_unrounded(const float* a, const float* b, float* c);
// c [16, 8] += a [16, 32] b [32, 8].
void multiply_s8(const int8_t* a, const int8_t* b, int* c);

// What each of 32 lanes gets, [32, 4], of four matrices [4, 8, 16] of bytes.
void load_bytes(bool transposed, const uint8_t* matrices, uint32_t* registers);

// to[i] = TF32(from[i]) and pairs[i] = from[i], from[31 - i] as bfloat16, i in [0, 32).
void round_numbers(const float* from, float* to, uint32_t* pairs);

// Copies 32 x `bytes` bytes by way of shared memory; those of lanes from `end` on become 0.
void copy_through_shared(int bytes, int end, const uint8_t* from, uint8_t* to);
// Copies three groups of 32 numbers; writes what is in shared memory after waiting for all but the last 2, 1 and 0:
// to [3, 3, 32]. It is -1 before.
void copy_in_groups(const int* from, int* to);

}  // namespace cairn::test
