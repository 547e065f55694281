// Lesson 12: softmax of rows, from a thread a row to the row in registers, then its gradient. The page is
// apps/lessons/12_softmax.md. Rows have at most 128 elements.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "apps/lessons/puzzle.h"

namespace cairn::lessons {
namespace {

constexpr int threads = 128, max_cols = 128;

// First predict, for rows of 96 floats: how many sectors does one read by a warp take if a thread takes a row (step 1),
// and if a warp takes a row (step 2)?
// [lesson 12: constexpr double predicted[2] = {};
constexpr double predicted[2] = {32, 4};
// lesson 12]

// Step 1, which is given: a thread takes a row of the matrix [size.rows, size.cols] and reads it three times.
__global__ void thread_a_row(Rows size, Meter<const float> x, Meter<float> y) {
  const int64_t row = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (row >= size.rows) return;
  float maximum = -INFINITY, sum = 0;
  for (int64_t c = 0; c < size.cols; ++c) maximum = fmaxf(maximum, x[row * size.cols + c]);
  for (int64_t c = 0; c < size.cols; ++c) sum += expf(x[row * size.cols + c] - maximum);
  for (int64_t c = 0; c < size.cols; ++c) y[row * size.cols + c] = expf(x[row * size.cols + c] - maximum) / sum;
}

// Combines the values of a warp's 32 lanes by op(a, b); every lane gets the result. __shfl_xor_sync(full_warp, value,
// d) is the value of the lane whose number is this lane's xor d. (full_warp: all lanes take part.)
template <class Op>
__device__ float of_warp(float value, Op op) {
  // [lesson 12: return value;
  for (int distance = 16; distance > 0; distance /= 2) value = op(value, __shfl_xor_sync(full_warp, value, distance));
  return value;
  // lesson 12]
}

__global__ void sum_of_warp(Meter<const float> x, Meter<float> y) {
  y[threadIdx.x] = of_warp(float(x[threadIdx.x]), Sum{});
}

// In steps 2 to 5 a warp takes a row: row `row`, whose first element is x[first]. This thread is lane `lane`.
struct Place {
  int64_t row, first;
  int lane = int(threadIdx.x % 32);
  __device__ explicit Place(Rows size)
      : row(int64_t(blockIdx.x) * (threads / 32) + threadIdx.x / 32), first(row * size.cols) {}
};

// Step 2: neighboring lanes read neighbors. The row is still read three times.
__global__ void warp_a_row(Rows size, Meter<const float> x, Meter<float> y) {
  const Place place(size);
  if (place.row >= size.rows) return;
  // [lesson 12
  float maximum = -INFINITY, sum = 0;
  for (int64_t c = place.lane; c < size.cols; c += 32) maximum = fmaxf(maximum, x[place.first + c]);
  maximum = of_warp(maximum, Max{});
  for (int64_t c = place.lane; c < size.cols; c += 32) sum += expf(x[place.first + c] - maximum);
  sum = of_warp(sum, Sum{});
  for (int64_t c = place.lane; c < size.cols; c += 32) y[place.first + c] = expf(x[place.first + c] - maximum) / sum;
  // lesson 12]
}

// Step 3: the maximum and the sum in one reading. A lane's sum is relative to its maximum so far.
__global__ void online(Rows size, Meter<const float> x, Meter<float> y) {
  const Place place(size);
  if (place.row >= size.rows) return;
  // [lesson 12
  float maximum = -INFINITY, sum = 0;
  for (int64_t c = place.lane; c < size.cols; c += 32) {
    const float value = x[place.first + c], larger = fmaxf(maximum, value);
    sum = sum * expf(maximum - larger) + expf(value - larger);
    maximum = larger;
  }
  const float of_row = of_warp(maximum, Max{});
  sum = of_warp(sum * expf(maximum - of_row), Sum{});
  for (int64_t c = place.lane; c < size.cols; c += 32) y[place.first + c] = expf(x[place.first + c] - of_row) / sum;
  // lesson 12]
}

// Step 4: the row stays in registers, up to 4 elements a lane. It is read once.
__global__ void in_registers(Rows size, Meter<const float> x, Meter<float> y) {
  const Place place(size);
  if (place.row >= size.rows) return;
  float mine[max_cols / 32];  // element i: column place.lane + 32 i
  // [lesson 12
  float maximum = -INFINITY, sum = 0;
  for (int i = 0; i < max_cols / 32; ++i) {
    const int c = place.lane + 32 * i;
    mine[i] = c < size.cols ? float(x[place.first + c]) : -INFINITY;
    maximum = fmaxf(maximum, mine[i]);
  }
  maximum = of_warp(maximum, Max{});
  for (float& value : mine) sum += value = expf(value - maximum);
  sum = of_warp(sum, Sum{});
  for (int i = 0; i < max_cols / 32; ++i)
    if (const int c = place.lane + 32 * i; c < size.cols) y[place.first + c] = mine[i] / sum;
  // lesson 12]
}

// Step 5, the gradient: dx from the result y and from dy, the gradient of y.
__global__ void gradient(Rows size, Meter<const float> y, Meter<const float> dy, Meter<float> dx) {
  const Place place(size);
  if (place.row >= size.rows) return;
  // [lesson 12
  float sum = 0;
  for (int64_t c = place.lane; c < size.cols; c += 32) sum += y[place.first + c] * dy[place.first + c];
  sum = of_warp(sum, Sum{});
  for (int64_t c = place.lane; c < size.cols; c += 32)
    dx[place.first + c] = y[place.first + c] * (dy[place.first + c] - sum);
  // lesson 12]
}

// ---- Nothing to do below.

// The softmax of each row.
std::vector<double> softmax(const std::vector<double>& x, size_t cols) {
  std::vector<double> y(x.size());
  for (size_t first = 0; first < x.size(); first += cols) {
    double sum = 0;
    for (size_t c = first; c < first + cols; ++c) sum += y[c] = std::exp(x[c] - x[first]);
    for (size_t c = first; c < first + cols; ++c) y[c] /= sum;
  }
  return y;
}

void run() {
  check(predicted[0] * predicted[1] > 0, "write your predictions first");
  const auto step = [&](const char* name, auto kernel, int64_t readings, double predicted_sectors) {
    for (const size_t cols : {1, 70, 96})
      for (const float offset : {0.0f, 1000.0f, -1000.0f, 200.0f}) {
        const Rows size{32, int64_t(cols)};
        const bool one = offset == 200;  // one number in each row, if it has so many
        auto values = numbers(32 * cols, 0.04f, one ? 0 : offset);
        for (size_t c = 65; one && cols > c && c < values.size(); c += cols) values[c] = offset;
        Array x("x", values);
        const char* const near = one          ? ", 200 in column 65"
                                 : offset > 0 ? ", numbers near 1000, whose exponentials are infinite"
                                 : offset < 0 ? ", numbers near -1000, whose exponentials are 0"
                                              : "";
        expect(concat(name, ", rows of ", cols, near), softmax({values.begin(), values.end()}, cols), cols,
               [&](auto y) {
                 launch(kernel, {kernel == thread_a_row ? 1 : 8, threads}, size, x, y);
               });
      }
    const Count c = reads("x");
    const double times = double(c.accesses) / (32 * 96);
    said += concat(name, ": right; readings of x: ", times, "; a read by a warp took ",
                   each(c.sectors, " sector", " sectors", c, predicted_sectors), '\n');
    check(times <= double(readings), name, ": the numbers are right, but x was read ", times, " times; ", readings,
          " would do");
    check(kernel != in_registers || reads("y").accesses == 0, name, ": the numbers are right, but y was read");
    check(kernel == thread_a_row || c.partial == 0, name, ": the numbers are right, but in ", c.partial, " of ",
          c.requests, " reads of x some lanes did nothing: let lane t take columns t, t + 32, ...");
    check(kernel == thread_a_row || c.sectors == c.least_sectors, name, ": the numbers are right, but x was read with ",
          c.sectors, " sectors, and ", c.least_sectors, " would do: let neighboring lanes read neighbors");
  };
  step("1 a thread a row", thread_a_row, 3, predicted[0]);
  const auto lanes = numbers(32);
  puzzle("of_warp, a sum", sum_of_warp, {1, 32}, lanes, 32, 0,
         [&](size_t) { return std::accumulate(lanes.begin(), lanes.end(), 0.0f); });
  step("2 a warp a row", warp_a_row, 3, predicted[1]);
  step("3 online", online, 2, predicted[1]);
  step("4 in registers", in_registers, 1, predicted[1]);

  // The expected gradient: change x[i] a little, and see how much the sum of dy y changes.
  const auto of_x = numbers(350, 0.04f), of_dy = numbers(350, -0.02f);
  const std::vector<double> before(of_x.begin(), of_x.end()), weights = softmax(before, 70);
  std::vector<double> expected(350);
  for (size_t i = 0; i < 350; ++i)
    for (const double change : {1e-4, -1e-4}) {
      auto after = before;
      after[i] += change;
      const auto of_y = softmax(after, 70);
      expected[i] += std::inner_product(of_y.begin(), of_y.end(), of_dy.begin(), 0.0) / (2 * change);
    }
  Array y("weights", {weights.begin(), weights.end()}), dy("dy", of_dy);
  expect("5 gradient (y is dx)", expected, 70, [&](auto dx) {
    launch(gradient, {2, threads}, Rows{5, 70}, y, dy, dx);
  });
  said += "5 gradient: right\n";
}

}  // namespace
}  // namespace cairn::lessons

int main() { return cairn::lessons::lesson(cairn::lessons::run); }
