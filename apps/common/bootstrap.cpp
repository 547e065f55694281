#include "apps/common/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "apps/common/format.h"
#include "core/random.h"
#include "nn/purpose.h"

namespace cairn {

static double sum(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0); }

Difference difference_of(const std::vector<double>& a, const std::vector<double>& b, const std::vector<double>& sizes) {
  constexpr size_t resamples = 10000;
  RandomStream random(0, 0, Purpose::data);
  const auto n = uint32_t(sizes.size());
  std::vector<double> found;
  for (size_t sample = 0; sample < resamples; ++sample) {
    double errors = 0, drawn = 0;
    for (uint32_t draw = 0; draw < n; ++draw) {
      const size_t i = random.below(n);
      errors += a[i] - b[i];
      drawn += sizes[i];
    }
    if (drawn > 0) found.push_back(errors / drawn);
  }
  if (found.empty()) return {NAN, NAN, NAN};
  std::sort(found.begin(), found.end());
  return {(sum(a) - sum(b)) / sum(sizes), found[found.size() / 40], found[found.size() - found.size() / 40 - 1]};
}

std::string in_points(const Difference& difference) {
  if (std::isnan(difference.value)) return "–";
  return formatted("%+.1f [%.1f, %.1f]", 100 * difference.value, 100 * difference.low, 100 * difference.high);
}

}  // namespace cairn
