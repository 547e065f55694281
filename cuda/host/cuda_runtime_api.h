#pragma once
// The part of CUDA's runtime interface that cuda/ uses, over the memory of the host. Everything is done at once, so a
// stream is only a name. Names, values and meanings are CUDA's.
#include <cstddef>
#include <cstdint>

enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDevice = 101,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
// The last error of this host thread; the first of the two forgets it.
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

struct CUstream_st;
using cudaStream_t = CUstream_st*;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();

// One device.
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);

// Fresh memory is filled with 0xFF: floating NaN, so that reading what nobody wrote shows in the result.
cudaError_t cudaMalloc(void** block, size_t bytes);
cudaError_t cudaFree(void* block);
cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream);
template <class T>
cudaError_t cudaMalloc(T** block, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(block), bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T** block, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(block), bytes, stream);
}

enum cudaMemcpyKind : int {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
// The device's side of a copy must lie in memory of the device, the host's side outside of it (cudaErrorInvalidValue).
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* block, int byte, size_t bytes);
cudaError_t cudaMemsetAsync(void* block, int byte, size_t bytes, cudaStream_t stream);

// The pool that cudaMallocAsync allocates from: there is nothing to tune here.
struct CUmemPoolHandle_st;
using cudaMemPool_t = CUmemPoolHandle_st*;
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold = 4 };
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);

// A kernel may use 48 KB of dynamic shared memory, and up to 227 KB after asking for it.
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
