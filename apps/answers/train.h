#pragma once
// Fine-tuning a pretrained BERT on questions, and runs that were trained.
#include <cstddef>
#include <vector>

#include "apps/answers/model.h"
#include "apps/common/training_run.h"

namespace cairn::answers {

// Writes report.html: the training, and what the model does, which is on the CPU from then on. The result is null if
// the user has interrupted. The same run gives the same page. Error (DataError): metrics.jsonl is another program's.
void write_report(RunFolder& run, const TrainState& state, const Json& result, const Settings& settings,
                  size_t train_questions, const std::vector<Question>& dev, Model& model);

using SavedRun = cairn::SavedRun<Settings, Model>;

}  // namespace cairn::answers
