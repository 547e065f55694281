#include "apps/attention_bench/analysis.h"

#include <algorithm>
#include <cmath>

namespace cairn::attention_bench {

Crossover crossover(const Curve& slow, const Curve& fast) {
  double ratio_before = NAN, length_before = NAN, time_before = NAN;  // logarithms
  for (const Sample& s : slow) {
    const auto f =
        std::find_if(fast.begin(), fast.end(), [&](const Sample& other) { return other.length == s.length; });
    if (f == fast.end()) continue;
    const double length = std::log(s.length), time = std::log(s.seconds);
    const double ratio = std::log(f->seconds) - time;                         // below 0: faster
    if (ratio < 0 && std::isnan(ratio_before)) return {s.length, s.seconds};  // from the first length on
    if (ratio < 0) {
      const double part = ratio_before / (ratio_before - ratio);
      return {std::exp(length_before + part * (length - length_before)),
              std::exp(time_before + part * (time - time_before))};
    }
    ratio_before = ratio, length_before = length, time_before = time;
  }
  return {};
}

}  // namespace cairn::attention_bench
