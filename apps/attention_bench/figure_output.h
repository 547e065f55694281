#pragma once
// A sweep as numbers, pictures and pages.
#include <nlohmann/json_fwd.hpp>

#include "apps/attention_bench/sweep.h"
#include "apps/common/artifact.h"

namespace cairn::attention_bench {

nlohmann::ordered_json figure_json(const Sweep& sweep);
// Tables of time and memory by length, and the crossovers.
std::string figure_text(const Sweep& sweep);
// figure.json, figure.svg and report.html, in a folder. Error: one cannot be written.
void write_figure(const Sweep& sweep, Artifact& folder);

}  // namespace cairn::attention_bench
