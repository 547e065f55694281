#pragma once
// The commands of attention-bench, and the settings that both share.
#include <memory>

#include "apps/attention_bench/bench.h"
#include "apps/common/command.h"

namespace cairn::attention_bench {

struct Settings {
  Problem shared;  // what all problems have in common
  std::string batch;
  int64_t tokens = 0;
  Repetitions repetitions;
  ComputeSettings compute;
  Place place;
  bool quiet = false;

  void fields(SettingFields& f);
  // What follows from them. Errors: as ComputeSettings::apply; UsageError: --batch is no number and not max.
  void finish(bool quietly);

  // The batch for a length: --batch, or as many sequences as --tokens make, at least 1. max: as many as fit into the
  // memory of the device, by what one and two sequences take, which is told while it is measured.
  Problem problem(const std::string& attention, int64_t length) const;
};

std::unique_ptr<Command> make_run();
std::unique_ptr<Command> make_figure();

}  // namespace cairn::attention_bench
