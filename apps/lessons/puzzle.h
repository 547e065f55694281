#pragma once
// What the puzzles of lessons 10 to 13 share: arrays on the device, yours beside the expected numbers, and what memory
// saw. A check that fails throws an Error in words, which lesson() prints.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "apps/lessons/meter.h"

namespace cairn::lessons {

// n whole numbers from 0 to 100, times `factor`, plus `offset`.
inline std::vector<float> numbers(size_t n, float factor = 1, float offset = 0) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = float((37 * i + 11) % 101) * factor + offset;
  return x;
}

// Floats on the device.
class Array {
 public:
  Array(const char* name, const std::vector<float>& values) : name_(name), size_(values.size()) {
    check_cuda(cudaMalloc(&data_, size_ * sizeof(float)));
    check_cuda(cudaMemcpy(data_, values.data(), size_ * sizeof(float), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(data_); }
  Meter<float> meter() { return watch(data_, int64_t(size_), name_); }  // for one launch
  // The first difference from `expected`, in words; empty if there is none.
  std::string difference(const std::vector<double>& expected, size_t cols) const {
    std::vector<float> yours(size_);
    check_cuda(cudaMemcpy(yours.data(), data_, size_ * sizeof(float), cudaMemcpyDeviceToHost));
    std::string first;
    int wrong = 0;
    for (size_t i = 0; i < size_; ++i)
      if (!(std::abs(yours[i] - expected[i]) <= 1e-5 * std::max(1.0, std::abs(expected[i]))) && wrong++ == 0)
        first = concat(name_, '[', i, ']', cols ? concat(" (row ", i / cols, ", column ", i % cols, ')') : "",
                       ": yours ", yours[i], ", expected ", expected[i]);
    return wrong ? concat(first, "; ", wrong, " of ", size_, " are wrong (nan is also what nobody wrote)") : "";
  }

 private:
  const char* name_;
  size_t size_;
  float* data_ = nullptr;
};

// Calls run(y), which launches a kernel, in three orders of the threads. Each must make y the expected numbers, without
// a race. With cols > 0, y is a matrix.
template <class F>
void expect(const std::string& name, const std::vector<double>& expected, size_t cols, F run) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    Array y("y", std::vector<float>(expected.size(), NAN));
    std::string wrong, race;
#ifndef __CUDACC__
    start_watching();
    host_cuda::configure({1, seed ? host_cuda::Order::shuffled : host_cuda::Order::forward, seed});
#endif
    try {
      run(y.meter());
      wrong = y.difference(expected, cols);
    } catch (const Error& error) {
      wrong = error.what();
    }
#ifndef __CUDACC__
    race = notes().race;
#endif
    if (!race.empty()) wrong = race + (wrong.empty() ? "; the numbers are right all the same, in this order" : "");
    check(wrong.empty(), name, ": ", wrong);
  }
}

// What the last launch read of an array. (On a GPU nothing is counted.)
inline Count reads([[maybe_unused]] const char* array) {
#ifdef __CUDACC__
  return {};
#else
  return notes().arrays.at(array).count(false);
#endif
}
// A number for each request of a warp, beside the prediction.
inline std::string each(int64_t number, const Count& of, double predicted) {
  return concat(std::round(10.0 * double(number) / double(of.requests)) / 10, " (you predicted ", predicted, ')');
}

// The main program of a lesson. Exit code 1: something is wrong.
inline int lesson(const char* number, void (*run)()) try {
  run();
  std::printf("lesson %s: green\n", number);
  return 0;
} catch (const Error& error) {
  std::printf("lesson %s: red\n  %s\n", number, error.what());
  return 1;
}

}  // namespace cairn::lessons
