#include "apps/copy_task/result_format.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/common/format.h"

namespace cairn::copy_task {
namespace {

using Json = nlohmann::ordered_json;

Json row(const VariantResult& variant) {
  Json json = {{"attention", variant.attention}};
  json.update(as_json(variant.evaluation));
  return json;
}

// "0.9978", or "-" where there is none.
std::string figure(const Json& value) { return value.is_number() ? formatted("%.4f", value.get<double>()) : "-"; }

std::string line(const Json& row) {
  std::string name = row.at("attention");
  if (name.size() < 32) name.resize(32, ' ');
  return name + "  loss " + figure(row.at("loss")) + "  accuracy " + figure(row.at("accuracy")) + "  masked accuracy " +
         figure(row.at("masked_accuracy")) + "\n";
}

}  // namespace

Json as_json(const Evaluation& e) {
  return {{"loss", finite_or_null(e.loss)},
          {"accuracy", finite_or_null(e.accuracy)},
          {"masked_accuracy", finite_or_null(e.masked_accuracy)}};
}

Evaluation evaluation_from(const Json& json) {
  const auto value = [&](const char* key) { return json.at(key).is_null() ? NAN : json.at(key).get<double>(); };
  return {value("loss"), value("accuracy"), value("masked_accuracy")};
}

Json evaluations_json(const std::vector<VariantResult>& results) {
  Json json = row(results.front());
  for (size_t i = 1; i < results.size(); ++i) json["also"].push_back(row(results[i]));
  return json;
}

Json result_json(const std::string& attention, const TrainResult& result) {
  Json json = row({attention, result.evaluation});
  json["sequences"] = result.sequences;
  json["iterations"] = result.iterations;
  json["seconds"] = result.seconds;
  json["steps_per_second"] = result.steps_per_second;
  json["parameters"] = result.parameters;
  return json;
}

bool is_result(const Json& json) {
  try {
    evaluation_from(json);
    result_text(json);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string evaluations_text(const Json& result) {
  std::string text = line(result);
  if (!result.contains("also")) return text;
  for (const Json& other : result.at("also")) text += line(other);
  return text;
}

std::string result_text(const Json& result) {
  const int64_t steps = result.at("iterations"), sequences = result.at("sequences");
  std::string text =
      formatted("%lld step%s in %s (%.1f steps/s), %lld parameters", (long long)steps, steps == 1 ? "" : "s",
                clock_time(result.at("seconds")).c_str(), result.at("steps_per_second").get<double>(),
                (long long)result.at("parameters").get<int64_t>());
  if (result.contains("peak_bytes")) {
    const double bytes = result.at("peak_bytes");
    const bool few = bytes < 1e6;
    text += formatted(", %.0f %s at most", bytes / (few ? 1e3 : 1e6), few ? "kB" : "MB");
  }
  return text + concat("\nOn ", sequences, " fresh sequences:\n", evaluations_text(result));
}

}  // namespace cairn::copy_task
