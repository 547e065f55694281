// Lesson 10: six kernels of one to four lines. The page is apps/lessons/10_threads.md.
#include <vector>

#include "apps/lessons/puzzle.h"

namespace cairn::lessons {
namespace {

// First predict: how many sectors of 32 bytes does one read by a warp take, if lane t reads
//   the float x[t]; the float x[7], all lanes; the float x[32 * t]; the four floats from x[4 * t] on, at once?
// [lesson 10: constexpr double predicted[4] = {};
constexpr double predicted[4] = {4, 1, 32, 16};
// lesson 10]

// 1. Map: y[i] = 2 x[i] for 64 elements, by one block of 64 threads.
__global__ void map(Meter<const float> x, Meter<float> y) {
  // [lesson 10
  y[threadIdx.x] = 2 * x[threadIdx.x];
  // lesson 10]
}

// 2. Guard: the same for n elements, by blocks of 32 threads. There are enough blocks, and threads too many.
__global__ void guard(int n, Meter<const float> x, Meter<float> y) {
  // [lesson 10
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = 2 * x[i];
  // lesson 10]
}

// 3. Two axes: y[r, c] = x[r, c] + r for a matrix, row after row in memory, by blocks of 16 x 16 threads. There are
// enough blocks along both axes.
__global__ void two_axes(int rows, int cols, Meter<const float> x, Meter<float> y) {
  // [lesson 10
  const int c = int(blockIdx.x * blockDim.x + threadIdx.x), r = int(blockIdx.y * blockDim.y + threadIdx.y);
  if (r < rows && c < cols) y[r * cols + c] = x[r * cols + c] + float(r);
  // lesson 10]
}

// 4. Stride: y[i] = 2 x[i] for n elements, by any number of blocks, here too few for a thread an element.
__global__ void stride(int n, Meter<const float> x, Meter<float> y) {
  // [lesson 10
  const int step = int(gridDim.x * blockDim.x);
  for (int i = int(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += step) y[i] = 2 * x[i];
  // lesson 10]
}

// 5. Broadcast: y[r, c] = scale[r] x[r, c] for rows of 32 elements, by a block of one warp for each row.
__global__ void broadcast(Meter<const float> scale, Meter<const float> x, Meter<float> y) {
  // [lesson 10
  const int i = int(blockIdx.x * 32 + threadIdx.x);
  y[i] = scale[blockIdx.x] * x[i];
  // lesson 10]
}

// 6. Fours: y[i] = 2 x[i] for 256 elements, by one block of 64 threads. A thread moves four elements by one load and
// one store: Pack<float, 4> four = pack<4>(x, t) has the elements four.element[0 .. 3], which are x[4 t .. 4 t + 3].
__global__ void fours(Meter<const float> x, Meter<float> y) {
  // [lesson 10
  Pack<float, 4> four = pack<4>(x, threadIdx.x);
  for (float& element : four.element) element *= 2;
  pack<4>(y, threadIdx.x) = four;
  // lesson 10]
}

// ---- Nothing to do below.

// A warp copies a column.
__global__ void column(Meter<const float> x, Meter<float> y) { y[threadIdx.x] = x[32 * threadIdx.x]; }

void run() {
  check(predicted[0] * predicted[1] * predicted[2] * predicted[3] > 0, "write your predictions first");
  const auto of_x = numbers(1024), of_scale = numbers(1024, 2);
  const auto twice = [&](size_t i) { return 2 * of_x[i]; };
  const auto took = [](const char* array, double predicted_sectors) {
    const Count c = reads(array);
    said += concat("  a read of ", array, " by a warp took ",
                   each(c.sectors, " sector", " sectors", c, predicted_sectors), '\n');
  };
  // x must be read with as few sectors as its bytes need.
  const auto least = [](const char* name, const char* advice) {
    const Count c = reads("x");
    check(c.sectors == c.least_sectors, name, ": the numbers are right, but x was read with ", c.sectors,
          " sectors, and ", c.least_sectors, " would do: ", advice);
  };

  puzzle("map", map, {1, 64}, of_x, 64, 0, twice);
  took("x", predicted[0]);
  puzzle("guard", guard, {4, 32}, of_x, 100, 0, twice, 100);
  const auto plus_row = [&](size_t i) { return of_x[i] + float(i / 40); };
  puzzle("two axes", two_axes, {{3, 3}, {16, 16}}, of_x, 20 * 40, 40, plus_row, 20, 40);
  least("two axes", "the lanes of a warp are neighbors along threadIdx.x, so let it count columns");
  puzzle("stride", stride, {2, 64}, of_x, 1000, 0, twice, 1000);
  least("stride", "in each round, let neighboring lanes take neighbors");
  Array scale("scale", of_scale);
  const auto scaled = [&](size_t i) { return of_scale[i / 32] * of_x[i]; };
  puzzle("broadcast", broadcast, {5, 32}, of_x, 160, 32, scaled, scale);
  took("scale", predicted[1]);
  puzzle("column (given)", column, {1, 32}, of_x, 32, 0, [&](size_t i) { return of_x[32 * i]; });
  took("x", predicted[2]);
  puzzle("fours", fours, {1, 64}, of_x, 256, 0, twice);
  took("x", predicted[3]);
  for (const bool written : {false, true}) {
    const int64_t requests = reads(written ? "y" : "x", written).requests;
    check(requests <= 2, "fours: the numbers are right, but ", written ? "y was written" : "x was read", " by ",
          requests, " requests of a warp; with four elements a load, or a store, 2 do");
  }
}

}  // namespace
}  // namespace cairn::lessons

int main() { return cairn::lessons::lesson(cairn::lessons::run); }
