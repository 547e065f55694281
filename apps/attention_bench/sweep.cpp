#include "apps/attention_bench/sweep.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"

namespace cairn::attention_bench {

void Sweep::add_points(int64_t length) {
  for (const std::string& spec : specs) {
    if (too_long.count(spec)) continue;
    const auto before = of(spec);
    // Full attention takes four times as long at twice the length.
    if (!before.empty() && 4 * before.back().timing().median > max_seconds) {
      note(concat(spec, " is left out from length ", length, " on: --longest ", max_seconds), settings.output.quiet);
      too_long.insert(spec);
    } else {
      points.push_back({settings.problem(spec, length)});
    }
  }
}

std::vector<const Point*> Sweep::measure_share(int64_t length, int64_t passes) {
  std::vector<Point*> now;
  std::vector<Problem> problems;
  for (Point& p : points)
    if (p.problem.length == length) now.push_back(&p), problems.push_back(p.problem);
  const auto share = [&](int64_t n) { return (n + passes - 1) / passes; };
  const Repetitions& all = settings.repetitions;
  const auto found = measure(problems, settings.compute, uint64_t(settings.common.seed),
                             {share(all.maximum), share(all.minimum), all.seconds / double(passes)});
  for (size_t i = 0; i < now.size(); ++i) {
    now[i]->seconds.insert(now[i]->seconds.end(), found[i].seconds.begin(), found[i].seconds.end());
    now[i]->peak = std::max(now[i]->peak, found[i].peak_bytes);
  }
  return {now.begin(), now.end()};
}

std::vector<Point> Sweep::measured() const {
  std::vector<Point> result;
  std::copy_if(points.begin(), points.end(), std::back_inserter(result),
               [](const Point& p) { return !p.seconds.empty(); });
  return result;
}

std::vector<Point> Sweep::of(const std::string& spec) const {
  std::vector<Point> result = measured();
  std::erase_if(result, [&](const Point& p) { return p.problem.attention != spec; });
  return result;
}

Curve Sweep::times(const std::string& spec) const {
  Curve curve;
  for (const Point& p : of(spec)) curve.push_back({double(p.problem.length), p.seconds_per_element()});
  return curve;
}

}  // namespace cairn::attention_bench
