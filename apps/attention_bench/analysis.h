#pragma once
// Where one variant becomes faster than another.
#include <cmath>
#include <vector>

namespace cairn::attention_bench {

// The time of an element at a length.
struct Sample {
  double length, seconds;
};
using Curve = std::vector<Sample>;  // lengths rising

// The length from which `fast` is faster than `slow`, interpolated linearly in log-log over the lengths that both have;
// the first of these if it is faster from the start; NaN if never. `seconds` is the time there.
struct Crossover {
  double length = NAN, seconds = NAN;
};
Crossover crossover(const Curve& slow, const Curve& fast);

}  // namespace cairn::attention_bench
