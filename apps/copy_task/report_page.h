#pragma once
// The report of a training run, as a page.
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "apps/common/artifact.h"
#include "apps/common/report.h"
#include "apps/common/training_state.h"
#include "apps/copy_task/report_analysis.h"
#include "apps/copy_task/settings.h"

namespace cairn::copy_task {

struct ReportInput {
  Model& model;  // trained, with the variant that it was trained with
  TransformerOptions options;
  int64_t length = 0;
  uint64_t seed = 0;
  std::string attention;
  std::vector<LossRecord> losses;             // of training batches, steps rising
  std::vector<EvaluationRecord> evaluations;  // during training, steps rising
  std::optional<Metrics> result;              // of the trained model; none: interrupted
  Report::Pairs configuration, provenance;
  double seconds = 0;  // of the whole run
  int64_t steps = 0;   // that it made; of some the records may be lost
};

// The page, as HTML. The same for the same input. Runs the model on 65 sequences of its own.
std::string make_report(const ReportInput& input);
// Writes the report of a run, whose folder has the records, and whose result is null where it was interrupted. Moves
// the model to the CPU. Error (DataError): the records are not a copy-task's.
void write_report(Artifact& run, const Settings& settings, Model& model, const TrainState& state,
                  const nlohmann::ordered_json& result);

// The page's sections that show the attention (report_attention.cpp).
// Maps of the attention weights on one example: of the run's variant, and of full attention beside it.
void write_attention(Report& page, const ReportInput& in, const Example& example);
// What positions of a cluster have in common, over fresh sequences and on the example. Nothing where there are no
// clusters.
void write_clusters(Report& page, const ReportInput& in, const Example& example);

}  // namespace cairn::copy_task
