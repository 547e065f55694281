#pragma once
// Results as JSON, the form in which they are recorded and printed, and as text.
#include <nlohmann/json_fwd.hpp>

#include "apps/copy_task/train.h"

namespace cairn::copy_task {

// What one variant makes of trained weights.
struct VariantResult {
  std::string attention;
  Evaluation evaluation;
};

nlohmann::ordered_json as_json(const Evaluation& evaluation);
Evaluation evaluation_from(const nlohmann::ordered_json& json);

// Where --attention is a list, the first variant's figures stand at the top and the others' in "also".
nlohmann::ordered_json evaluations_json(const std::vector<VariantResult>& results);
// The result of a training: its evaluation, steps, seconds, parameters.
nlohmann::ordered_json result_json(const std::string& attention, const TrainResult& result);

// Is that what result_json makes? Of a file that anybody may have changed.
bool is_result(const nlohmann::ordered_json& json);

// A line of figures for each variant.
std::string evaluations_text(const nlohmann::ordered_json& result);
// What result_json tells.
std::string result_text(const nlohmann::ordered_json& result);

}  // namespace cairn::copy_task
