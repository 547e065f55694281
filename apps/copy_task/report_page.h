#pragma once
// The sections of a run's report on one sequence, and on clusters.
#include <string>

#include "apps/common/report.h"
#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

void write_example(Report& page, const Example& example);
// Heatmaps of the attention weights: of the variant, and of full attention beside them.
void write_attention(Report& page, const std::string& attention, const Example& example);
// What the positions of a cluster have in common, over fresh sequences and on the example. Writes nothing for a variant
// without clusters.
void write_clusters(Report& page, const Settings& settings, Model& model, const Example& example);

}  // namespace cairn::copy_task
