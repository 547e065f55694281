// The only door to the BLAS. A product is cut into tiles that depend on its shape alone, each a call of the BLAS on one
// thread, and threads take tiles: the BLAS's own threading changes results with the number of threads at most shapes
// that are not round.
#include "core/cpu/gemm.h"

#include <cblas.h>

#include <mutex>

#include "core/parallel.h"

std::string cairn::blas() {
#ifdef OPENBLAS_VERSION
  return openblas_get_config();
#else
  return "CBLAS";
#endif
}

namespace cairn::cpu {

// Once a thread: the OpenMP flavour of OpenBLAS asks how many threads the calling one may start.
static void single_threaded() {
#ifdef OPENBLAS_VERSION
  thread_local const bool once = [] {
    static std::mutex mutex;
    const std::lock_guard guard(mutex);
    openblas_set_num_threads(1);
    return true;
  }();
  (void)once;
#endif
}

template <class T>
void gemm_tile(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const T* a,
               int64_t lda, const T* b, int64_t ldb, double beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  single_threaded();
  const auto ta = transpose_a ? CblasTrans : CblasNoTrans, tb = transpose_b ? CblasTrans : CblasNoTrans;
  // The BLAS wants leading dimensions of at least 1 even where nothing is read.
  const auto rows_apart = [](int64_t ld) { return blasint(std::max<int64_t>(1, ld)); };
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, ta, tb, blasint(m), blasint(n), blasint(k), float(alpha), a, rows_apart(lda), b,
                rows_apart(ldb), float(beta), c, rows_apart(ldc));
  } else {
    cblas_dgemm(CblasRowMajor, ta, tb, blasint(m), blasint(n), blasint(k), alpha, a, rows_apart(lda), b,
                rows_apart(ldb), beta, c, rows_apart(ldc));
  }
}

template <class T>
void gemm(Stream, const Gemm& g, const T* a, const T* b, T* c) {
  // Tall tiles: the BLAS packs its right operand once a tile, so few columns of tiles are best.
  const int64_t tile_n = g.n > 1536 ? 768 : std::max<int64_t>(1, g.n);
  const int64_t columns = (g.n + tile_n - 1) / tile_n;
  const int64_t wanted = std::max<int64_t>(1, 16 / std::max<int64_t>(1, g.batch * columns));
  const int64_t tile_m = std::max<int64_t>(64, (g.m + wanted - 1) / wanted);
  const int64_t rows = (g.m + tile_m - 1) / tile_m;

  parallel_tasks(g.batch * rows * columns, [&](int64_t task) {
    const int64_t member = task / (rows * columns), i = task / columns % rows * tile_m, j = task % columns * tile_n;
    const T* from_a = a + member * g.stride_a + (g.transpose_a ? i : i * g.lda);
    const T* from_b = b + member * g.stride_b + (g.transpose_b ? j * g.ldb : j);
    gemm_tile(g.transpose_a, g.transpose_b, std::min(tile_m, g.m - i), std::min(tile_n, g.n - j), g.k, g.alpha, from_a,
              g.lda, from_b, g.ldb, g.beta, c + member * g.stride_c + i * g.ldc + j, g.ldc);
  });
}

template void gemm_tile(bool, bool, int64_t, int64_t, int64_t, double, const float*, int64_t, const float*, int64_t,
                        double, float*, int64_t);
template void gemm_tile(bool, bool, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t,
                        double, double*, int64_t);
template void gemm(Stream, const Gemm&, const float*, const float*, float*);
template void gemm(Stream, const Gemm&, const double*, const double*, double*);

}  // namespace cairn::cpu
