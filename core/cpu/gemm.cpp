// Matrix products. The inner loop is multiply_block: it keeps a block of C, max_rows by two vectors, in registers over
// the depth. Each step adds one outer product of a column of A and a row of B: with AVX-512, 28 multiply-adds for 16
// loads keep the processor's arithmetic busy. Around it:
//
// - B is packed into panels. A panel has the columns of two vectors, one step of the depth behind the other, so the
//   loop reads it in order, whatever the strides of B are. All panels are multiplied with a block's rows of A before
//   the next block: these rows stay in the L1 cache, and the panels come from the L2 cache.
// - A is not packed. A step needs one number of each row, and the cache lines of these numbers serve the next steps
//   too. If A is transposed, a step's numbers are neighbors; with many panels, they are copied together. The processor
//   does not fetch the next block's rows by itself, because they are too many streams at once. So each panel's loop
//   fetches two of them into the L2 cache, a number with each step: the loop has time for it.
// - The depth is cut so that a block's rows fit into the L1 cache, and the columns so that the panels fit into the L2
//   cache.
// - A number of C is written once for each part of the depth. The last time, the bias is added. When a tile of C is
//   complete, the activation is computed, while the tile is in the cache.
//
// The blocks depend on the shape alone, and each element of C is a chain of fused multiply-adds. If the depth is split,
// there is a chain for each split, and they are added in order. So any number of threads gives the same bits.
// apps/attention_bench/RESULTS.md compares it with MKL and oneDNN. Without success: the depth cut into 128 or 192 steps
// (5 to 10% slower), a block of C fetched before its product (no change).
#include "core/cpu/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/cpu/vector.h"
#include "core/device.h"
#include "core/kernels/elementwise.h"
#include "core/parallel.h"
#include "core/workspace.h"

