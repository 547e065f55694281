#pragma once
// Marks what runs on the host and in a CUDA kernel alike. Nothing, where nvcc does not compile.
#ifdef __CUDACC__
#define CAIRN_HD __host__ __device__
#else
#define CAIRN_HD
#endif
