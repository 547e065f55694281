#include "core/kernels/softmax.h"

#include <algorithm>
#include <cmath>

#include "tests/catch.h"
#include "tests/cuda/device.h"
#include "tests/tolerances.h"

using namespace cairn;
using namespace cairn::test;

namespace {

const float infinity = INFINITY;

// Rows of random numbers; the second of them all masked, every third element of the third.
std::vector<float> random_rows(Rows size, uint64_t seed) {
  RandomStream sequence(seed, 0, Purpose::test);
  std::vector<float> x(size_t(size.rows * size.cols));
  for (int64_t i = 0; i < int64_t(x.size()); ++i) {
    const int64_t row = i / size.cols, col = i % size.cols;
    x[size_t(i)] = 3 * sequence.normal();
    if (row == 1 || (row == 2 && col % 3 == 0)) x[size_t(i)] = -infinity;
  }
  return x;
}

// By the definition, in double.
std::vector<double> reference(Rows size, const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (int64_t row = 0; row < size.rows; ++row) {
    const float* from = x.data() + row * size.cols;
    double maximum = -infinity, sum = 0;
    bool masked = true;
    for (int64_t c = 0; c < size.cols; ++c) {
      maximum = std::isnan(from[c]) || from[c] > maximum ? from[c] : maximum;
      masked = masked && from[c] == -infinity;
    }
    for (int64_t c = 0; c < size.cols; ++c) sum += std::exp(from[c] - maximum);
    for (int64_t c = 0; c < size.cols; ++c)
      y[size_t(row * size.cols + c)] = masked ? 0 : std::exp(from[c] - maximum) / sum;
  }
  return y;
}

std::vector<double> reference_gradient(Rows size, const std::vector<float>& y, const std::vector<float>& dy) {
  std::vector<double> dx(y.size());
  for (int64_t row = 0; row < size.rows; ++row) {
    const int64_t start = row * size.cols;
    double sum = 0;
    for (int64_t c = start; c < start + size.cols; ++c) sum += double(y[size_t(c)]) * dy[size_t(c)];
    for (int64_t c = start; c < start + size.cols; ++c) dx[size_t(c)] = y[size_t(c)] * (dy[size_t(c)] - sum);
  }
  return dx;
}

template <class T>
std::vector<float> forward_on_device(Rows size, const std::vector<T>& x) {
  OnDevice<T> from(x), to(x.size());
  gpu::softmax_forward<T>({}, size, from.data(), to.data());
  std::vector<float> y;
  for (const T value : to.values()) y.push_back(float(value));
  return y;
}

const Rows shapes[] = {{0, 5},   {5, 0},    {1, 1},    {3, 1},    {3, 2},   {7, 31},  {4, 32},
                       {5, 33},  {9, 64},   {3, 65},   {3, 127},  {2, 129}, {3, 257}, {2, 512},
                       {3, 521}, {1, 1024}, {3, 1025}, {4, 2053}, {67, 11}};

}  // namespace

TEST_CASE("softmax on CUDA equals its definition and the CPU", "[gpu]") {
  in_every_order([] {
    for (const Rows size : shapes) {
      INFO(size.rows << " x " << size.cols);
      const auto x = random_rows(size, 1), dy = random_rows({size.rows, size.cols}, 2);
      const auto y = forward_on_device(size, x);
      CHECK(difference(y, reference(size, x)) <= tolerance::float32);
      std::vector<float> on_cpu(x.size());
      cpu::softmax_forward<float>({}, size, x.data(), on_cpu.data());
      CHECK(difference(y, on_cpu) <= tolerance::float32);
    }
  });
}

TEST_CASE("the gradient of softmax on CUDA equals its definition and the CPU", "[gpu]") {
  in_every_order([] {
    for (const Rows size : shapes) {
      INFO(size.rows << " x " << size.cols);
      std::vector<float> y(size_t(size.rows * size.cols)), dy(y.size());
      cpu::softmax_forward<float>({}, size, random_rows(size, 3).data(), y.data());
      RandomStream sequence(4, 0, Purpose::test);
      for (float& value : dy) value = sequence.normal();
      OnDevice<float> device_y(y), device_dy(dy), device_dx(y.size());
      gpu::softmax_backward<float>({}, size, device_y.data(), device_dy.data(), device_dx.data());
      const auto dx = device_dx.values();
      CHECK(difference(dx, reference_gradient(size, y, dy)) <= tolerance::float32);
      std::vector<float> on_cpu(y.size());
      cpu::softmax_backward<float>({}, size, y.data(), dy.data(), on_cpu.data());
      CHECK(difference(dx, on_cpu) <= tolerance::float32);
    }
  });
}