namespace cairn {
namespace cpu {
namespace {

// The widest vectors of the processor that this is compiled for, and the rows of a block: the 16 registers (32 with
// AVX-512 and NEON) hold a block and two vectors of B. (With NEON, more rows need too many registers for addresses.)
#if defined(__AVX512F__)
constexpr int64_t vector_bytes = 64, max_rows = 14;
constexpr std::string_view vectors = "AVX-512";
#elif defined(__AVX2__)
constexpr int64_t vector_bytes = 32, max_rows = 6;
constexpr std::string_view vectors = "AVX2";
#elif defined(__aarch64__)
constexpr int64_t vector_bytes = 16, max_rows = 8;
constexpr std::string_view vectors = "NEON";
#else
constexpr int64_t vector_bytes = 16, max_rows = 6;
constexpr std::string_view vectors = "128 bits";
#endif
template <class T>
constexpr int64_t vector_width = vector_bytes / int64_t(sizeof(T));  // elements
template <class T>
constexpr int64_t panel = 2 * vector_width<T>;  // columns of B
template <class T>
using Vector __attribute__((vector_size(vector_bytes))) = T;

constexpr int64_t packed_depth = 512, packed_columns = 384;  // of B, at most
constexpr int64_t some_steps = 16;                           // are packed at a time; a multiple of a vector

// By reference: how a vector is passed by value depends on the processor that this is compiled for.
template <class V, class T>
inline void load(V& v, const T* from) {
  std::memcpy(&v, from, sizeof v);
}
template <class V, class T>
inline void store(T* to, const V& v) {
  std::memcpy(to, &v, sizeof v);
}

// C = beta C + alpha A B + bias for a block of C of at most a panel's columns. Element (i, l) of A is
// a[i * row + l * step]; B is a packed panel; bias, one number for each column, may be null. Meanwhile the numbers
// next[l * next_step] and next[l * next_step + next_row] are fetched.
template <class T>
struct BlockProduct {
  int64_t k;
  const T* a;
  int64_t row, step;
  const T* next;
  int64_t next_row, next_step;
  const T* b;
  T alpha, beta;
  const T* bias;
  T* c;
  int64_t ldc, columns;
};

template <class T, int rows>
void multiply_block(const BlockProduct<T>& block) {
  constexpr int64_t w = vector_width<T>;
  const int64_t row = block.row, step = block.step, next_step = block.next_step, ldc = block.ldc;
  const T *a = block.a, *b = block.b, *next = block.next;
  Vector<T> sum[rows][2] = {};
  for (int64_t l = 0; l < block.k; ++l, a += step, b += 2 * w, next += next_step) {
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(next + block.next_row, 0, 2);
    Vector<T> left, right;
    load(left, b), load(right, b + w);
#pragma GCC unroll 14
    for (int i = 0; i < rows; ++i) {
      const T x = a[i * row];
      sum[i][0] += x * left;
      sum[i][1] += x * right;
    }
  }
  const T alpha = block.alpha, beta = block.beta, *const bias = block.bias;
  if (block.columns == 2 * w) {
    Vector<T> shift[2] = {};
    if (bias) load(shift[0], bias), load(shift[1], bias + w);
#pragma GCC unroll 14
    for (int i = 0; i < rows; ++i)
      for (int half = 0; half < 2; ++half) {
        T* c = block.c + i * ldc + half * w;
        Vector<T> value = alpha * sum[i][half] + shift[half], before;
        if (beta != 0) load(before, c), value += beta * before;
        store(c, value);
      }
    return;
  }
#pragma GCC unroll 14
  for (int i = 0; i < rows; ++i) {  // the last columns
    T value[2 * w], *c = block.c + i * ldc;
    store(value, sum[i][0]), store(value + w, sum[i][1]);
    for (int64_t j = 0; j < block.columns; ++j)
      c[j] = alpha * value[j] + (bias ? bias[j] : T(0)) + (beta == 0 ? T(0) : beta * c[j]);
  }
}

// multiply_block for 1 to max_rows rows.
template <class T, int... rows>
constexpr auto blocks_of_rows(std::integer_sequence<int, rows...>) {
  return std::array<void (*)(const BlockProduct<T>&), sizeof...(rows)>{multiply_block<T, rows + 1>...};
}
template <class T>
constexpr auto multiply_rows = blocks_of_rows<T>(std::make_integer_sequence<int, int(max_rows)>());

// One step of the transposition of vector_width<T> vectors: exchanges the elements of x and y that are `distance` off
// the diagonal.
template <class T, int distance, size_t... i>
inline void exchange(Vector<T>& x, Vector<T>& y, std::index_sequence<i...>) {
  constexpr int w = int(vector_width<T>);
  const Vector<T> low = __builtin_shufflevector(x, y, (i & distance ? w + int(i) - distance : int(i))...);
  y = __builtin_shufflevector(x, y, (i & distance ? w + int(i) : int(i) + distance)...);
  x = low;
}
template <class T, int distance = 1>
inline void transpose(Vector<T> (&x)[vector_width<T>]) {
#pragma GCC unroll 16
  for (int i = 0; i < vector_width<T>; ++i)
    if (!(i & distance)) exchange<T, distance>(x[i], x[i + distance], std::make_index_sequence<vector_width<T>>());
  if constexpr (2 * distance < vector_width<T>) transpose<T, 2 * distance>(x);
}

// Packs `columns` columns of B, at most a panel, and k steps; missing columns become zeros. Element (l, j) of B is
// b[l * step + j * column]; step or column is 1.
template <class T>
void pack_panel(int64_t k, int64_t columns, const T* b, int64_t step, int64_t column, T* to) {
  constexpr int64_t w = vector_width<T>, all = panel<T>;
  if (columns == all && column == 1) {
    for (int64_t l = 0; l < k; ++l) std::memcpy(to + l * all, b + l * step, all * sizeof(T));
    return;
  }
  const int64_t squares = columns == all ? k / w * w : 0;
  for (int64_t half = 0; half < all; half += w)
    for (int64_t l = 0; l < squares; l += w) {  // squares of a vector's size, transposed in registers
      Vector<T> square[w];
      for (int64_t i = 0; i < w; ++i) load(square[i], b + (half + i) * column + l);
      transpose<T>(square);
      for (int64_t i = 0; i < w; ++i) store(to + (l + i) * all + half, square[i]);
    }
  for (int64_t l = squares; l < k; ++l) {
    for (int64_t j = 0; j < columns; ++j) to[l * all + j] = b[l * step + j * column];
    std::fill(to + l * all + columns, to + (l + 1) * all, T(0));
  }
}

// Copies `rows` rows of a transposed A, one step of the depth behind the other. In A, the steps are `step` apart.
template <class T>
void pack_rows(int64_t k, int64_t rows, const T* a, int64_t step, T* to) {
  // Two copies of a fixed size, which may overlap, are faster than one of any size.
  constexpr int64_t some = max_rows / 2 + 1;
  for (int64_t l = 0; l < k; ++l, a += step, to += rows)
    if (rows >= some && rows <= 2 * some) {
      std::memcpy(to, a, some * sizeof(T));
      std::memcpy(to + rows - some, a + rows - some, some * sizeof(T));
    } else {
      std::copy_n(a, rows, to);
    }
}

// The calling thread's memory for packed panels of B.
template <class T>
T* packing_memory() {
  thread_local Scratch<T> packed;  // aligned to at least vector_bytes, as every storage
  return packed.take(packed_depth * (packed_columns + panel<T>));
}

int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
// c = beta c + bias for a row of C. With beta 0, C is not read.
template <class T>
void begin_row(T* c, int64_t n, double beta, const T* bias) {
  for (int64_t j = 0; j < n; ++j) c[j] = (beta == 0 ? T(0) : T(beta) * c[j]) + (bias ? bias[j] : T(0));
}
// The size of equal cuts of [0, n), at most `maximum`.
int64_t even_cut(int64_t n, int64_t maximum) {
  const int64_t cuts = std::max<int64_t>(1, (n + maximum - 1) / maximum);
  return std::max<int64_t>(1, (n + cuts - 1) / cuts);
}

// The rows of the next block if `left` rows are left. The last two blocks share their rows, because blocks of few rows
// are slow. The others have all 14: on a Zen 4 blocks of 11 to 13 rows are 4% slower, why is not known.
int64_t rows_of_block(int64_t left) {
  return left >= 2 * max_rows ? max_rows : left > max_rows ? (left + 1) / 2 : left;
}

// B, [k, n], in panels. It is cut into parts of at most packed_columns columns and packed_depth steps. Packed, it takes
// k steps of all panels, and a part's panels lie together.
template <class T>
struct Panels {
  const T* b;
  int64_t step, column;  // the distance of B's rows and of its columns
  int64_t n, k;
  int64_t width = rounded_up(even_cut(n, packed_columns), panel<T>), depth = even_cut(k, packed_depth);

