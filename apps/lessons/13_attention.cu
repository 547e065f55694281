// Lesson 13: attention in tiles, out = softmax(q k^T / sqrt(32)) v, for n queries, keys and values of 32 floats. The
// page is apps/lessons/13_attention.md. n is a multiple of 32.
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "apps/lessons/puzzle.h"

namespace cairn::lessons {
namespace {

// A tile has 32 x 32 floats. A thread has 4 x 4 elements of a product: rows y + 8 r and columns x + 8 c, where y is its
// number / 8 and x its number % 8. So the 8 lanes with the same y share four rows.
constexpr int side = 32, threads = 64;
using Mine = float[4][4];
__device__ int row_of(int r) { return int(threadIdx.x / 8) + 8 * r; }
__device__ int column_of(int c) { return int(threadIdx.x % 8) + 8 * c; }

// The floats from a row of a tile to the next one, in shared memory. Choose it so that the 8 rows that a warp reads at
// once lie in different banks.
// [lesson 13: constexpr int stride = side;
constexpr int stride = side + 1;
// lesson 13]

// First predict: how many passes does the read of a transposed b in multiply() take, if the stride is 32? And with your
// stride?
// [lesson 13: constexpr double predicted[2] = {};
constexpr double predicted[2] = {8, 1};
// lesson 13]

// Loads a tile: 32 rows of x. What goes wrong is reported for the line of the call.
__device__ void load(int step, Meter<const float> x, Meter<float> tile, SourceLine call = SourceLine::current()) {
  x = seen_from(call, x), tile = seen_from(call, tile);
  for (int i = int(threadIdx.x); i < side * side; i += threads) tile[i / side * step + i % side] = x[i];
}

// sums += a b^T, or a b where not `transposed`, for this thread's elements. Tiles have `step` floats a row. Load each
// number into a register once: 8 loads for 16 multiply-adds.
template <bool transposed>
__device__ void multiply(int step, Meter<const float> a, Meter<const float> b, Mine& sums,
                         SourceLine call = SourceLine::current()) {
  a = seen_from(call, a), b = seen_from(call, b);
  // [lesson 13
  for (int l = 0; l < side; ++l) {
    float of_a[4], of_b[4];
    for (int i = 0; i < 4; ++i) {
      of_a[i] = a[row_of(i) * step + l];
      of_b[i] = transposed ? b[column_of(i) * step + l] : b[l * step + column_of(i)];
    }
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < 4; ++c) sums[r][c] += of_a[r] * of_b[c];
  }
  // lesson 13]
}

// 1. Scores: s = q k^T for 32 queries and 32 keys, by one block.
__global__ void scores(int step, Meter<const float> q, Meter<const float> k, Meter<float> s) {
  float* const shared = dynamic_shared<float>();
  const Meter<float> of_q = watch_shared(shared, side * step, "tile of q");
  const Meter<float> of_k = watch_shared(shared + side * step, side * step, "tile of k");
  Mine sums = {};
  // [lesson 13
  load(step, q, of_q);
  load(step, k, of_k);
  __syncthreads();
  multiply<true>(step, of_q, of_k, sums);
  // lesson 13]
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) s[row_of(r) * side + column_of(c)] = sums[r][c];
}

// Combines the values of the 8 lanes that share a row.
template <class Op>
__device__ float of_row(float value, Op op) {
  for (int distance = 4; distance > 0; distance /= 2) value = op(value, __shfl_xor_sync(full_warp, value, distance));
  return value;
}

