#pragma once
// The part of CUDA's runtime interface that cuda/ uses, over the memory of the host. Names, values and meanings are
// CUDA's. Whatever a program asks for is done when the call returns.
#include <cstddef>

// ---- CUDA's small structs
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

// ---- errors
enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorLaunchOutOfResources = 701,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
// The last error of this host thread, which is then forgotten.
cudaError_t cudaGetLastError();

// ---- streams, which are mere handles
struct CUstream_st;
using cudaStream_t = CUstream_st*;
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();

// ---- one device
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
// Compute capability 9.0, or what host_cuda::claim_architecture says.
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);

// ---- memory. Fresh memory is filled with 0xFF: floating NaN, so that reading what nobody wrote shows in the result.
cudaError_t cudaMalloc(void** block, size_t bytes);
cudaError_t cudaFree(void* block);
cudaError_t cudaMallocAsync(void** block, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* block, cudaStream_t stream);
cudaError_t cudaMallocHost(void** block, size_t bytes);  // of the host's
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
template <class T>
cudaError_t cudaMalloc(T** block, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(block), bytes);
}

enum cudaMemcpyKind : int {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
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
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep);

// A kernel may use 48 KB of dynamic shared memory, and up to 227 KB after asking for it.
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);

// By threads and dynamic shared memory alone, on a multiprocessor with 2048 threads and 228 KB.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          size_t shared_bytes);
template <class... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void (*kernel)(Parameters...), int threads,
                                                          size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads,
                                                       shared_bytes);
}