TEST_CASE("softmax on CUDA may overwrite its input", "[gpu]") {
  for (const Rows size : {Rows{3, 100}, Rows{3, 1500}}) {
    const auto x = random_rows(size, 5), dy = random_rows({size.rows, size.cols}, 5);
    OnDevice<float> in_place(x);
    gpu::softmax_forward<float>({}, size, in_place.data(), in_place.data());
    const auto y = in_place.values();
    CHECK(y == forward_on_device(size, x));

    std::vector<float> gradient(x.size(), 0.5f);
    gradient[7] = -2;
    OnDevice<float> device_y(y), device_dy(gradient), device_dx(x.size());
    gpu::softmax_backward<float>({}, size, device_y.data(), device_dy.data(), device_dx.data());
    gpu::softmax_backward<float>({}, size, device_y.data(), device_dy.data(), device_dy.data());
    CHECK(device_dx.values() == device_dy.values());
  }
}

TEST_CASE("softmax on CUDA: masked rows give zeros, NaN and plus infinity give NaN", "[gpu]") {
  for (const int64_t cols : {int64_t{5}, int64_t{70}, int64_t{1300}})
    for (const float rest : {1.0f, -infinity}) {
      const Rows size{4, cols};
      std::vector<float> x(size_t(4 * cols), rest);
      std::fill_n(x.begin(), cols, -infinity);
      x[size_t(cols + cols - 1)] = NAN;
      x[size_t(2 * cols)] = infinity;
      x[size_t(3 * cols + 2)] = -1e30f;
      INFO("cols " << cols << " rest " << rest);
      const auto y = forward_on_device(size, x);
      for (int64_t c = 0; c < cols; ++c) {
        CHECK(y[size_t(c)] == 0);
        CHECK(std::isnan(y[size_t(cols + c)]));
        CHECK(std::isnan(y[size_t(2 * cols + c)]));
      }
      CHECK(difference(y, reference(size, x)) <= tolerance::float32);
      std::vector<float> on_cpu(x.size());
      cpu::softmax_forward<float>({}, size, x.data(), on_cpu.data());
      CHECK(difference(y, on_cpu) <= tolerance::float32);
    }
}

TEST_CASE("softmax on CUDA in bfloat16 is the float result, rounded", "[gpu]") {
  for (const Rows size : {Rows{5, 33}, Rows{3, 1100}}) {
    std::vector<bfloat16> x, dy;
    std::vector<float> wide_x, wide_dy;
    for (const float value : random_rows(size, 6)) x.push_back(bfloat16(value)), wide_x.push_back(float(x.back()));
    const auto y = forward_on_device(size, x), wide = forward_on_device(size, wide_x);
    for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == float(bfloat16(wide[i])));

    // The gradient is computed in float as well.
    std::vector<bfloat16> short_y;
    for (const float value : y) {
      short_y.push_back(bfloat16(value));
      dy.push_back(bfloat16(1 - 3 * value));
      wide_dy.push_back(float(dy.back()));
    }
    OnDevice<bfloat16> device_y(short_y), device_dy(dy), device_dx(y.size());
    OnDevice<float> float_y(y), float_dy(wide_dy), float_dx(y.size());
    gpu::softmax_backward<bfloat16>({}, size, device_y.data(), device_dy.data(), device_dx.data());
    gpu::softmax_backward<float>({}, size, float_y.data(), float_dy.data(), float_dx.data());
    const auto dx = device_dx.values();
    const auto wide_dx = float_dx.values();
    for (size_t i = 0; i < y.size(); ++i) CHECK(dx[i].bits == bfloat16(wide_dx[i]).bits);
  }
}
