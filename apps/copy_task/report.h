#pragma once
// The report of a training run: what the model learned and when, what its attention looks at, and what its clusters
// have in common.
#include <optional>

#include "apps/common/report.h"
#include "apps/copy_task/model.h"

namespace cairn::copy_task {

struct LossRecord {
  int64_t step;
  double loss;
};
struct EvaluationRecord {
  int64_t step;
  Evaluation evaluation;
};

struct ReportInput {
  Model& model;  // trained, with the variant that it was trained with
  TransformerOptions options;
  int64_t length = 0;
  uint64_t seed = 0;
  std::string attention;
  std::vector<LossRecord> losses;             // of training batches, steps rising
  std::vector<EvaluationRecord> evaluations;  // during training, steps rising
  Evaluation final_evaluation;
  Report::Pairs configuration, provenance;
  double seconds = 0;  // of the whole run
  int64_t steps = 0;   // that it made; of some the records may be lost
};

// Are dense weights of every head small enough to be written out?
bool can_observe(int64_t length, int64_t heads);

// The mean weight [N, N] that masked positions of one head give to their place in the other copy; NaN where nothing is
// masked.
double to_other_copy(const float* weights, const std::vector<int32_t>& input);

// The page, as HTML. The same for the same input. Runs the model on 65 sequences of its own.
std::string make_report(const ReportInput& input);
// Its curves of loss and accuracy alone, as an SVG file.
std::string make_curves(const ReportInput& input);

// ---- what the report says, for tests

// Where unmasked symbols are copied (accuracy above 0.8) and masked ones still guessed (below 0.3): the longest run of
// at least two such evaluations.
struct Plateau {
  int64_t first, last;               // steps
  double accuracy, masked_accuracy;  // means
  std::optional<int64_t> over;       // the evaluation after it, where masked accuracy reached 0.3
};
std::optional<Plateau> find_plateau(const std::vector<EvaluationRecord>& evaluations);

// Do positions of one cluster have more in common than others? Pairs of positions of one sequence with a property are
// compared with all pairs that are like them otherwise: otherwise content would pass for proximity, and the same token
// for the same place.
struct ClusterPairs {
  static constexpr int64_t reach = 4;
  struct Count {
    int64_t all = 0, together = 0;  // pairs, and those in one cluster
  };
  struct Kind {
    Count with, among;  // pairs that have the property, among pairs that may have it
    // How many times likelier those with it are to be in one cluster; NaN where nothing can be compared.
    double lift() const;
  };
  Kind near;   // at most `reach` apart, among pairs of different tokens
  Kind token;  // the same input token, among pairs further apart that are not the same place of the two copies
  Kind place;  // the same place of the two copies, among pairs of one position in each, one of the two masked

  // Of one sequence: labels [n] (-1: no cluster, not counted) and input tokens [n].
  void add(const int32_t* labels, const int32_t* input, int64_t n);
};

}  // namespace cairn::copy_task
