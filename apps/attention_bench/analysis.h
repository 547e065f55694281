#pragma once
// What times by length say: from where on one variant is faster than another, and how they grow.
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

// How the time grows from length 2048 on: the slope of its logarithm over the length's, by least squares, and the
// largest over the smallest. NaN where there are fewer than two lengths.
struct Growth {
  double slope = NAN, range = NAN;
};
Growth growth(const Curve& curve);

}  // namespace cairn::attention_bench
