#pragma once
// What the puzzles of lessons 10 to 13 share: yours beside the expected numbers, and what memory saw.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
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
struct Array {
  const char* name;
  std::vector<float> values;  // at first
  float* data = nullptr;
  Array(const char* of_name, std::vector<float> of_values) : name(of_name), values(std::move(of_values)) {
    check_cuda(cudaMalloc(&data, values.size() * sizeof(float)));
    check_cuda(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(data); }
  operator Meter<const float>() const { return watch(data, int64_t(values.size()), name); }  // for one launch
};

// A wrong number in words: element i of y.
inline std::string in_words(float value, [[maybe_unused]] size_t i) {
  if (!std::isnan(value)) return concat(value);
#ifndef __CUDACC__
  if (!notes().arrays.at("y").written(int64_t(i))) return "nan (not written)";
#endif
  return "nan (infinite / infinite, or read where nobody wrote)";
}

inline std::string said;     // lines for lesson() to print
inline std::string running;  // the kernel

// Calls run(y), which launches a kernel, in three orders of the threads. Each must make y the expected numbers, without
// a race. With cols > 0, y is a matrix. Error: the first thing that is wrong.
template <class F>
void expect(const std::string& name, const std::vector<double>& expected, size_t cols, F run) {
  const size_t n = expected.size();
  for (unsigned seed = 0; seed < 3; ++seed) {
    Array y("y", std::vector<float>(n, NAN));
    running = concat(
        name,
        " did it (SIGXCPU: a loop without end). To see the line, start this program in gdb: run, then backtrace.\n",
        said);
#ifndef __CUDACC__
    start_watching();
    host_cuda::configure({1, seed ? host_cuda::Order::shuffled : host_cuda::Order::forward, seed});
#endif
    std::string first;  // what is wrong
    size_t wrong = 0;
    try {
      run(watch(y.data, int64_t(n), y.name));
      check_cuda(cudaMemcpy(y.values.data(), y.data, n * sizeof(float), cudaMemcpyDeviceToHost));
      for (size_t i = 0; i < n; ++i)
        if (!(std::abs(y.values[i] - expected[i]) <= 1e-5 * std::max(1.0, std::abs(expected[i]))) && wrong++ == 0)
          first = concat("y[", i, cols ? concat("] (row ", i / cols, ", column ", i % cols, "): yours ") : "]: yours ",
                         in_words(y.values[i], i), ", expected ", expected[i]);
      if (wrong) first += concat("; ", wrong, " of ", n, " are wrong");
    } catch (const Error& error) {
      first = error.what();
      wrong = n + 1;
    }
#ifndef __CUDACC__
    if (const std::string& race = notes().race; !race.empty() && wrong <= n)
      first = race + (wrong ? "" : "; the numbers are right all the same, in this order");
    else if (wrong && wrong <= n && !notes().unwritten.empty())
      first = notes().unwritten;
#endif
    check(first.empty(), name, ": ", first);
  }
}

// Launches kernel(more..., x, y), and compares element i of y, of n elements, with f(i).
template <class F, class... Parameters, class... More>
void puzzle(const char* name, void (*kernel)(Parameters...), const Launch& shape, const std::vector<float>& x, size_t n,
            size_t cols, F f, More&&... more) {
  Array of_x("x", x);
  std::vector<double> expected(n);
  for (size_t i = 0; i < n; ++i) expected[i] = double(f(i));
  expect(name, expected, cols, [&](auto y) { launch(kernel, shape, more..., of_x, y); });
  said += concat(name, ": right\n");
}

// What the last launch read of an array, or wrote. (On a GPU nothing is counted.)
inline Count reads([[maybe_unused]] const char* array, [[maybe_unused]] bool writes = false) {
#ifdef __CUDACC__
  return {};
#else
  return notes().arrays.at(array).count(writes);
#endif
}
// "4 sectors, as you predicted", for each request of a warp.
inline std::string each(int64_t count, const char* one, const char* many, const Count& of, double predicted) {
  const double mean = std::round(10.0 * double(count) / double(of.requests)) / 10;
  return concat(mean, mean == 1 ? one : many, mean == predicted ? ", as you predicted" : concat(", not ", predicted),
                of.partial ? concat("; ", of.partial, " of ", of.requests, " reads without lanes that diverged") : "");
}

// If a signal ends the program, as after 20 seconds, it says first which kernel ran. It has a stack of its own.
inline void end_in_words() {
  static char memory[1 << 16];
  const stack_t stack = {memory, 0, sizeof(memory)};
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
  action.sa_handler = [](int number) {
    if (write(STDOUT_FILENO, running.data(), running.size()) >= 0) raise(number);
  };
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGXCPU}) sigaction(number, &action, nullptr);
  const rlimit seconds = {20, 30};
  setrlimit(RLIMIT_CPU, &seconds);
}

// The main program of a lesson. Exit code 1: something is wrong, which is printed first.
inline int lesson(void (*run)()) try {
  end_in_words();
  run();
  std::printf("%s", said.c_str());
  return 0;
} catch (const Error& error) {
  std::printf("%s\n%s", error.what(), said.c_str());
  return 1;
}
}  // namespace cairn::lessons
