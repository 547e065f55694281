#pragma once
// Variants measured at several lengths: the points of a figure.

#include <nlohmann/json_fwd.hpp>
#include <set>

#include "apps/attention_bench/analysis.h"
#include "apps/attention_bench/settings.h"

namespace cairn::attention_bench {

// A point to measure, or measured.
struct Point {
  Problem problem;
  std::vector<double> seconds{};  // of each repetition
  int64_t peak = 0;

  Timing timing() const { return Timing(seconds); }
  double seconds_per_element() const { return timing().median / double(problem.tokens()); }
  double bytes_per_element() const { return double(peak) / double(problem.tokens()); }
};

struct Sweep {
  const Settings& settings;
  std::vector<std::string> specs;
  double max_seconds = 0;  // seconds of one repetition beyond which a variant goes no further
  Ceilings ceilings{};
  bool quiet = false;
  std::vector<Point> points{};       // by length, in the order of the variants; some may not be measured yet
  std::set<std::string> too_long{};  // variants that go no further

  // Adds a point at this length for each variant that goes as far.
  void add_points(int64_t length);
  // Measures all points of a length in turn, with one of `passes` equal shares of the repetitions. Returns what was
  // measured, which is not yet added: {"length": ..., "points": [{"attention", "seconds", "peak_bytes"}]}.
  nlohmann::ordered_json measure_share(int64_t length, int64_t passes) const;
  // Adds a share that was measured, now or before. Error (DataError): it is none.
  void add(const nlohmann::ordered_json& share);

  // The point of a variant at a length, added in its place if need be.
  Point& point(const std::string& spec, int64_t length);
  // The points that were measured, all or those of a variant.
  std::vector<Point> measured() const;
  std::vector<Point> of(const std::string& spec) const;
  Curve times(const std::string& spec) const;
};

}  // namespace cairn::attention_bench