  int64_t columns(int64_t j) const { return std::min(width, n - j); }
  int64_t steps(int64_t l) const { return std::min(depth, k - l); }
  int64_t packed_size() const { return rounded_up(n, panel<T>) * k; }
  // Where the panel that begins at column j and step l lies.
  int64_t packed_at(int64_t j, int64_t l) const {
    const int64_t j0 = j / width * width;
    return j0 * k + l * rounded_up(columns(j0), panel<T>) + (j - j0) * steps(l);
  }
  // Packs `count` steps of a panel.
  void pack(int64_t j, int64_t l, int64_t count, T* to) const {
    pack_panel(count, std::min(panel<T>, n - j), b + l * step + j * column, step, column, to);
  }
  // Packs the part that begins at column j0 and step l0. A few steps of all panels at a time: a row of B is read as a
  // whole, instead of a panel's part of each.
  void pack_part(int64_t j0, int64_t l0, T* to) const {
    for (int64_t l = 0; l < steps(l0); l += some_steps)
      for (int64_t j = 0; j < columns(j0); j += panel<T>)
        pack(j0 + j, l0 + l, std::min(some_steps, steps(l0) - l), to + j * steps(l0) + l * panel<T>);
  }
};

// C = beta C + alpha A B + bias for m rows of C. `packed` holds all of B; if it is null, the panels are packed here.
template <class T>
void multiply_tile(bool transpose_a, int64_t m, double alpha, const T* a, int64_t lda, const Panels<T>& b,
                   const T* packed, double beta, const T* bias, T* c, int64_t ldc) {
  if (b.k == 0)  // A and B may be null
    for (int64_t i = 0; i < m; ++i) begin_row(c + i * ldc, b.n, beta, bias);
  const int64_t a_row = transpose_a ? 1 : lda, a_step = transpose_a ? lda : 1;
  T* const own = packed ? nullptr : packing_memory<T>();
  alignas(vector_bytes) T packed_rows[packed_depth * max_rows];

  for (int64_t j0 = 0; j0 < b.n; j0 += b.width)
    for (int64_t l0 = 0; l0 < b.k; l0 += b.depth) {
      const int64_t columns = b.columns(j0), steps = b.steps(l0);
      const bool copied = transpose_a && columns >= 8 * panel<T>;  // fewer panels do not pay for the copy
      if (!packed) b.pack_part(j0, l0, own);
      const T* const panels = packed ? packed + b.packed_at(j0, l0) : own;
      const T* const shift = bias && l0 + steps == b.k ? bias + j0 : nullptr;
      for (int64_t i = 0, here; i < m; i += here) {
        here = rows_of_block(m - i);
        const T* const of_a = a + i * a_row + l0 * a_step;
        if (copied) pack_rows(steps, here, of_a, lda, packed_rows);
        for (int64_t j = 0; j < columns; j += panel<T>) {
          const int64_t next = here + (transpose_a ? 0 : j / panel<T>);  // may be outside of A, which does no harm
          multiply_rows<T>[size_t(here - 1)](
              {steps, copied ? packed_rows : of_a, copied ? 1 : a_row, copied ? here : a_step, of_a + next * a_row,
               max_rows / 2 * a_row, a_step, panels + j * steps, T(alpha), l0 == 0 ? T(beta) : T(1),
               shift ? shift + j : nullptr, c + i * ldc + j0 + j, ldc, std::min(panel<T>, columns - j)});
        }
      }
    }
}

template <class T>
Panels<T> panels_of(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb) {
  return {b, transpose_b ? 1 : ldb, transpose_b ? ldb : 1, n, k};
}

}  // namespace

template <class T>
void gemm_tile(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const T* a,
               int64_t lda, const T* b, int64_t ldb, double beta, T* c, int64_t ldc, const T* packed) {
  multiply_tile<T>(transpose_a, m, alpha, a, lda, panels_of(transpose_b, n, k, b, ldb), packed, beta, nullptr, c, ldc);
}

template <class T>
void pack_tile(bool transpose_b, int64_t n, int64_t k, const T* b, int64_t ldb, T* packed) {
  static_assert(32 % panel<T> == 0);  // packed_size
  const Panels<T> all = panels_of(transpose_b, n, k, b, ldb);
  for (int64_t j0 = 0; j0 < n; j0 += all.width)
    for (int64_t l0 = 0; l0 < k; l0 += all.depth) all.pack_part(j0, l0, packed + all.packed_at(j0, l0));
}

// A task computes a tile of C. Tiles of the same columns follow one another, because their part of B is in the cache.
// - If several tiles need a part of B, all of B is packed before.
// - If C is small and the depth is long, as in the gradient of a weight, a task takes some of the steps, and packs its
//   part of B itself. Their sums are added in order. This is done for a transposed A alone. Otherwise the bits of a row
//   of C would depend on the number of rows, and an embedding on the texts that share its batch.
template <class T>
void gemm(Stream, const Gemm& g, const T* a, const T* b, const T* bias, T* c) {
  if (g.batch == 0 || g.m == 0 || g.n == 0) return;  // the other sizes may be huge
  constexpr int64_t wanted = 16, min_rows = 48, max_tile_rows = 256, min_depth = 512;
  const bool deep = g.transpose_a && g.k >= 4 * g.m;
  const int64_t tile_m =
      deep || g.batch >= wanted ? g.m : even_cut(g.m, std::clamp(g.m * g.batch / wanted, min_rows, max_tile_rows));
  const Panels<T> all{b, g.transpose_b ? 1 : g.n, g.transpose_b ? g.k : 1, g.n, g.k};
  const int64_t columns = (g.n + all.width - 1) / all.width, rows = (g.m + tile_m - 1) / tile_m;
  const int64_t tiles = g.batch * columns * rows;
  const int64_t splits = deep ? std::clamp<int64_t>(std::min(wanted / tiles, g.k / min_depth), 1, wanted) : 1;
  const int64_t steps = (g.k + splits - 1) / splits;
  Workspace workspace(Device::cpu);
  T* const partial = splits > 1 ? workspace.take<T>(splits * g.batch * g.m * g.n) : nullptr;  // [batch, splits, m, n]
  T* packed = nullptr;
  if (rows > 1) {
    packed = workspace.take<T>(g.batch * all.packed_size());
    const int64_t panels = (g.n + panel<T> - 1) / panel<T>;
    parallel_tasks(g.batch * panels, [&](int64_t task) {
      const int64_t member = task / panels, j = task % panels * panel<T>;
      Panels<T> of_member = all;
      of_member.b += member * g.stride_b();
      for (int64_t l = 0; l < g.k; l += all.depth)
        of_member.pack(j, l, all.steps(l), packed + member * all.packed_size() + all.packed_at(j, l));
    });
  }
  const auto activate = [&](T* to, int64_t n) {
    if (g.activation) unary<T>({}, *g.activation, n, to, to);
  };
  parallel_tasks(tiles * splits, [&](int64_t task) {
    const int64_t split = task % splits, tile = task / splits, l = split * steps;
    const int64_t member = tile / (columns * rows), j = tile / rows % columns * all.width, i = tile % rows * tile_m;
    const T* from_a = a + member * g.stride_a() + (g.transpose_a ? l * g.m + i : i * g.k + l);
    const Panels<T> of_b{b + member * g.stride_b() + l * all.step + j * all.column, all.step, all.column,
                         all.columns(j), std::min(steps, g.k - l)};
    T* to = (partial ? partial : c) + ((member * splits + split) * g.m + i) * g.n + j;
    multiply_tile(g.transpose_a, std::min(tile_m, g.m - i), 1.0, from_a, g.row_a(), of_b,
                  packed ? packed + member * all.packed_size() + all.packed_at(j, 0) : nullptr, 0.0,
                  partial || !bias ? nullptr : bias + j, to, g.n);
    for (int64_t row = i; !partial && row < std::min(g.m, i + tile_m); ++row, to += g.n) activate(to, of_b.n);
  });
  if (!partial) return;
  parallel_for(g.batch * g.m, rows_a_task(splits * g.n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t member = row / g.m, i = row % g.m;
      T* to = c + row * g.n;
      begin_row(to, g.n, 0, bias);
      for (int64_t split = 0; split < splits; ++split)
        add_scaled(to, g.n, T(1), partial + ((member * splits + split) * g.m + i) * g.n);
      activate(to, g.n);
    }
  });
}

template <class T>
void gemm_sums(Stream stream, const Gemm& g, const T* a, const T* b, Accum<T>* c) {
  gemm<T>(stream, g, a, b, nullptr, c);
}

CAIRN_CPU_TYPES(gemm_tile)
CAIRN_CPU_TYPES(pack_tile)
CAIRN_CPU_TYPES(gemm)
CAIRN_CPU_TYPES(gemm_sums)

}  // namespace cpu

std::string_view cpu_vectors() { return cpu::vectors; }

}  // namespace cairn
