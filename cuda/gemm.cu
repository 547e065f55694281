// Matrix products, by cuBLAS; with a bias by cuBLASLt, which adds it before it rounds, or else a kernel of our own adds
// it. Operands are float32 or bfloat16, sums float32. Products are float32, unless float32 operands are to be rounded
// to TF32 (core/device.h).
//
// cuBLAS expects column-major matrices. To it a row-major matrix is the transpose, so we ask for C^T = op(B)^T op(A)^T:
// the operands change places and nothing is copied.
// Cost: 2 m n k operations for each member of the batch.
//
// The emulator has no cuBLAS: there core/cpu/gemm.cpp computes in float32, and bfloat16 results are rounded once.
#include "core/kernels/gemm.h"

#include "core/kernels/elementwise.h"
#include "core/workspace.h"
#include "cuda/common.cuh"

#ifdef __CUDACC__
#include <cublasLt.h>
#include <cublas_v2.h>

#include <map>
#include <tuple>
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
  static const Blas& of_this_thread(Stream stream) {
    thread_local const Blas blas(stream);
    return blas;
  }

  cublasHandle_t handle() const { return handle_; }
  cublasLtHandle_t lt_handle() const { return reinterpret_cast<cublasLtHandle_t>(handle_); }  // as its manual allows
  void* workspace() const { return workspace_; }
  static constexpr size_t workspace_bytes = 32 << 20;  // as NVIDIA recommends for Hopper, the most of any GPU

 private:
  Blas() = default;
  cublasHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

template <class T>
constexpr cudaDataType_t type_of = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF;
template <class T>
cublasComputeType_t arithmetic() {
  const bool tf32 = std::is_same_v<T, float> && float32_products() == Float32Products::tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}
cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

// C = op(A) op(B)
template <class T, class To>
void multiply(Stream stream, const Gemm& g, const T* a, const T* b, To* c) {
  const float alpha = 1, beta = 0;
  check_cublas(cublasGemmStridedBatchedEx_64(
      Blas::of_this_thread(stream).handle(), operation(g.transpose_b), operation(g.transpose_a), g.n, g.m, g.k, &alpha,
      b, type_of<T>, g.row_b(), g.stride_b(), a, type_of<T>, g.row_a(), g.stride_a(), &beta, c, type_of<To>, g.n,
      g.m * g.n, g.batch, arithmetic<T>(), CUBLAS_GEMM_DEFAULT));
}

// A matrix as cuBLASLt sees it: transposed.
template <class T>
cublasLtMatrixLayoutOpaque_t layout(int64_t rows, int64_t columns) {
  cublasLtMatrixLayoutOpaque_t result;
  check_cublas(cublasLtMatrixLayoutInit(&result, type_of<T>, uint64_t(columns), uint64_t(rows), columns));
  return result;
}

// Whether cuBLASLt adds the bias before it rounds. For rows that are not whole chunks of 16 bytes it rounds the product
// first (seen on an H200, CUDA 13.0).
template <class T>
bool rounds_once(const Gemm& g, const T* a, const T* b, const T* bias, const T* c) {
  constexpr int chunk = 16 / sizeof(T);
  return g.batch == 1 && (g.m | g.n | g.k) % chunk == 0 && holds_packs<chunk>(a, b, bias, c);
}

