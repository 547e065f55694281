#pragma once
// The points of a figure, what they tell, and its picture and page.
#include <cmath>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "apps/attention_bench/settings.h"
#include "apps/common/artifact.h"

namespace cairn::attention_bench {

using Curve = std::map<double, double>;  // the time of an element by the length

// The length from which `fast` is faster than `slow`, interpolated linearly in log-log over the lengths that both have;
// the first of these if it is faster from the start; NaN if never. `seconds` is the time there.
struct Crossover {
  double length = NAN, seconds = NAN;
};
Crossover crossover(const Curve& slow, const Curve& fast);

struct Figure {
  const Settings& settings;
  std::vector<std::string> specs;
  std::vector<Measurement> points{};  // by length, those of a length in the order of the variants

  std::vector<Measurement> of(const std::string& spec) const;
  // Where a variant becomes faster than full attention.
  Crossover faster_than_full(const std::string& spec) const;

  nlohmann::ordered_json json() const;
  // What tells a reader where each variant becomes so; nothing where there is no full attention to compare with.
  std::vector<std::pair<std::string, std::string>> crossovers() const;
  // Writes figure.json, figure.svg and report.html. Error: one cannot be written.
  void write(Artifact& folder) const;
};

}  // namespace cairn::attention_bench
