#pragma once
// Tensor cores and asynchronous copies: one function for each PTX instruction, for GPUs of compute capability 8.0 and
// newer. Each has a second body for the emulator, which follows NVIDIA's documentation (PTX ISA, "Matrix fragments for
// mma.m16n8k16", "... for mma.m16n8k8", "... for mma.m16n8k32", "ldmatrix", "cp.async").
//
// A fragment is the way the lanes of a warp hold a matrix. Lane 4 g + t (g = 0..7, t = 0..3) holds:
//   sums  C [16, 8]:            c[0], c[1]: row g, columns 2 t, 2 t + 1;  c[2], c[3]: the same of row g + 8
//   bf16  A [16, 16], two a register, the first in its lower half:
//                               a[0]: row g, columns 2 t, 2 t + 1;  a[1]: row g + 8;  a[2], a[3]: 8 columns further
//         B [16, 8]:            b[0]: rows 2 t, 2 t + 1 of column g;  b[1]: 8 rows further
//   TF32  A [16, 8], one a register:
//                               a[0]: row g, column t;  a[1]: row g + 8;  a[2], a[3]: 4 columns further
//         B [8, 8]:             b[0]: row t of column g;  b[1]: 4 rows further
//   s8    A [16, 32], four a register, the first in its lowest byte:
//                               a[0]: row g, columns 4 t .. 4 t + 3;  a[1]: row g + 8;  a[2], a[3]: 16 columns further
//         B [32, 8]:            b[0]: rows 4 t .. 4 t + 3 of column g;  b[1]: 16 rows further
#include <cstring>

#include "core/dtype.h"
#include "cuda/common.cuh"

#ifndef __CUDACC__
#include "cuda/emulator/ptx.h"
#endif

