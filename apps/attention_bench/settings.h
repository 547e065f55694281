#pragma once
// The commands of attention-bench, and the settings that both share.
#include <cstdint>
#include <memory>
#include <string>

#include "apps/attention_bench/bench.h"
#include "apps/common/command.h"

namespace cairn::attention_bench {

struct Settings {
  Problem shared;  // what all problems have in common
  std::string batch;
  int64_t tokens = 0;
  Repetitions repetitions;
  ComputeSettings compute;

  void fields(SettingFields& f);
  // What follows from them. Errors: as ComputeSettings::apply; UsageError: --batch is no number and not max.
  void finish();

  // A variant at a length; says where it computes full attention. The batch is --batch, or as many sequences as
  // --tokens make, at least 1. max: as many as fit into the memory of the device, by what one and two sequences take,
  // which is told while it is measured.
  Problem problem(const std::string& attention, int64_t length, bool quiet) const;
};

std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_figure();

}  // namespace cairn::attention_bench
