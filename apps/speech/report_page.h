#pragma once
// The report of a training run, as a page.
#include <nlohmann/json_fwd.hpp>

#include "apps/common/artifact.h"
#include "apps/common/training_state.h"
#include "apps/speech/train.h"

namespace cairn::speech {

// Writes report.html of a run from its metrics.jsonl and its result (null: interrupted). The same run gives the same
// page. Runs the task's model on the dev part, on the CPU, where it then stays. Error (DataError): metrics.jsonl is not
// that of speech.
void write_report(Artifact& run, SpeechTask& task, const TrainState& state, const nlohmann::ordered_json& result);

}  // namespace cairn::speech
