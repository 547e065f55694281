#pragma once
// A part of `speech compare`, in a header for its test: is one error rate larger than another, or is it chance?
#include <vector>

namespace cairn::speech {

// An error rate minus another one, and its 95% interval.
struct Difference {
  double value = 0, low = 0, high = 0;
};
// Two models answered the same sequences: a[i] and b[i] are their errors in sequence i, whose reference has phones[i]
// phones. The interval is a bootstrap (Efron 1979): 10,000 times, sequences are drawn with replacement, the same ones
// for both models. NaN if there are no phones.
Difference difference_of(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& phones);

}  // namespace cairn::speech
