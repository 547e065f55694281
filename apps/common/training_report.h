#pragma once
// What the reports of trainings have in common.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/common/artifact.h"
#include "apps/common/report.h"
#include "apps/common/svg.h"
#include "nn/attention/observe.h"

namespace cairn {

// "1 step", "2 steps".
std::string count(int64_t n, const std::string& what);
// NaN without values.
double median(std::vector<double> values);
// An object as rows for Report::table().
Report::Pairs pairs(const nlohmann::ordered_json& object);

// A metric of the evaluations in metrics.jsonl. Error (DataError): the file is another program's.
svg::Series evaluation_curve(const Artifact& run, const std::string& metric, const std::string& name, int color = 0);
// The section "Learning" of a run of so many steps: its loss, in this unit, and a chart of its evaluations. The
// captions are the descriptions. Error as above.
void write_curves(Report& page, const Artifact& run, int64_t steps, const std::string& unit,
                  svg::LineChart evaluations);

// observe() on one sequence of n positions. Empty if dense weights take too much memory; `forward` runs in any case.
std::vector<Observation> observe_sequence(const std::vector<MultiHeadAttention*>& layers, int64_t n,
                                          const std::function<void()>& forward);
// A head of a layer, and what its caption says.
struct ShownHead {
  int64_t head;
  std::string caption;
};
// Legend and maps of the weights of one head of each layer, for one sequence; if `attention` is another, beside those
// of full attention on the same queries and keys. `frame` has what all maps show. with_clusters: of the queries, where
// the variant has them.
void write_attention_maps(Report& page, const std::string& attention, const std::vector<Observation>& layers,
                          const std::vector<ShownHead>& heads, const std::string& reading, svg::Heatmap frame,
                          bool with_clusters);
// The configuration and the provenance of the run.
void write_origin(Report& page, const Artifact& run);

}  // namespace cairn
