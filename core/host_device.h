#pragma once
// CAIRN_HD marks functions for the host and for CUDA kernels. It is empty unless nvcc compiles.
#ifdef __CUDACC__
#define CAIRN_HD __host__ __device__
#else
#define CAIRN_HD
#endif
