#include "apps/attention_bench/sweep.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/common/program.h"
#include "core/error.h"
#include "nn/io/json.h"

namespace cairn::attention_bench {

using Json = nlohmann::ordered_json;

void Sweep::add_points(int64_t length) {
  for (const std::string& spec : specs) {
    if (too_long.count(spec)) continue;
    const auto before = of(spec);
    // Full attention takes four times as long at twice the length.
    const double ratio = before.empty() ? 0 : double(length) / double(before.back().problem.length);
    if (!before.empty() && ratio * ratio * before.back().timing().median > max_seconds) {
      note(concat(spec, " is left out from length ", length, " on: --longest ", max_seconds), quiet);
      too_long.insert(spec);
    } else {
      point(spec, length);
    }
  }
}

Point& Sweep::point(const std::string& spec, int64_t length) {
  const auto place = [this](const std::string& attention, int64_t at) {
    return std::pair(at, std::find(specs.begin(), specs.end(), attention) - specs.begin());
  };
  auto it = points.begin();
  while (it != points.end() && place(it->problem.attention, it->problem.length) < place(spec, length)) ++it;
  if (it != points.end() && it->problem.length == length && it->problem.attention == spec) return *it;
  return *points.insert(it, {settings.problem(spec, length)});
}

Json Sweep::measure_share(int64_t length, int64_t passes) const {
  std::vector<Problem> problems;
  for (const Point& p : points)
    if (p.problem.length == length) problems.push_back(p.problem);
  const auto part = [&](int64_t n) { return (n + passes - 1) / passes; };
  const Repetitions& all = settings.repetitions;
  const auto found = measure(problems, settings.place, uint64_t(settings.compute.seed),
                             {part(all.maximum), part(all.minimum), all.seconds / double(passes)});
  Json share = {{"length", length}, {"points", Json::array()}};
  for (size_t i = 0; i < problems.size(); ++i)
    share["points"].push_back(
        {{"attention", problems[i].attention}, {"seconds", found[i].seconds}, {"peak_bytes", found[i].peak_bytes}});
  return share;
}

void Sweep::add(const Json& share) try {
  for (const Json& one : share.at("points")) {
    const std::string spec = one.at("attention");
    check<DataError>(std::count(specs.begin(), specs.end(), spec) == 1, "a measured share of ", in_quotes(spec),
                     ", which is not one of the variants");
    Point& p = point(spec, share.at("length"));
    const std::vector<double> seconds = one.at("seconds");
    p.seconds.insert(p.seconds.end(), seconds.begin(), seconds.end());
    p.peak = std::max(p.peak, one.at("peak_bytes").get<int64_t>());
  }
} catch (const Json::exception&) {
  throw DataError("expected a measured share, with a length and points");
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
