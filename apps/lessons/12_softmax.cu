// Lesson 12: softmax of rows, from a thread a row to the row in registers, then its gradient. The page is
// apps/lessons/12_softmax.md. Rows have at most 128 elements.
#include "apps/lessons/puzzle.h"

namespace cairn::lessons {
namespace {

constexpr int threads = 128, max_cols = 128;

// First predict, for rows of 96 floats: how many sectors does one read by a warp take, on average, if a thread takes a
// row (step 1), and if a warp takes a row (step 2)?
struct Prediction {
  double thread_a_row, warp_a_row;
};
Prediction predict() {
  // [lesson 12: return {};
  return {.thread_a_row = 32, .warp_a_row = 4};
  // lesson 12]
}

// Step 1, which is given: a thread takes a row and reads it three times.
__global__ void thread_a_row(Rows size, Meter<const float> x, Meter<float> y) {
  const int64_t row = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (row >= size.rows) return;
  float maximum = -INFINITY, sum = 0;
  for (int64_t c = 0; c < size.cols; ++c) maximum = fmaxf(maximum, x[row * size.cols + c]);
  for (int64_t c = 0; c < size.cols; ++c) sum += expf(x[row * size.cols + c] - maximum);
  for (int64_t c = 0; c < size.cols; ++c) y[row * size.cols + c] = expf(x[row * size.cols + c] - maximum) / sum;
}

// Combines the values of a warp's 32 lanes by op(a, b); every lane gets the result. __shfl_xor_sync(full_warp, value,
// d) is the value of the lane whose number is this lane's xor d.
template <class Op>
__device__ float of_warp(float value, Op op) {
  // [lesson 12: return value;
  for (int distance = 16; distance > 0; distance /= 2) value = op(value, __shfl_xor_sync(full_warp, value, distance));
  return value;
  // lesson 12]
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
std::vector<double> softmax(const std::vector<float>& x, size_t cols) {
  std::vector<double> y(x.size());
  for (size_t first = 0; first < x.size(); first += cols) {
    double sum = 0;
    for (size_t c = first; c < first + cols; ++c) sum += y[c] = std::exp(double(x[c]) - double(x[first]));
    for (size_t c = first; c < first + cols; ++c) y[c] /= sum;
  }
  return y;
}

void run() {
  const Prediction predicted = predict();
  check(predicted.thread_a_row * predicted.warp_a_row > 0, "write your predictions into predict() first");
  const auto numbers = [](Rows size, float offset) {
    std::vector<float> x(size_t(size.rows * size.cols));
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i * 37 % 101) / 25 + offset;
    return x;
  };
  const auto warps = [](Rows size) { return Launch{ceil_div(size.rows, threads / 32), threads}; };
  struct Problem {
    Rows size;
    float offset;
    const char* what;
  };
  const Problem problems[] = {{{3, 1}, 0, "rows of 1 element"},
                              {{5, 70}, 0, "rows of 70 elements"},
                              {{2, 70}, 1000, "numbers near 1000, whose exponentials are infinite"},
                              {{32, 96}, 0, "rows of 96 elements"}};
  const auto step = [&](const char* name, auto kernel, int64_t readings, double predicted_sectors) {
    for (const Problem& problem : problems) {
      const auto values = numbers(problem.size, problem.offset);
      const auto cols = size_t(problem.size.cols);
      Array x("x", values);
      expect(
          concat(name, ", ", problem.what), softmax(values, cols),
          [&](auto y) { launch(kernel, warps(problem.size), problem.size, x.meter(), y); }, cols);
    }
    const Count c = reads("x");
    const double times = double(c.accesses) / (32 * 96);
    std::printf("  %s: right; x was read %g times, each read by a warp took %s sectors\n", name, times,
                each(c.sectors, c, predicted_sectors).c_str());
    check(times <= double(readings), name, ": the numbers are right, but x was read ", times, " times; ", readings,
          " would do");
    check(kernel == thread_a_row || c.sectors == c.least_sectors, name, ": the numbers are right, but x was read with ",
          c.sectors, " sectors, and ", c.least_sectors, " would do: let neighboring lanes read neighbors");
  };
  step("1 a thread a row", thread_a_row, 3, predicted.thread_a_row);
  step("2 a warp a row", warp_a_row, 3, predicted.warp_a_row);
  step("3 online", online, 2, predicted.warp_a_row);
  step("4 in registers", in_registers, 1, predicted.warp_a_row);

  const Rows size{5, 70};
  const auto dy = numbers(size, -2);
  const auto y = softmax(numbers(size, 0), 70);
  std::vector<double> expected(y.size());
  for (size_t first = 0; first < y.size(); first += 70) {
    double sum = 0;
    for (size_t c = first; c < first + 70; ++c) sum += y[c] * double(dy[c]);
    for (size_t c = first; c < first + 70; ++c) expected[c] = y[c] * (double(dy[c]) - sum);
  }
  Array of_y("of_y", {y.begin(), y.end()}), of_dy("dy", dy);
  expect(
      "5 gradient (here y is dx)", expected,
      [&](auto dx) { launch(gradient, warps(size), size, of_y.meter(), of_dy.meter(), dx); }, 70);
  std::printf("  5 gradient: right\n");
}

}  // namespace
}  // namespace cairn::lessons

int main() { return cairn::lessons::lesson("12", cairn::lessons::run); }
