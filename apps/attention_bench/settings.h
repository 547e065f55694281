#pragma once
// The settings that the commands share.
#include <cstdint>
#include <string>

#include "apps/attention_bench/bench.h"
#include "apps/common/settings.h"

namespace cairn::attention_bench {

struct Settings {
  Problem shared;  // the settings that all problems share
  std::string batch;
  int64_t tokens = 0;
  Repetitions repetitions;
  ComputeSettings compute;

  void fields(SettingFields& f);
  // Applies them and fills in defaults. Errors: as ComputeSettings::apply; UsageError: an invalid --batch.
  void finish();

  // The problem of a variant at a length. Notes when the variant computes full attention. The batch is --batch, or
  // --tokens / length but at least 1. For --batch max, measures the memory of one and two sequences, extrapolates how
  // many fit, and notes the result.
  Problem problem(const std::string& attention, int64_t length, bool quiet) const;
};

}  // namespace cairn::attention_bench
