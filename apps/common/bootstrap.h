#pragma once
// Is one error rate larger than another, or is it chance?
#include <string>
#include <vector>

namespace cairn {

// A rate minus another one, and its 95% interval.
struct Difference {
  double value = 0, low = 0, high = 0;
};
// Two models answered the same examples: a[i] and b[i] are their errors in example i, of sizes[i] (a sentence and its
// phones, say). The value is the sum of a - b over the sum of the sizes. The interval is a bootstrap (Efron 1979):
// 10,000 times, examples are drawn with replacement, the same ones for both models. NaN if all sizes are 0.
Difference difference_of(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& sizes);

// "+1.2 [0.3, 2.2]", in points of a percentage; a dash for NaN.
std::string in_points(const Difference& difference);

}  // namespace cairn
