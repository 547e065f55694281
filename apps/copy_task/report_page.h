#pragma once
// The report of a training run, as a page.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/common/artifact.h"
#include "apps/common/report.h"
#include "apps/common/training_state.h"
#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

// Writes report.html of a run from its metrics.jsonl and its result (null: interrupted). The same run gives the same
// page. Runs the model on 65 fresh sequences, on the CPU, where it then stays. Error (DataError): metrics.jsonl is not
// that of a copy task.
void write_report(Artifact& run, const Settings& settings, Model& model, const TrainState& state,
                  const nlohmann::ordered_json& result);

// The page's sections on one sequence (report_example.cpp).
void write_example(Report& page, const Example& example);
// Heatmaps of the attention weights: of the variant, and of full attention beside them.
void write_attention(Report& page, const std::string& attention, const Example& example);
// What the positions of a cluster have in common, over fresh sequences and on the example. Writes nothing for a variant
// without clusters.
void write_clusters(Report& page, const Settings& settings, Model& model, const Example& example);

}  // namespace cairn::copy_task