namespace cairn::gpu {

// Whether the device has these instructions, and the build has code for it that uses them.
inline bool has_mma() { return runs_code_for(800); }

// CAIRN_PTX is the instruction of one of the functions below. Their last parameter is the line of the call, for the
// emulator's messages; callers leave it out.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define CAIRN_PTX(...) __trap()  // has_mma() is false
#define CAIRN_PTX_PURE(...) __trap()
#else
#define CAIRN_PTX(...) asm volatile(__VA_ARGS__)
#define CAIRN_PTX_PURE(...) asm(__VA_ARGS__)  // of registers alone: the compiler may move it, or use a result twice
#endif

// ---- numbers

// x rounded to TF32, which has float's exponent and 10 bits of mantissa: to nearest, ties away from 0. Only for
// mma_tf32: PTX leaves the layout of TF32 to the implementation, and the 13 lowest bits are undefined. (The emulator
// sets some of them, so that infinity becomes a NaN in code that reads the result as a float.)
inline __device__ float round_tf32(float x) {
#ifdef __CUDACC__
  uint32_t y = 0;
  CAIRN_PTX_PURE("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
#else
  return x == x ? __uint_as_float(((__float_as_uint(x) + 0x1000) & ~0x1fffu) | 0x1234u) : __uint_as_float(0x7fffffff);
#endif
}

// Two numbers rounded to bfloat16, to nearest even; `low` is the lower half of the word.
inline __device__ uint32_t pack_bfloat16(float low, float high) {
#ifdef __CUDACC__
  uint32_t y = 0;
  CAIRN_PTX("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return uint32_t(bfloat16(high).bits) << 16 | bfloat16(low).bits;
#endif
}

// ---- matrices

#ifndef __CUDACC__
// The numbers of a lane's fragments. A word of a fragment holds `size` neighboring numbers of a row of A, or of a
// column of B: row 8 h + g of A (h < 2, g < 8) has its words j = 0 .. 7 in lanes 4 g + j % 4, and so has column g of B.
template <class C, int products, int size>
struct MmaFragments {
  C a[products][4][size], b[products][2][size];

  // c += A B, of the lanes 4 g to 4 g + 3 of c's rows and of its two columns. The sanitizers pass over it, because the
  // kernels' tests would spend most of their time here.
  __attribute__((no_sanitize("address", "undefined"))) static void add_products(
      C (&c)[4], const MmaFragments* const (&rows)[4], const MmaFragments* const (&columns)[2][4]) {
    for (int product = 0; product < products; ++product)
      for (int j = 0; j < 8; ++j)
        for (int h = 0; h < 2; ++h)
          for (int i = 0; i < 2; ++i) {
            const C *x = rows[j % 4]->a[product][h + j / 4 * 2], *y = columns[i][j % 4]->b[product][j / 4];
            for (int n = 0; n < size; ++n) c[2 * h + i] += x[n] * y[n];
          }
  }
};

// c += A B of a warp's fragments, for several products one after another. unpack(word, numbers) writes the numbers of a
// word.
template <int size, int products, class C, class Unpack>
void emulate_mma(C (&c)[4], const uint32_t (&a)[products][4], const uint32_t (&b)[products][2], Unpack unpack,
                 SourceLine where) {
  using Fragments = MmaFragments<C, products, size>;
  Fragments mine;
  for (int product = 0; product < products; ++product) {
    for (int i = 0; i < 4; ++i) unpack(a[product][i], mine.a[product][i]);
    for (int i = 0; i < 2; ++i) unpack(b[product][i], mine.b[product][i]);
  }
  const auto product_of_lanes = [&c](const auto& all, int lane) {
    const Fragments *rows[4], *columns[2][4];
    for (int t = 0; t < 4; ++t) {
      rows[t] = &all(lane / 4 * 4 + t);
      for (int i = 0; i < 2; ++i) columns[i][t] = &all(4 * (2 * (lane % 4) + i) + t);
    }
    Fragments::add_products(c, rows, columns);
  };
  host_cuda::warp_exchange("mma.sync", full_warp, mine, product_of_lanes, where);
}
#endif

// c += A B, bf16.
inline __device__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                SourceLine where = SourceLine::current()) {
#ifdef __CUDACC__
  CAIRN_PTX(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  const auto unpack = [](uint32_t word, float* numbers) {
    numbers[0] = __uint_as_float(word << 16);  // the lower half
    numbers[1] = __uint_as_float(word & 0xffff0000u);
  };
  emulate_mma<2, 1>(c, {{a[0], a[1], a[2], a[3]}}, {{b0, b1}}, unpack, where);
#endif
}

// c += A B in TF32, for several products one after another. The instruction ignores the 13 lowest bits of a and b, so
// the caller rounds first (round_tf32).
template <int products>
__device__ void mma_tf32(float (&c)[4], const uint32_t (&a)[products][4], const uint32_t (&b)[products][2],
                         SourceLine where = SourceLine::current()) {
#ifdef __CUDACC__
#pragma unroll
  for (int i = 0; i < products; ++i)
    CAIRN_PTX(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[i][0]), "r"(b[i][1]));
#else
  const auto unpack = [](uint32_t word, float* number) { *number = __uint_as_float(word & ~0x1fffu); };
  emulate_mma<1>(c, a, b, unpack, where);
#endif
}

// c += A B of signed bytes. The sums are exact.
inline __device__ void mma_s8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              SourceLine where = SourceLine::current()) {
#ifdef __CUDACC__
  CAIRN_PTX(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  const auto unpack = [](uint32_t word, int* numbers) {
    for (int i = 0; i < 4; ++i) numbers[i] = int8_t(word >> 8 * i);
  };
  emulate_mma<4, 1>(c, {{a[0], a[1], a[2], a[3]}}, {{b0, b1}}, unpack, where);
#endif
}

// Loads four matrices of 8 rows of 16 bytes from shared memory. Lane l passes the address of row l % 8 of matrix l / 8,
// aligned to 16 bytes. Lane 4 g + t gets bytes 4 t .. 4 t + 3 of row g of matrix i as r[i]. If transposed, it gets
// two-byte elements g of rows 2 t and 2 t + 1.
template <bool transposed>
__device__ void load_matrices(uint32_t (&r)[4], const void* row, SourceLine where = SourceLine::current()) {
#ifdef __CUDACC__
  const auto address = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (transposed)
    CAIRN_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
              : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
              : "r"(address)
              : "memory");
  else
    CAIRN_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
              : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
              : "r"(address)
              : "memory");
#else
  if (reinterpret_cast<uintptr_t>(row) % 16) host_cuda::refuse("ldmatrix of a row that is not aligned", where);
  const auto load = [&](const auto& all, int lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 8; ++i) {  // both halves of four registers
      const int from_row = transposed ? 2 * t + i % 2 : g, element = transposed ? g : 2 * t + i % 2;
      std::memcpy(reinterpret_cast<char*>(r) + 2 * i, static_cast<const char*>(all(i / 2 * 8 + from_row)) + 2 * element,
                  2);
    }
  };
  host_cuda::warp_exchange("ldmatrix", full_warp, row, load, where);
#endif
}

// ---- asynchronous copies from global to shared memory

// Copies `bytes` bytes (4, 8 or 16; both addresses are aligned to it), or zeros unless `there`.
template <int bytes>
inline __device__ void copy_async(void* to, const void* from, bool there, SourceLine where = SourceLine::current()) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
#ifdef __CUDACC__
  if constexpr (bytes == 16)  // past the L1 cache
    CAIRN_PTX("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from),
              "r"(there ? 16 : 0)
              : "memory");
  else
    CAIRN_PTX("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from),
              "n"(bytes), "r"(there ? bytes : 0)
              : "memory");
#else
  host_cuda::async_copy(to, from, bytes, there ? bytes : 0, where);
#endif
}
// Ends a group of copies of this thread.
inline __device__ void commit_copies() {
#ifdef __CUDACC__
  CAIRN_PTX("cp.async.commit_group;" ::: "memory");
#else
  host_cuda::commit_async_copies();
#endif
}
// Waits until all but the last `pending` groups of this thread are complete. (Copies of other threads need a barrier.)
template <int pending>
inline __device__ void wait_for_copies() {
#ifdef __CUDACC__
  CAIRN_PTX("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#else
  host_cuda::wait_for_async_copies(pending);
#endif
}

#undef CAIRN_PTX
#undef CAIRN_PTX_PURE

}  // namespace cairn::gpu