// 2. Attention: a block has 32 queries and goes through the keys, 32 at a time. `maximum` and `sum` are those of this
// thread's four rows so far: the largest score, and the sum of exp(score - maximum) of its own columns. `out` are the
// weighted sums of v, relative to the same maximum. Shared memory has the tiles of q, of k and then v, and of weights.
__global__ void attention(int n, Meter<const float> q, Meter<const float> k, Meter<const float> v, Meter<float> y) {
  float* const shared = dynamic_shared<float>();
  const Meter<float> of_q = watch_shared(shared, side * stride, "tile of q");
  const Meter<float> of_k_or_v = watch_shared(shared + side * stride, side * stride, "tile of k or v");
  const Meter<float> weights = watch_shared(shared + 2 * side * stride, side * stride, "weights");
  const int64_t first = int64_t(blockIdx.x) * side * side;
  Mine out = {};
  float maximum[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {};
  load(stride, q + first, of_q);
  for (int64_t j = 0; j < n * side; j += side * side) {  // the tile of keys begins at k + j
    // [lesson 13
    load(stride, k + j, of_k_or_v);
    __syncthreads();
    Mine s = {};
    multiply<true>(stride, of_q, of_k_or_v, s);
    for (int r = 0; r < 4; ++r) {
      float largest = maximum[r];
      for (float& score : s[r]) largest = fmaxf(largest, score /= sqrtf(side));
      largest = of_row(largest, Max{});
      const float correction = expf(maximum[r] - largest);
      maximum[r] = largest;
      sum[r] *= correction;
      for (int c = 0; c < 4; ++c) {
        const float weight = expf(s[r][c] - largest);
        sum[r] += weight;
        out[r][c] *= correction;
        weights[row_of(r) * stride + column_of(c)] = weight;
      }
    }
    __syncthreads();  // before v takes the place of k
    load(stride, v + j, of_k_or_v);
    __syncthreads();
    multiply<false>(stride, weights, of_k_or_v, out);
    __syncthreads();  // before the tiles are written again
    // lesson 13]
  }
  for (int r = 0; r < 4; ++r) {
    const float all = of_row(sum[r], Sum{});
    for (int c = 0; c < 4; ++c) y[first + row_of(r) * side + column_of(c)] = out[r][c] / all;
  }
}

// ---- Nothing to do below.

void run() {
  check(predicted[0] * predicted[1] > 0, "write your predictions first");
  constexpr size_t n = 64;
  // With 4, scores are in the hundreds. With a shift, those of the second tile are larger, or smaller, by a hundred.
  for (const auto& [size, shift] : {std::pair{1.0f / 64, 0.0f}, {4.0f, 100.0f}, {4.0f, -100.0f}}) {
    const auto of_q = numbers(n * side, 1.0f / 64, -1);
    auto of_k = numbers(n * side, -size, 50 * size);
    for (size_t i = n / 2 * side; i < of_k.size(); ++i) of_k[i] += shift;
    const auto of_v = numbers(n * side, 0.01f);
    Array q("q", of_q), k("k", of_k), v("v", of_v);
    const auto product = [&of_q, &of_k](size_t i, size_t j) {
      return std::inner_product(&of_q[i * side], &of_q[i * side] + side, &of_k[j * side], 0.0);
    };
    std::vector<double> expected(side * side), of_y(n * side);
    for (size_t i = 0; i < side * side; ++i) expected[i] = product(i / side, i % side);
    for (const bool yours : {false, true}) {
      const int step = yours ? stride : side;
      expect("scores", expected, side, [&](auto s) {
        launch(scores, {1, threads, size_t(2 * side * step) * sizeof(float)}, step, q, k, s);
      });
      const Count c = reads("tile of k");
      if (size < 1)
        said += concat("scores: right; with ", step, " floats a row, a read of k by a warp took ",
                       each(c.passes, " pass", " passes", c, predicted[yours]), '\n');
      check(c.accesses <= 4 * side * threads, "scores: the numbers are right, but the tile of k was read ", c.accesses,
            " times; ", 4 * side * threads, " would do: load each number once for four products");
      check(!yours || c.passes == c.requests, "scores: the numbers are right, but a read of k by a warp takes ",
            double(c.passes) / double(c.requests), " passes: rows begin in the same bank, so change the stride");
    }
    for (size_t i = 0; i < n; ++i) {
      double sum = 0;
      const auto weight = [&](size_t j) { return std::exp((product(i, j) - product(i, i)) / std::sqrt(side)); };
      for (size_t j = 0; j < n; ++j) sum += weight(j);
      for (size_t j = 0; j < n; ++j)
        for (size_t d = 0; d < side; ++d) of_y[i * side + d] += weight(j) / sum * double(of_v[j * side + d]);
    }
    expect(size < 1 ? "attention" : "attention, scores in the hundreds, whose exponentials are infinite", of_y, side,
           [&](auto y) {
             launch(attention, {n / side, threads, 3 * side * stride * sizeof(float)}, int(n), q, k, v, y);
           });
  }
  said += "attention: right\n";
}

}  // namespace
}  // namespace cairn::lessons

int main() { return cairn::lessons::lesson(cairn::lessons::run); }
