// Matrix products, by cuBLAS. Operands are float32 or bfloat16, sums float32. Products are float32, unless float32
// operands are to be rounded to TF32 (core/device.h).
//
// cuBLAS expects column-major matrices. To it a row-major matrix is the transpose, so we ask for C^T = op(B)^T op(A)^T:
// the operands change places and nothing is copied.
// Cost: 2 m n k operations for each member of the batch. If there is a bias, or k = 0, a kernel of our own first writes
// beta C + bias, to which cuBLAS adds the product: a warp takes a row, a lane every 32nd element.
//
// The emulator has no cuBLAS: there core/cpu/gemm.cpp computes in float32, and bfloat16 results are rounded once.
#include "core/kernels/gemm.h"

#include "core/kernels/elementwise.h"
#include "core/workspace.h"
#include "cuda/common.cuh"

#ifdef __CUDACC__
#include <cublas_v2.h>
#else
#include <vector>
#endif

namespace cairn::gpu {
namespace {

#ifdef __CUDACC__

void check_cublas(cublasStatus_t status, SourceLine where = SourceLine::current()) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(concat("cuBLAS: ", cublasGetStatusString(status), " (", cublasGetStatusName(status), ") at ",
                             to_string(where)));
}

// The cuBLAS handle of one host thread, with a workspace of its own, so that partial sums of cuBLAS are added in one
// order.
class Blas {
 public:
  explicit Blas(Stream stream) : Blas() {
    check_cublas(cublasCreate(&handle_));
    check_cublas(cublasSetStream(handle_, native(stream)));
    check_cublas(cublasSetMathMode(
        handle_, cublasMath_t(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)));
    check_cuda(cudaMalloc(&workspace_, workspace_bytes));
    check_cublas(cublasSetWorkspace(handle_, workspace_, workspace_bytes));  // setting a stream would reset it
  }
  ~Blas() {
    if (handle_) cublasDestroy(handle_);
    if (cudaFree(workspace_) != cudaSuccess) cudaGetLastError();
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // There is one stream.
  static cublasHandle_t of_this_thread(Stream stream) {
    thread_local const Blas blas(stream);
    return blas.handle_;
  }

 private:
  Blas() = default;
  static constexpr size_t workspace_bytes = 32 << 20;  // as NVIDIA recommends for Hopper, the most of any GPU
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

template <class T>
void multiply(Stream stream, const Gemm& g, const T* a, const T* b, T* c) {
  constexpr bool full = std::is_same_v<T, float>;
  const cudaDataType_t type = full ? CUDA_R_32F : CUDA_R_16BF;
  const bool tf32 = full && float32_products() == Float32Products::tf32;
  const float alpha = float(g.alpha), beta = float(g.beta);
  const auto operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  check_cublas(cublasGemmStridedBatchedEx_64(
      Blas::of_this_thread(stream), operation(g.transpose_b), operation(g.transpose_a), g.n, g.m, g.k, &alpha, b, type,
      g.ldb, g.stride_b, a, type, g.lda, g.stride_a, &beta, c, type, g.ldc, g.stride_c, g.batch,
      tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

#else

void multiply(Stream stream, const Gemm& g, const float* a, const float* b, float* c) {
  cpu::gemm<float>(stream, g, a, b, nullptr, c);
}

// A batch of matrices, from the first element to the last, as float.
std::vector<float> widened(const bfloat16* x, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
  const int64_t n = (batch - 1) * stride + (rows - 1) * ld + cols;
  std::vector<float> result(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) result[size_t(i)] = float(x[i]);
  return result;
}

void multiply(Stream stream, const Gemm& g, const bfloat16* a, const bfloat16* b, bfloat16* c) {
  const auto wide_a = widened(a, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k, g.lda, g.batch, g.stride_a);
  const auto wide_b = widened(b, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n, g.ldb, g.batch, g.stride_b);
  auto wide_c = widened(c, g.m, g.n, g.ldc, g.batch, g.stride_c);
  cpu::gemm<float>(stream, g, wide_a.data(), wide_b.data(), nullptr, wide_c.data());
  for (size_t i = 0; i < wide_c.size(); ++i) c[i] = bfloat16(wide_c[i]);  // elements between rows keep their value
}

#endif

// C = beta C + bias.
template <class T>
__global__ void __launch_bounds__(row_threads<32>) begin(Gemm g, const T* bias, T* c) {
  each_row<32>(g.batch * g.m, [&](int64_t row) {
    T* const to = c + row / g.m * g.stride_c + row % g.m * g.ldc;
    for (int64_t j = threadIdx.x % 32; j < g.n; j += 32)
      to[j] = T((g.beta == 0 ? 0.0f : float(g.beta) * float(to[j])) + (bias ? float(bias[j]) : 0.0f));
  });
}

}  // namespace

template <class T>
void gemm(Stream stream, const Gemm& g, const T* a, const T* b, const T* bias, T* c) {
  if (g.batch == 0 || g.m == 0 || g.n == 0) return;
  Gemm product = g;
  product.activation = {};
  if (bias || g.k == 0) {
    launch(begin<T>, over_rows<32>(stream, g.batch * g.m), g, bias, c);
    product.beta = 1;
  }
  if (g.k > 0) multiply(stream, product, a, b, c);
  if (g.activation) unary(stream, *g.activation, g.m * g.n, c, c);
}

CAIRN_GPU_TYPES(gemm)

}  // namespace cairn::gpu