// C = op(A) op(B) + bias, where rounds_once().
template <class T>
void multiply_and_add(Stream stream, const Gemm& g, const T* a, const T* b, const T* bias, T* c) {
  const Blas& blas = Blas::of_this_thread(stream);
  cublasLtMatmulDescOpaque_t product;
  check_cublas(cublasLtMatmulDescInit(&product, arithmetic<T>(), CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(&product, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(g.transpose_b));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(g.transpose_a));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  auto from_b = g.transpose_b ? layout<T>(g.n, g.k) : layout<T>(g.k, g.n);
  auto from_a = g.transpose_a ? layout<T>(g.k, g.m) : layout<T>(g.m, g.k);
  auto to_c = layout<T>(g.m, g.n);
  // A choice takes several microseconds, so it is kept.
  using Key = std::tuple<int64_t, int64_t, int64_t, bool, bool, cublasComputeType_t>;
  thread_local std::map<Key, cublasLtMatmulAlgo_t> chosen;
  const Key key{g.m, g.n, g.k, g.transpose_a, g.transpose_b, arithmetic<T>()};
  auto algorithm = chosen.find(key);
  if (algorithm == chosen.end()) {
    cublasLtMatmulPreferenceOpaque_t preference;
    check_cublas(cublasLtMatmulPreferenceInit(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
      check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, name, &value, sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Blas::workspace_bytes});
    for (const auto matrix : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(matrix, uint32_t{16});
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    check_cublas(cublasLtMatmulAlgoGetHeuristic(blas.lt_handle(), &product, &from_b, &from_a, &to_c, &to_c, &preference,
                                                1, &best, &found));
    check<DeviceError>(found > 0, "cuBLAS has no product for these sizes");
    algorithm = chosen.emplace(key, best.algo).first;
  }
  const float alpha = 1, beta = 0;
  check_cublas(cublasLtMatmul(blas.lt_handle(), &product, &alpha, b, &from_b, a, &from_a, &beta, c, &to_c, c, &to_c,
                              &algorithm->second, blas.workspace(), Blas::workspace_bytes, native(stream)));
}

#else

template <class T>
bool rounds_once(const Gemm&, const T*, const T*, const T*, const T*) {
  return false;
}
template <class T>
void multiply_and_add(Stream, const Gemm&, const T*, const T*, const T*, T*) {}

template <class T, class To>
void multiply(Stream stream, const Gemm& g, const T* a, const T* b, To* c) {
  const auto widened = [](const T* x, int64_t n) { return std::vector<float>(x, x + n); };
  const auto wide_a = widened(a, (g.share_a ? 1 : g.batch) * g.m * g.k);
  const auto wide_b = widened(b, (g.share_b ? 1 : g.batch) * g.k * g.n);
  std::vector<float> product(size_t(g.batch * g.m * g.n));
  cpu::gemm<float>(stream, g, wide_a.data(), wide_b.data(), nullptr, product.data());
  for (size_t i = 0; i < product.size(); ++i) c[i] = To(product[i]);
}

#endif

// C = products + bias. Null: zeros.
template <class T>
__global__ void __launch_bounds__(threads_a_block<32>) add_bias(Rows size, const float* products, const T* bias, T* c) {
  each_row<32>(size.rows, [&](int64_t row) {
    for (int64_t j = threadIdx.x % 32; j < size.cols; j += 32)
      c[row * size.cols + j] = T((products ? products[row * size.cols + j] : 0.0f) + (bias ? float(bias[j]) : 0.0f));
  });
}

}  // namespace

template <class T>
void gemm(Stream stream, const Gemm& g, const T* a, const T* b, const T* bias, T* c) {
  if (g.batch == 0 || g.m == 0 || g.n == 0) return;
  Gemm product = g;
  product.activation = {};
  if (g.k > 0 && !bias) {
    multiply(stream, product, a, b, c);
  } else if (g.k > 0 && rounds_once(g, a, b, bias, c)) {
    multiply_and_add(stream, product, a, b, bias, c);
  } else {
    const Rows size{g.batch * g.m, g.n};
    Workspace workspace(Device::cuda);
    float* const products = g.k > 0 ? workspace.take<float>(size.rows * size.cols) : nullptr;
    if (products) multiply(stream, product, a, b, products);
    launch(add_bias<T>, over_rows<32>(stream, size.rows), size, products, bias, c);
  }
  if (g.activation) unary(stream, *g.activation, g.batch * g.m * g.n, c, c);
}

template <class T>
void gemm_sums(Stream stream, const Gemm& g, const T* a, const T* b, Accum<T>* c) {
  if (g.batch == 0 || g.m == 0 || g.n == 0) return;
  if (g.k == 0) return gemm<Accum<T>>(stream, g, nullptr, nullptr, nullptr, c);  // zeros
  multiply(stream, g, a, b, c);
}

CAIRN_GPU_TYPES(gemm)
CAIRN_GPU_TYPES(gemm_sums)

}  // namespace cairn::gpu
